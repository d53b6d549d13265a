"""Contains the task of run_pretraining.py: predicts masked words and next sentences. Also
computes the metrics of the pre-training."""

import itertools
import os

from absl import logging
import numpy as np

from bertlib.runs import checks, model_config, recorded_flags, tokenizer_flags
from bertlib.runs.input_paths import sample_path
from bertlib.system import terminal
from bertlib.tasks import data_splits, task
from bertlib.tasks.pretraining import (
    pretraining_data,
    pretraining_records,
    pretraining_target,
)

# Default values of flags for a training on the sample.
_SAMPLE_FLAGS = dict(max_seq_length=64, max_predictions_per_seq=10, num_train_steps=1500,
                     num_warmup_steps=150, learning_rate=1e-3, eval_batch_size=32, save_checkpoints_steps=150,
                     log_steps=50)


class Pretraining(task.Task):
    """Predicts masked words, and whether the second text follows the first one. The data are records that
    create_pretraining_data.py wrote.

    Attributes:
      paths: {split: list of the paths of its records}, after `resolve`.
    """

    command = "run_pretraining.py"
    target = pretraining_target.MaskedTokens()
    title = "Masked words that were predicted correctly"
    metric_titles = {"masked_lm_accuracy": "the model", "masked_lm_baseline": "the most frequent word"}
    feature_files, result_splits = {}, ("dev",)  # the data are features already
    needs_do_eval = False
    position_fields = pretraining_data.POSITIONS
    # Trimming sorts the examples by length. The first --max_eval_steps batches would then contain too many of
    # the long examples.
    trims_padding_in_evaluation = False

    def __init__(self, settings):
        super().__init__(settings)
        self.paths, self._is_sample, self._vocabulary = {}, False, None

    # --- Flags

    def resolve(self):
        settings = self.settings
        self.resolve_run("pretraining")
        self._is_sample = (settings.input_file is settings.eval_file is settings.bert_config_file
                           is settings.init_checkpoint is None)
        if self._is_sample:
            self._use_sample()
        model_config.fill_in_model_files(settings, reads_text=False)
        if not settings.input_file:
            raise ValueError("--input_file is required: pass records of `create_pretraining_data.py`.")
        if settings.num_warmup_steps >= settings.num_train_steps and settings.do_train:
            logging.warning("--num_warmup_steps=%d is not below --num_train_steps=%d: the learning rate "
                            "never gets to --learning_rate.", settings.num_warmup_steps,
                            settings.num_train_steps)
        if not self._is_sample:
            self.paths["train"] = pretraining_records.list_files(settings, "input_file")
            self.paths["dev"] = (pretraining_records.list_files(settings, "eval_file") if settings.eval_file
                                 else self.paths["train"])
            if settings.do_eval and not settings.eval_file:
                logging.info("--eval_file not given: the evaluation reads --input_file, so its scores are "
                             "not those of new text.")

    def _use_sample(self):
        """Sets the flags for a training on the sample text."""
        settings, sample = self.settings, sample_path("pretraining")
        # The records of the sample lie in the output directory, but its configuration lies in the sample.
        recorded_flags.refuse_sample(settings, sample, "--input_file", ("input_file", "bert_config_file"))
        logging.info("--input_file not given: using %s, a small text made for this repository", sample)
        for name, value in {"bert_config_file": os.path.join(sample, "bert_config.json"),
                            "vocab_file": os.path.join(sample, "vocab.txt"), "do_lower_case": True,
                            **_SAMPLE_FLAGS,
                            **({"eval_each_checkpoint": True} if settings.do_train else {})}.items():
            if not settings.is_fixed(name):
                settings.set_default(name, value)
        # `make_data` writes these files.
        settings.resolve_results_dir()
        directory = getattr(settings, pretraining_records.directory_flag(settings))
        for split, flag in pretraining_records.FLAG_OF_SPLIT.items():
            setattr(settings, flag, os.path.join(directory, f"{split}.tf_record"))
            self.paths[split] = [getattr(settings, flag)]

    def load_config_and_tokenizer(self):
        self.config = model_config.load_config(self.settings)
        tokenizer_flags.check_vocabulary(self.settings, self.config)
        checks.check_segments(self.config, "an example of pre-training is a pair")

    # --- Files and data

    def input_files(self):
        return {flag: self.paths[split] for split, flag in pretraining_records.FLAG_OF_SPLIT.items()}

    def result_names(self, split):
        return ["eval_results.txt", "eval_results.json"]

    def read(self):
        if not self._is_sample:
            self._resolve_records()

    def _resolve_records(self):
        """Sets the flags of the vocabulary from the manifest of the records, and checks the records."""
        settings = self.settings
        self._vocabulary = pretraining_records.resolve_vocabulary(
            settings, list(dict.fromkeys(itertools.chain(*self.paths.values()))))
        tokenizer_flags.check_vocabulary(settings, self.config)  # the number of entries may grow
        for split, flag in pretraining_records.FLAG_OF_SPLIT.items():
            pretraining_records.check_records(settings, flag, self.paths[split], self.config,
                                              self.trims_padding(is_training=True))

    # --- The model

    def feature_fields(self, seq_length, split="train"):
        return pretraining_data.feature_fields(seq_length, self.settings.max_predictions_per_seq,
                                               self.config.vocab_size, self.config.type_vocab_size)

    def training_size(self):
        return terminal.counted(len(self.paths["train"]), "file")

    def num_train_steps(self):
        return self.settings.num_train_steps

    def num_warmup_steps(self):
        return self.settings.num_warmup_steps

    def make_data(self):
        if self._is_sample:
            pretraining_records.make_sample(self.settings)
            self._resolve_records()

    def record_fields(self):
        settings, paths = self.settings, self.paths
        return {"task": self.target.name, "vocabulary": self._vocabulary,
                **data_splits.data_fields(settings,
                                          lambda: pretraining_records.count_evaluated(settings, paths["dev"]),
                                          **paths)}

    # --- The run

    def splits(self):
        return ["dev"] if self.settings.do_eval else []

    def feature_paths(self, split):
        return self.paths[split]

    def predict(self, split, inference):
        """Returns (None, metrics). The predictions would need too much memory."""
        return inference.evaluate(lambda batches: (None, evaluate(batches, self.config.vocab_size)),
                                  "eval_batch_size", self.settings.max_eval_steps)

    def evaluate_and_write(self, split, inference):
        from bertlib.tasks import results
        _, metrics = self.predict(split, inference)
        results.write_metrics(self.settings, "dev", "eval_results", metrics)


def evaluate(batches, vocab_size):
    """Returns the metrics of both heads, {name: number}.

    The published metrics are masked_lm_accuracy, masked_lm_loss, next_sentence_accuracy and
    next_sentence_loss. Two additional metrics are baselines. They are the accuracy of a model that always
    predicts the most frequent masked word, and of a model that always gives the most frequent answer to the
    question about the next sentence. Only sums are kept, so the memory does not depend on the number of
    batches.

    Args:
      batches: iterable of the predictions of `pretraining_head.PretrainingHead` for each batch.
      vocab_size: int.
    """
    counts, hits, loss = np.zeros(vocab_size), 0.0, 0.0  # counts: weights of the masked words, by word
    answers, right, next_sentence_loss = np.zeros(2, np.int64), 0, 0.0
    for batch in batches:
        ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"].astype(np.float64)
        counts += np.bincount(ids.ravel(), weights.ravel(), vocab_size)
        hits += weights[batch["masked_lm_words"] == ids].sum()
        loss += (weights * batch["masked_lm_losses"]).sum()
        labels = batch["next_sentence_labels"].ravel()
        answers += np.bincount(labels, minlength=2)
        right += np.count_nonzero(batch["next_sentence_predictions"] == labels)
        next_sentence_loss += batch["next_sentence_losses"].sum(dtype=np.float64)
    masked, examples = counts.sum() or 1.0, answers.sum()
    return {"masked_lm_accuracy": hits / masked, "masked_lm_baseline": counts.max() / masked,
            "masked_lm_loss": loss / masked, "next_sentence_accuracy": right / examples,
            "next_sentence_baseline": answers.max() / examples,
            "next_sentence_loss": next_sentence_loss / examples}
