"""Makes the rows of a table of predictions for taggers, with one row for each word."""

from bertlib.reports.prediction_rows import PredictedRow


class WordRows:
    """The `PredictedRow`s of the words of a file. The object can be iterated any number of times.

    The fields of a row are "sentence" and "word". "sentence" is the number of the sentence that contains the
    word; the first sentence has the number 1. The label and the prediction are tags in the scheme of the
    file. The tags of a sentence are in consecutive rows, so the scores of entities can be computed from the
    table.
    """

    def __init__(self, sentences, predictions):
        """Stores the data.

        Args:
          sentences: list of `tagging_data.Sentence`. The tags of a sentence may be None.
          predictions: list with a `tagging_data.Prediction` for each sentence.
        """
        self._sentences, self._predictions = sentences, predictions

    def __iter__(self):
        pairs = zip(self._sentences, self._predictions, strict=True)
        for number, (sentence, prediction) in enumerate(pairs, 1):
            labels = sentence.tags or [None] * len(sentence.words)
            words = zip(sentence.lines, sentence.words, labels, *prediction, strict=True)
            for line, word, label, tag, probability in words:
                yield PredictedRow(line, {"sentence": str(number), "word": word}, (word,), label, tag,
                                   {"": probability}, None if label is None else label == tag)
