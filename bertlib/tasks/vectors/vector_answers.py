"""How each model answers with the vector of a text."""

from bertlib.tasks import answers
from bertlib.tasks.classification import text_answers


class Vectors(text_answers.Texts):
    """Answers with {"vector": list of float}: the mean of the last layer's vectors over all tokens."""

    formats, folder_suffix = ("onnx",), "_vectors"

    def __init__(self, model):
        super().__init__(model)
        # With the value 0, a text that is too long is truncated, and not divided into windows. The
        # --doc_stride of a question answering model applies to contexts, and is not used for these texts.
        self._doc_stride = 0

    def postprocess(self, outputs, details):
        del details
        return {"vector": [answers.number(value) for value in outputs[0]["vectors"]]}

    @property
    def head(self):
        # This module loads no TensorFlow.
        from bertlib.tasks.vectors import feature_extraction
        return feature_extraction.Vectors()
