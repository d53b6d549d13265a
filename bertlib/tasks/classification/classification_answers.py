"""How models for texts answer: with a label, a score, any number of labels, or a vector."""

from bertlib.tasks import answers, text_windows
from bertlib.tasks.classification import (
    classifier_data,
    dev_split,
    row_examples,
)


class Texts(answers.Answers):
    """Base class of the answers with one or two texts. If the model was trained with --doc_stride, a text
    that is too long is divided into windows. Without --doc_stride, it is truncated."""

    fields = ("text_a", "text_b")
    formats, exports_texts = ("onnx", "tflite"), True

    def __init__(self, model, num_texts=None):
        """Creates the answers.

        Args:
          model: a `trained_model.TrainedModel`.
          num_texts: number of texts of an input, 1 or 2. None if an input may have one or two texts.
        """
        super().__init__(model)
        self._doc_stride = model.setting("doc_stride")
        if num_texts:
            self.fields, self.required = self.fields[:num_texts], num_texts

    def preprocess(self, text_a, text_b=None):
        if text_b is not None or self.required == 2:
            text_b = answers.require_text("text_b", text_b)
        if text_b is not None and self.model.bert_config.type_vocab_size < 2:
            raise ValueError("text_b: the model cannot distinguish the second text from the first, because "
                             "its type_vocab_size is 1. Leave text_b out.")
        windows, num_tokens = text_windows.make_windows(
            answers.require_text("text_a", text_a), text_b, self.model.max_seq_length,
            self.model.tokenizer if self._doc_stride else self.limited_tokenizer, self._doc_stride)
        if not self._doc_stride:
            self.count_truncated(num_tokens)
        return [text_windows.window_inputs(*window, self.model.tokenizer)
                for window in windows], None

    @staticmethod
    def find_unread(names, found):
        is_unread = names and list(found) == ["text_a"] and "text_b" in names
        return "the model was trained on single texts. Remove the column text_b." if is_unread else None

    def mean_over_windows(self, outputs):
        """Returns {name of an output: its mean over the windows}. A mean is an array or a number."""
        return text_windows.mean_over_windows(outputs, [len(outputs)])[0]


class _TrainedTexts(Texts):
    """Base class of the answers of models that were trained for texts.

    Attributes:
      key: key of the prediction in an answer.
    """

    def __init__(self, model):
        super().__init__(model, model.num_texts)
        self._target = model.target

    @classmethod
    def can_predict(cls, task, trained):
        # In addition to its own task, a model can predict a task without a training file, such as AX.
        declared = classifier_data.get_processor(task).file_names()
        return task.lower() == trained or bool(declared) and "train" not in declared

    @classmethod
    def find_processor(cls, model):
        if str(model.task_name).lower() not in classifier_data.PROCESSORS:
            return None
        processor = classifier_data.get_processor(model.task_name)
        if processor.language:
            processor.language = model.setting("xnli_language", processor.language)
        return processor

    @classmethod
    def read_dev_set(cls, model, path_of):
        if model.processor:
            examples = model.processor.get_dev_examples(path_of("data_dir"))
        elif model.setting("dev_fraction") and model.record.get("dev_rows"):
            split, _ = dev_split.split_by_dev_rows(
                _read_rows(model, path_of("train_file")), model.path, model.record["dev_rows"])
            examples = split.dev.rows
        else:
            examples = _read_rows(model, path_of("dev_file")).rows
        return [(tuple(filter(None, (example.text_a, example.text_b))), example.label)
                for example in examples]

    def answer(self, prediction):
        """Returns the value of `key`. `prediction` is the output of the head for a text."""
        return self._target.row_answer(prediction)[0]

    def postprocess(self, outputs, details):
        prediction, labels = self.mean_over_windows(outputs)[self._target.output], self._target.labels
        answer = {self.key: self.answer(prediction)}
        if labels:
            answer["probabilities"] = dict(zip(labels, map(answers.finite_number, prediction)))
        return answer


class ChosenLabel(_TrainedTexts):
    """Answers with {"label", "probabilities": {label: probability}}."""

    key, has_label = "label", True


class ChosenLabels(_TrainedTexts):
    """Answers with {"labels", "probabilities": {label: probability}}. "labels" contains each label whose
    probability is at least the --threshold with which the model was trained."""

    key = "labels"

    def answer(self, prediction):
        return list(super().answer(prediction))


class PredictedScore(_TrainedTexts):
    """Answers with {"score": float}, the number that the model predicts."""

    key, answer = "score", staticmethod(answers.finite_number)


class TextVector(Texts):
    """Answers of any model with {"vector": list of float}: the mean of the last layer's vectors over all
    tokens."""

    formats, folder_suffix = ("onnx",), "_vectors"

    def __init__(self, model):
        super().__init__(model)
        # With the value 0, a text that is too long is truncated, and not divided into windows. The
        # --doc_stride of a question answering model applies to contexts, and is not used for these texts.
        self._doc_stride = 0

    def postprocess(self, outputs, details):
        return {"vector": [answers.finite_number(value) for value in outputs[0]["vectors"]]}

    @property
    def head(self):
        from bertlib.tasks.classification import feature_extraction
        return feature_extraction.VectorsHead()


def _read_rows(model, path):
    """Returns the `labelled_rows.ExampleFile` of a file with the user's own data."""
    if model.task_name != classifier_data.OWN_DATA:
        raise ValueError(f"the data files of the task {model.task_name} have an unknown format.")
    return row_examples.read_as_in_training(model.record, path, model.labels)
