"""Recorded results of the published code for random logits (data/squad_predictions.npz).

The windows have 96 tokens.
"""

import json
import re
from types import SimpleNamespace

from helpers import DATA
import numpy as np

from bertlib.tasks.squad import squad_answers


class SquadRecording:
    """The recorded `examples` and `features`, and the results and files for the versions "v1" (1.1) and "v2".
    """

    def __init__(self):
        with np.load(DATA / "squad_predictions.npz") as file:
            self._arrays = {key: file[key] for key in file.files}
        self.settings = json.loads(self.text("settings"))
        self.examples = examples_of(json.loads((DATA / "squad_v1.json").read_text(encoding="utf-8")))
        arrays = [self._arrays[name].tolist() for name in ("token_to_orig_map", "token_is_max_context")]
        self.features = [
            SimpleNamespace(unique_id=unique_id, example_index=example_index, tokens=tokens.split(" "),
                            token_to_orig_map={place: word for place, word in enumerate(words) if word >= 0},
                            token_is_max_context={place: best[place] for place, word in enumerate(words)
                                                  if word >= 0})
            for unique_id, example_index, tokens, words, best in zip(
                self._arrays["unique_ids"].tolist(), self._arrays["example_indices"].tolist(),
                self.text("tokens").split("\n"), *arrays)]

    def text(self, name):
        return str(self._arrays[name])

    def results(self, version):
        logits = [self._arrays[f"{version}/{side}_thousandths"] / 1000 for side in ("start", "end")]
        return [squad_answers.RawResult(feature.unique_id, *map(list, rows))
                for feature, *rows in zip(self.features, *(side.tolist() for side in logits))]


def examples_of(squad):
    """Returns the examples of the content of a SQuAD file.

    The words are split as in the published code. All examples of a context share its list of words.
    """
    examples = []
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            first = example("", "", paragraph["context"])
            examples += [SimpleNamespace(**{**vars(first), "qas_id": question["id"],
                                            "question_text": question["question"]})
                         for question in paragraph["qas"]]
    return examples


def example(qas_id, question, context):
    words = list(re.finditer("[^ \t\r\n\u202f]+", context))
    return SimpleNamespace(qas_id=qas_id, question_text=question, context=context,
                           doc_tokens=[word.group() for word in words],
                           word_offsets=[word.start() for word in words], line=None)
