"""Computes and writes the results of run_pretraining.py: the metrics of both heads."""

import functools

from bertlib.tasks import results
from bertlib.tasks.pretraining import pretraining_metrics


class PretrainingResults(results.Results):
    """The results of a `task.Pretraining`."""

    def predict(self, split, inference):
        """Returns (None, metrics). The predictions would need too much memory."""
        return None, inference.evaluate(steps=self.settings.max_eval_steps, metrics=functools.partial(
            pretraining_metrics.evaluate, vocab_size=self.task.config.vocab_size))

    def write(self, split, inference):
        _, metrics = self.predict(split, inference)
        results.write_metrics(self.settings, "dev", "eval_results", metrics)
