"""Recorded results of the published code for random logits (data/squad_predictions.npz).

The windows have 96 tokens.
"""

import json
from types import SimpleNamespace

from helpers import DATA
import numpy as np

from bertlib.tasks.squad import span_selection, squad_data


class SquadRecording:
    """The recorded `examples` and `features`, and the results and files for the versions "v1" (1.1) and "v2".
    """

    def __init__(self):
        with np.load(DATA / "squad_predictions.npz") as file:
            self._arrays = {key: file[key] for key in file.files}
        self.settings = json.loads(self.text("settings"))
        self.examples = squad_data.read_squad_examples(str(DATA / "squad_v1.json"), is_training=False)
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
        return [span_selection.RawResult(feature.unique_id, *map(list, rows))
                for feature, *rows in zip(self.features, *(side.tolist() for side in logits))]


def example(qas_id, question, context):
    words, offsets = squad_data.split_context(context)
    return SimpleNamespace(qas_id=qas_id, question_text=question, context=context, doc_tokens=words,
                           word_offsets=offsets, line=None)
