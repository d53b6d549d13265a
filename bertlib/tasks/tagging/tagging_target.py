"""What a tagger predicts: a tag for each word. And how a trained tagger answers."""

import itertools

from bertlib.data import example_encoding
from bertlib.runs import entries
from bertlib.tasks import answers
from bertlib.tasks.tagging import (
    conll_files,
    sentence_files,
    tag_schemes,
    tagging_metrics,
    tagging_windows,
    word_splitter,
)
from bertlib.tasks.target import Target


class Tags(Target):
    """The target of taggers."""

    name, title = "tagging", "a tagger"
    architecture = "BertForTokenClassification"
    commands = ("run_ner",)
    known_metrics = ("eval_accuracy", *(f"eval_{name}{kind}" for kind in ("", "_*") for name in (
        "f1", "precision", "recall")), "eval_loss")
    fractions = "eval_(accuracy|((f1|precision|recall)(_.*)?))"
    more_settings = (
        entries.Choice("tag_scheme", tag_schemes.SCHEMES[0], tag_schemes.SCHEMES, ""),
        entries.Choice("word_splitting", word_splitter.SPACES, word_splitter.SPLITTINGS, ""))

    def __init__(self, labels=(), crf=False):
        """Creates a target. `labels` is the list of the tags, in the scheme IOB2."""
        self.labels, self.crf = labels, crf

    def with_labels(self, labels, setting):
        return Tags(labels, setting("crf"))

    def create_head(self):
        from bertlib.tasks.tagging import tagging_head
        return tagging_head.Tagger(self.size, self.crf)

    def feature_fields(self, seq_length, is_training=True):
        return tagging_windows.feature_fields(seq_length)

    score_table = staticmethod(tagging_metrics.score_table)


class TaggedText(answers.Answers):
    """Answers with {"words", "tags", "entities": [{"type", "text", "score", "start", "end", "start_word",
    "end_word"}], "word_spans": [[start, end] of each word]}.

    An input is a text or a list of words. `word_splitter` splits a text into words in the same way as it
    split the training data. A list of words is not split again; its text consists of these words with single
    spaces between them.

    "start" and "end" are indices of characters in the text, and "text" is the part of the text between them.
    "start_word" and "end_word" are indices of words. "score" is the mean probability of the tags of the
    entity's words.
    """

    fields, extra_inputs = ("text",), ("tag_mask", "word_mask")
    formats, exports_texts, takes_words = ("onnx",), True, True
    word_keys = sentence_files.WORD_KEYS

    @classmethod
    def read_dev_set(cls, model, path_of):
        file = sentence_files.read_sentences(path_of("dev_file"), model.setting("token_column"),
                                             model.setting("tag_column"))
        return [((list(sentence.words),), sentence.tags) for sentence in file.sentences]

    def preprocess(self, text):
        if isinstance(text, list) and all(isinstance(word, str) and conll_files.split_words(word)
                                          for word in text):
            words, text = text, " ".join(text)
            ends = list(itertools.accumulate(len(word) + 1 for word in words))
            places = [(end - 1 - len(word), end - 1) for end, word in zip(ends, words)]
        elif isinstance(text, str):
            places = word_splitter.split(text, self.model.setting("word_splitting"))
            words = [text[start:end] for start, end in places]
        else:
            raise ValueError(f"text is {text!r:.80}, but it must be a text or a list of words.")
        if not words:
            raise ValueError("text is empty.")
        windows, = tagging_windows.make_windows(
            [conll_files.Sentence(words, None, None)], self.model.labels, self.model.tokenizer,
            self.model.max_seq_length, self.model.setting("label_all_pieces"))
        return [{**example_encoding.model_inputs(window.input_ids), "tag_mask": window.tag_mask,
                 "word_mask": window.word_mask} for window in windows], (text, words, places)

    def postprocess(self, outputs, details):
        text, words, places = details
        sentence = conll_files.Sentence(words, None, None)
        prediction, = tagging_windows.merge_windows(outputs, [sentence], self.model.labels,
                                                    self.model.setting("tag_scheme"))
        entities = []
        for first, last, kind, score in prediction.entities():
            start, end = places[first][0], places[last - 1][1]
            entities.append({"type": kind, "text": text[start:end], "score": answers.finite_number(score),
                             "start": start, "end": end, "start_word": first, "end_word": last})
        return {"words": words, "tags": prediction.tags, "entities": entities,
                "word_spans": list(map(list, places))}

    @staticmethod
    def read_words(stream, name, token_column, tag_column, bad_lines):
        """Returns the sentences in CoNLL columns: a list of pairs, the number of the first line of a sentence
        and the list of its words. For the arguments, see `conll_files.parse_conll`."""
        file = conll_files.parse_conll(stream, name, token_column, tag_column, bad_lines, needs_tags=False)
        return [(sentence.lines[0], sentence.words) for sentence in file.sentences]

    def is_row(self, line):
        """Returns whether a line (a str) has the columns of the training file, with a tag of the model."""
        row, column = conll_files.split_words(line), self.model.setting("tag_column")
        if len(row) != self.model.setting("num_columns"):
            return False
        return tag_schemes.convert_scheme([row[column - (column > 0)]])[0] in self.model.labels

    def complete_tags(self, tags):
        """Returns the tags in an answer, from the tags that the model has predicted for the words of a text.
        """
        return tag_schemes.convert_scheme(tags, self.model.setting("tag_scheme"))

    def exported_inputs(self):
        return ("word_mask",) if self.model.setting("crf") else ()
