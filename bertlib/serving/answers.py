"""Converts texts to inputs of the model, and outputs of the model to answers. Each task has a class.

The class of a task has these attributes and methods:

    fields                    names of the texts of an input, such as ("text_a", "text_b")
    required                  number of texts that an input must have; all further texts are optional
    head                      see `bertlib.tasks.head`
    extra_inputs              see `session.LoadedModel`
    windows(*values)          takes the values of the fields; returns (rows, details). `rows` contains the
                              inputs of the model for each window, {name: list of int}. `details` is the data
                              that `postprocess` needs in addition to the model's outputs
    postprocess(outputs, details)
                              takes the model's outputs of each window; returns the answer, a dict that can
                              be written as JSON
"""

import itertools
import os

from absl import logging

from bertlib.checkpoints import checkpoint_files
from bertlib.output_directory import null_threshold, output_files
from bertlib.rows.columns import is_blank
from bertlib.tasks import window_pooling
from bertlib.tasks.classification import (
    classification_head,
    classifier_features,
    multilabel_head,
    regression_head,
)
from bertlib.tasks.multiple_choice import choice_data, choice_head, choice_metrics
from bertlib.tasks.pretraining import pretraining_head
from bertlib.tasks.squad import squad_answers, squad_data, squad_head
from bertlib.tasks.tagging import tagging_data, tagging_head, word_splitter
from bertlib.tasks.vectors import feature_extraction
import tokenization

_MASK = "[MASK]"
_DIGITS = 6


def _number(value):
    """Returns a number as a float, rounded to six decimals. All numbers in answers are rounded like this."""
    return round(float(value), _DIGITS)


def _text(name, value):
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.80}, but it must be a text.")
    if is_blank(value):
        raise ValueError(f"{name} is empty.")
    return value


class _Texts:
    """Base class of the tasks with one or two texts. If the model was trained with --doc_stride, a text that
    is too long is divided into windows. Without --doc_stride, it is truncated."""

    fields, required = ("text_a", "text_b"), 1
    extra_inputs = ()

    def __init__(self, model, num_texts=None):
        """Creates the task.

        Args:
          model: a `model_directory.ModelDirectory`.
          num_texts: number of texts of an input, 1 or 2. None if an input may have one or two texts.
        """
        self._model, self._num_texts = model, num_texts
        self._doc_stride = model.setting("doc_stride")
        if num_texts:
            self.fields, self.required = self.fields[:num_texts], num_texts

    def windows(self, text_a, text_b=None):
        if self._num_texts == 2 and text_b is None:
            raise ValueError("text_b is missing: the model was trained on pairs of texts. Pass two texts.")
        if self._num_texts == 1 and text_b is not None:
            raise ValueError("text_b: the model was trained on single texts. Leave text_b out.")
        if text_b is not None and self._model.bert_config.type_vocab_size < 2:
            raise ValueError("text_b: the model cannot distinguish the second text from the first, because "
                             "its type_vocab_size is 1. Leave text_b out.")
        example = classifier_features.InputExample("question", _text("text_a", text_a),
                                                   text_b if text_b is None else _text("text_b", text_b))
        windows, _ = classifier_features.make_windows(
            example, self._model.max_seq_length, self._model.tokenizer, self._doc_stride, counts_tokens=False)
        return [{"input_ids": list(self._model.tokenizer.convert_tokens_to_ids(first + second)),
                 "input_mask": [1] * len(first + second),
                 "segment_ids": [0] * len(first) + [1] * len(second)} for first, second in windows], None

    def pooled(self, outputs):
        """Returns {name of an output: its mean over the windows}. A mean is an array or a number."""
        return window_pooling.pooled(outputs, [len(outputs)])[0]


class Classification(_Texts):
    """Answers with {"label", "probabilities": {label: probability}}."""

    def __init__(self, model):
        super().__init__(model, model.num_texts)
        self._labels = model.labels
        self.head = classification_head.Classifier(len(model.labels))

    def postprocess(self, outputs, details):
        del details
        probabilities = self.pooled(outputs)["probabilities"]
        return {"label": self._labels[int(probabilities.argmax())],
                "probabilities": dict(zip(self._labels, map(_number, probabilities)))}


class Multilabel(_Texts):
    """Answers with {"labels", "probabilities": {label: probability}}. "labels" contains each label whose
    probability is at least the --threshold with which the model was trained."""

    def __init__(self, model):
        super().__init__(model, model.num_texts)
        self._labels, self._threshold = model.labels, model.setting("threshold")
        self.head = multilabel_head.MultilabelClassifier(len(model.labels))

    def postprocess(self, outputs, details):
        del details
        probabilities = self.pooled(outputs)["probabilities"]
        likely = [label for label, value in zip(self._labels, probabilities) if value >= self._threshold]
        return {"labels": likely, "probabilities": dict(zip(self._labels, map(_number, probabilities)))}


class Regression(_Texts):
    """Answers with {"score": float}, the number that the model predicts."""

    head = regression_head.Regressor()

    def __init__(self, model):
        super().__init__(model, model.num_texts)

    def postprocess(self, outputs, details):
        del details
        return {"score": _number(self.pooled(outputs)["scores"])}


class Vectors(_Texts):
    """Answers with {"vector": list of float}: the mean of the last layer's vectors over all tokens."""

    head = feature_extraction.Vectors()

    def __init__(self, model):
        super().__init__(model)
        # With the value 0, a text that is too long is truncated, and not divided into windows. The
        # --doc_stride of a question answering model applies to contexts, and is not used for these texts.
        self._doc_stride = 0

    def postprocess(self, outputs, details):
        del details
        return {"vector": [_number(value) for value in outputs[0]["vectors"]]}


class Tagging:
    """Answers with {"words", "tags", "entities": [{"type", "text", "score", "start", "end", "start_word",
    "end_word"}]}.

    An input is a text or a list of words. `word_splitter` splits a text into words in the same way as it
    split the training data. A list of words is not split again; its text consists of these words with single
    spaces between them.

    "start" and "end" are indices of characters in the text, and "text" is the part of the text between them.
    "start_word" and "end_word" are indices of words. "score" is the mean probability of the tags of the
    entity's words.
    """

    fields, required = ("text",), 1
    extra_inputs = ("tag_mask", "word_mask")

    def __init__(self, model):
        self._model = model
        self.head = tagging_head.Tagger(len(model.labels), model.setting("crf"))

    def windows(self, text):
        if isinstance(text, list) and all(isinstance(word, str) and tagging_data.split_words(word)
                                          for word in text):
            words, text = text, " ".join(text)
            ends = list(itertools.accumulate(len(word) + 1 for word in words))
            places = [(end - 1 - len(word), end - 1) for end, word in zip(ends, words)]
        elif isinstance(text, str):
            places = word_splitter.split(text, self._model.setting("word_splitting"))
            words = [text[start:end] for start, end in places]
        else:
            raise ValueError(f"text is {text!r:.80}, but it must be a text or a list of words.")
        if not words:
            raise ValueError("text is empty.")
        tagging_windows, = tagging_data.make_windows(
            [tagging_data.Sentence(words, None, None)], self._model.labels, self._model.tokenizer,
            self._model.max_seq_length, self._model.setting("label_all_pieces"))
        return [{"input_ids": window.input_ids, "input_mask": [1] * len(window.input_ids),
                 "segment_ids": [0] * len(window.input_ids), "tag_mask": window.tag_mask,
                 "word_mask": window.word_mask} for window in tagging_windows], (text, words, places)

    def postprocess(self, outputs, details):
        text, words, places = details
        sentence = tagging_data.Sentence(words, None, None)
        prediction, = tagging_data.merge_windows(outputs, [sentence], self._model.labels,
                                                 self._model.setting("tag_scheme"))
        entities = []
        for first, last, kind, score in prediction.entities():
            start, end = places[first][0], places[last - 1][1]
            entities.append({"type": kind, "text": text[start:end], "score": _number(score), "start": start,
                             "end": end, "start_word": first, "end_word": last})
        return {"words": words, "tags": prediction.tags, "entities": entities}


class SquadQuestions:
    """Answers with {"answer", "probability", "start", "end"}. "start" and "end" are indices of characters in
    the context.

    With a model of SQuAD 2.0, "answer" is "" if the context contains no answer. The answers of such a model
    also have "null_odds", the score of "no answer" minus the score of the best answer.
    """

    fields, required = ("question", "context"), 2
    extra_inputs = ()
    head = squad_head.Span()

    def __init__(self, model):
        self._model = model
        self._version_2 = str(model.task).endswith("2.0")
        self._threshold = _null_threshold(model) if self._version_2 else None

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

    def postprocess(self, outputs, details):
        example, features = details
        results = [squad_answers.RawResult(feature.unique_id, output["start_logits"],
                                           output["end_logits"])
                   for feature, output in zip(features, outputs)]
        prediction, = squad_answers.select_answers(
            [example], features, results, self._model.setting("n_best_size"),
            self._model.setting("max_answer_length"), self._model.do_lower_case, self._version_2,
            basic_tokenizer=getattr(self._model.tokenizer, "basic_tokenizer", None), skips_padding=True)
        best = prediction.final_answer(self._threshold)
        answer = {"answer": best.text, "probability": _number(best.probability), "start": best.start,
                  "end": best.end}
        return {**answer, "null_odds": _number(prediction.null_odds)} if self._version_2 else answer


class MultipleChoice:
    """Answers with {"label", "ending", "probabilities": {label: probability}}. The label is the number of the
    chosen ending, as a str. The label of the first ending is "0"."""

    required = len(choice_data.column_names(choice_data.MIN_CHOICES))
    extra_inputs = ()
    head = choice_head.Choice()

    def __init__(self, model):
        self._model = model
        self.fields = choice_data.column_names(model.setting("num_choices"))

    def windows(self, *texts, **by_name):
        names = self.fields[:len(texts)]
        if len(texts) > len(self.fields) or set(names) & set(by_name) or set(by_name) - set(self.fields):
            raise TypeError(f"the texts of a question are {', '.join(self.fields)}. Pass each text once, in "
                            "this order or by name.")
        values = {**dict(zip(names, texts)), **by_name}
        given = [name for name in self.fields if values.get(name) is not None]
        if given != list(self.fields[:len(given)]) or len(given) < self.required:
            missing = next(name for name in self.fields if name not in given)
            raise ValueError(f"{missing} is missing: a question needs sent1, sent2 and at least "
                             f"{choice_data.MIN_CHOICES} endings.")
        sent1, sent2, *endings = (_text(name, values[name]) for name in given)
        sequences, _ = choice_data.make_sequences(sent1, sent2, endings, self._model.max_seq_length,
                                                  self._model.tokenizer, counts_tokens=False)
        return sequences, endings

    def postprocess(self, outputs, details):
        endings = details
        probabilities = choice_metrics.probabilities([output["scores"] for output in outputs])
        best = int(probabilities.argmax())
        labels = choice_data.label_names(len(endings))
        return {"label": labels[best], "ending": endings[best],
                "probabilities": dict(zip(labels, map(_number, probabilities)))}


def _null_threshold(model):
    """Returns the null threshold of a model: if "null_odds" is above this threshold, "answer" is "".

    This is the threshold of the last evaluation. If no evaluation has stored a threshold, it is the threshold
    that the training recorded.
    """
    threshold, source = null_threshold.read(model.path, checkpoint_files.step_in_name(model.checkpoint))
    if threshold is None:
        threshold = model.setting("null_score_diff_threshold")
        source = os.path.join(model.path, output_files.RECORD)
    logging.info("Null threshold: %s (%s).", threshold, source)
    return threshold


class MaskedWords:
    """Answers with the five most likely tokens for each [MASK] of a text, in this form:
    {"masks": [[{"token", "probability"}, …], …]}."""

    fields, required = ("text",), 1
    extra_inputs = ("masked_lm_positions",)
    _NUM_WORDS = 5

    def __init__(self, model):
        self.head = pretraining_head.MaskedWords(self._NUM_WORDS, model.tokenizer.inv_vocab)
        self._tokenizer, self._length = model.tokenizer, model.max_seq_length

    def windows(self, text):
        parts = _text("text", text).split(_MASK)
        tokens = ["[CLS]"]
        for index, part in enumerate(parts):
            tokens += [_MASK] if index else []
            tokens += tokenization.first_tokens(self._tokenizer, part, self._length)
            if len(tokens) >= self._length:
                break
        tokens = [*tokens[:self._length - 1], "[SEP]"]
        positions = [place for place, token in enumerate(tokens) if token == _MASK]
        if len(positions) < len(parts) - 1 or len(parts) == 1:
            raise ValueError(f"text has no {_MASK}." if len(parts) == 1 else
                             f"text has a {_MASK} beyond the {self._length} tokens that the model reads.")
        ids = list(self._tokenizer.convert_tokens_to_ids(tokens))
        return [{"input_ids": ids, "input_mask": [1] * len(ids), "segment_ids": [0] * len(ids),
                 "masked_lm_positions": positions}], len(positions)

    def postprocess(self, outputs, details):
        num_masks = details
        ids, probabilities = (outputs[0][name][:num_masks] for name in ("ids", "probabilities"))
        return {"masks": [[{"token": token, "probability": _number(probability)} for token, probability in
                           zip(self._tokenizer.convert_ids_to_tokens(row.tolist()), values)]
                          for row, values in zip(ids, probabilities)]}


def resolve_task(model, task=None):
    """Returns the task for which a model will be used, a key of `TASKS`.

    Args:
      model: a `model_directory.ModelDirectory`.
      task: the requested task; None for the task that the model was trained for.

    Raises:
      ValueError: the model cannot do this task.
    """
    usual = {"pre-training": "masked_words"}.get(model.kind, model.kind)
    if task not in (None, usual, "vectors"):
        raise ValueError(f"task {task}: the model in {model.path} was trained for {model.kind}. Its tasks "
                         f"are {usual} and vectors.")
    return task or usual


TASKS = {"classification": Classification, "regression": Regression, "multilabel": Multilabel,
         "tagging": Tagging, "questions": SquadQuestions, "multiple_choice": MultipleChoice,
         "masked_words": MaskedWords, "vectors": Vectors}
