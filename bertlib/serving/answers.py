"""From what is asked to what the model is fed, and from its outputs to answers: a class for each task.

A task's class has

    fields                    names of what is asked about; `required` of them have to be there
    head                      see `bertlib.tasks.head`
    extra_inputs              see `session.LoadedModel`
    windows(*values)          the values of the fields → a list of rows that the model is fed, each
                              {name: list of int}, and what `answer` needs of them besides
    answer(outputs, context)  the model's outputs of each window → the answer, a dict that JSON can hold
"""

import os

from bertlib.output_directory import record_fields
from bertlib.rows.columns import is_blank
from bertlib.system import files
from bertlib.tasks import window_pooling
from bertlib.tasks.classification import (
    classification_head,
    classifier_features,
    multilabel_head,
    regression_head,
)
from bertlib.tasks.pretraining import pretraining_head
from bertlib.tasks.squad import squad_answers, squad_data, squad_head
from bertlib.tasks.tagging import tagging_data, tagging_head
from bertlib.tasks.vectors import feature_extraction

_MASK = "[MASK]"
_DIGITS = 6


def _number(value):
    """A float as it is written: six decimals."""
    return round(float(value), _DIGITS)


def _text(name, value):
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.80}, and has to be a text.")
    if is_blank(value):
        raise ValueError(f"{name} is empty.")
    return value


class _Texts:
    """One or two texts, as in the training. What is too long becomes windows if it did in the training, else
    it is cut."""

    fields, required = ("text_a", "text_b"), 1
    extra_inputs = ()

    def __init__(self, model, num_texts=None):
        """Takes a model; `num_texts` is that of an example, or None if one and two texts are right."""
        self._model, self._num_texts = model, num_texts
        self._doc_stride = model.setting("doc_stride")
        if num_texts:
            self.fields, self.required = self.fields[:num_texts], num_texts

    def windows(self, text_a, text_b=None):
        if self._num_texts == 2 and text_b is None:
            raise ValueError("text_b is missing: the model was trained on pairs of texts.")
        if self._num_texts == 1 and text_b is not None:
            raise ValueError("text_b: the model was trained on single texts; leave it out.")
        if text_b is not None and self._model.bert_config.type_vocab_size < 2:
            raise ValueError("text_b: the model tells no second text from the first; it takes one.")
        example = classifier_features.InputExample("asked", _text("text_a", text_a),
                                                   text_b if text_b is None else _text("text_b", text_b))
        found, _ = classifier_features.make_windows(example, self._model.max_seq_length,
                                                    self._model.tokenizer,
                                                    self._doc_stride)
        return [{"input_ids": list(self._model.tokenizer.convert_tokens_to_ids(first + second)),
                 "input_mask": [1] * len(first + second),
                 "segment_ids": [0] * len(first) + [1] * len(second)} for first, second in found], None

    def pooled(self, outputs):
        """The mean of the windows' outputs, {name: array or number}."""
        return window_pooling.pooled(outputs, [len(outputs)])[0]


class Classification(_Texts):
    """{"label", "probabilities": {label: p}}."""

    def __init__(self, model):
        super().__init__(model, model.num_texts)
        self._labels = model.labels
        self.head = classification_head.Classifier(len(model.labels))

    def answer(self, outputs, context):
        del context
        probabilities = self.pooled(outputs)["probabilities"]
        return {"label": self._labels[int(probabilities.argmax())],
                "probabilities": dict(zip(self._labels, map(_number, probabilities)))}


class Multilabel(_Texts):
    """{"labels", those that are likely enough, "probabilities": {label: p}}."""

    def __init__(self, model):
        super().__init__(model, model.num_texts)
        self._labels, self._threshold = model.labels, model.setting("threshold")
        self.head = multilabel_head.MultilabelClassifier(model.labels, self._threshold)

    def answer(self, outputs, context):
        del context
        probabilities = self.pooled(outputs)["probabilities"]
        likely = [label for label, value in zip(self._labels, probabilities) if value >= self._threshold]
        return {"labels": likely, "probabilities": dict(zip(self._labels, map(_number, probabilities)))}


class Regression(_Texts):
    """{"score"}."""

    head = regression_head.Regressor()

    def __init__(self, model):
        super().__init__(model, model.num_texts)

    def answer(self, outputs, context):
        del context
        return {"score": _number(self.pooled(outputs)["scores"])}


class Vectors(_Texts):
    """{"vector"}: the mean of the last layer's vectors of all tokens."""

    head = feature_extraction.Vectors()

    def __init__(self, model):
        super().__init__(model)
        self._doc_stride = 0  # which may be that of questions

    def answer(self, outputs, context):
        del context
        return {"vector": [_number(value) for value in outputs[0]["vectors"]]}


class Tagging:
    """{"words", "tags", "entities": [{"type", "text", "start", "end"}]}, start and end counting words.

    What is asked about is a text, of which spaces, tabs and line ends separate the words, or a list of words.
    """

    fields, required = ("text",), 1
    extra_inputs = ("tag_mask", "word_mask")

    def __init__(self, model):
        self._model = model
        self.head = tagging_head.Tagger(len(model.labels), model.setting("crf"))

    def windows(self, text):
        if isinstance(text, list) and all(isinstance(word, str) and tagging_data.split_words(word)
                                          for word in text):
            words = text
        elif isinstance(text, str):
            words = tagging_data.split_words(text)
        else:
            raise ValueError(f"text is {text!r:.80}, and has to be a text or a list of words.")
        if not words:
            raise ValueError("text is empty.")
        made, = tagging_data.make_windows(
            [tagging_data.Sentence(words, None, None)], self._model.labels, self._model.tokenizer,
            self._model.max_seq_length, self._model.setting("label_all_pieces"))
        return [{"input_ids": window.input_ids, "input_mask": [1] * len(window.input_ids),
                 "segment_ids": [0] * len(window.input_ids), "tag_mask": window.tag_mask,
                 "word_mask": window.word_mask} for window in made], words

    def answer(self, outputs, context):
        tags = [self._model.labels[tag] for output in outputs for tag in output["tags"][:output["num_words"]]]
        entities = [{"type": kind, "text": " ".join(context[start:end]), "start": start, "end": end}
                    for start, end, kind in tagging_data.entity_spans(tags)]
        scheme = self._model.setting("tag_scheme")
        return {"words": context, "tags": tagging_data.convert_scheme(tags, scheme), "entities": entities}


class SquadQuestions:
    """{"answer", "probability", "start", "end"}: characters of the context; of a model of SQuAD 2.0 no answer
    is "", and "null_odds" says by how much its score is above the best answer's."""

    fields, required = ("question", "context"), 2
    extra_inputs = ()
    head = squad_head.Span()

    def __init__(self, model):
        self._model = model
        self._version_2 = str(model.task).endswith("2.0")
        self._threshold = _null_threshold(model)

    def windows(self, question, context):
        words, offsets = squad_data.split_context(_text("context", context))
        example = squad_data.SquadExample("", _text("question", question), words, context=context,
                                          word_offsets=offsets)
        features = list(squad_data.generate_features(
            [example], self._model.tokenizer, self._model.max_seq_length,
            self._model.setting("doc_stride"), self._model.setting("max_query_length"),
            is_training=False, report=False))
        sizes = [len(feature.tokens) for feature in features]
        return [{name: getattr(feature, name)[:size] for name in squad_data.SEQUENCES}
                for feature, size in zip(features, sizes)], (example, features)

    def answer(self, outputs, context):
        example, features = context
        results = [squad_answers.RawResult(feature.unique_id, output["start_logits"],
                                           output["end_logits"])
                   for feature, output in zip(features, outputs)]
        found, = squad_answers.select_answers(
            [example], features, results, self._model.setting("n_best_size"),
            self._model.setting("max_answer_length"), self._model.do_lower_case, self._version_2,
            basic_tokenizer=getattr(self._model.tokenizer, "basic_tokenizer", None))
        best = found.final_answer(self._threshold)
        answer = {"answer": best.text, "probability": _number(best.probability), "start": best.start,
                  "end": best.end}
        return {**answer, "null_odds": _number(found.null_odds)} if self._version_2 else answer


def _null_threshold(model):
    """The threshold of the newest evaluation in a model's directory, which may have looked for it; else that
    of the training.

    Raises:
      ValueError: the evaluation's is no number.
    """
    path = os.path.join(model.path, "eval_results.json")
    found = files.read_json_object(path).get("null_score_diff_threshold") if files.exists(path) else None
    if found is None:
        return model.setting("null_score_diff_threshold")
    rule = record_fields.SETTINGS["null_score_diff_threshold"]
    if not rule.holds(found):
        raise ValueError(f"{path}: null_score_diff_threshold is {found!r:.60}, and has to be {rule.words}. "
                         "Run the evaluation again, or remove the file.")
    return found


class MaskedWords:
    """{"masks": [[{"token", "probability"}, …], …]}: for each [MASK] of the text its likeliest words."""

    fields, required = ("text",), 1
    extra_inputs = ("masked_lm_positions",)
    _NUM_WORDS = 5
    head = pretraining_head.MaskedWords(_NUM_WORDS)

    def __init__(self, model):
        self._tokenizer, self._length = model.tokenizer, model.max_seq_length

    def windows(self, text):
        pieces = [self._tokenizer.tokenize(part) for part in _text("text", text).split(_MASK)]
        tokens = ["[CLS]", *pieces[0]]
        for part in pieces[1:]:
            tokens += [_MASK, *part]
        tokens = [*tokens[:self._length - 1], "[SEP]"]
        positions = [place for place, token in enumerate(tokens) if token == _MASK]
        if len(positions) < len(pieces) - 1 or len(pieces) == 1:
            raise ValueError(f"text has no {_MASK}." if len(pieces) == 1 else
                             f"text has a {_MASK} beyond the {self._length} tokens that the model sees.")
        ids = list(self._tokenizer.convert_tokens_to_ids(tokens))
        return [{"input_ids": ids, "input_mask": [1] * len(ids), "segment_ids": [0] * len(ids),
                 "masked_lm_positions": positions}], len(positions)

    def answer(self, outputs, context):
        ids, probabilities = (outputs[0][name][:context] for name in ("ids", "probabilities"))
        return {"masks": [[{"token": token, "probability": _number(probability)} for token, probability in
                           zip(self._tokenizer.convert_ids_to_tokens(row.tolist()), values)]
                          for row, values in zip(ids, probabilities)]}


def resolve_task(model, task=None):
    """Returns what a model is to do, a key of `TASKS`.

    Args:
      model: a `model_directory.ModelDirectory`.
      task: what it was asked for; None for what it was trained for.

    Raises:
      ValueError: it does not do that.
    """
    usual = {"pre-training": "masked_words"}.get(model.kind, model.kind)
    if task not in (None, usual, "vectors"):
        raise ValueError(f"task {task}: the model in {model.path} was trained for {model.kind}. Its tasks "
                         f"are {usual} and vectors.")
    return task or usual


TASKS = {"classification": Classification, "regression": Regression, "multilabel": Multilabel,
         "tagging": Tagging, "questions": SquadQuestions, "masked_words": MaskedWords, "vectors": Vectors}
