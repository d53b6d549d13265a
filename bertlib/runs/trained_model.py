"""Reads the trained model in an output directory, with its configuration, labels and tokenizer."""

from typing import Any, NamedTuple

from absl import logging

from bertlib.checkpoints.bert_config import BertConfig
from bertlib.data import tables
from bertlib.data.columns import parse_columns
from bertlib.runs import best_weights, file_names, model_files, record_format, registry, tokenizer_files
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import files


class TrainedModel(NamedTuple):
    """A trained model.

    Attributes:
      path: the directory.
      bert_config: a `modeling.BertConfig`.
      checkpoint: path of the weights.
      tokenizer: a `tokenization.FullTokenizer` or `tokenization.SentencePieceTokenizer`.
      labels: list of str in the order of the outputs, or None.
      record: dict, the content of run.json.
    """

    path: str
    bert_config: Any
    checkpoint: str
    tokenizer: Any
    labels: list | None
    record: dict

    def setting(self, name, default=None):
        """Returns the value that a flag had in the training.

        Args:
          name: the flag.
          default: the result if neither the record nor the table of flags has a value for the flag.
        """
        settings = self.record["settings"]
        if name in settings:
            return settings[name]
        entries = record_format.find_entries(name, registry.find_target(self.record["task_type"]),
                                             self.record.get("command"))
        return default if not entries or entries[0].default is None else entries[0].default

    @property
    def target(self):
        """What the model predicts, see `bertlib.tasks.target`."""
        return registry.find_target(self.record["task_type"]).with_labels(self.labels, self.setting)

    @property
    def task_name(self):
        """The name of the task, such as "mrpc"."""
        return self.record["task"]

    @property
    def processor(self):
        """The processor of the task. None in two cases: the model was trained on the user's own data, or it
        is neither a classifier nor a regression model."""
        return self.target.answers().find_processor(self)

    @property
    def num_texts(self):
        """The number of texts in an example of the training, 1 or 2; None if it is unknown."""
        columns, module = self.setting("text_column"), self.record.get("task_module")
        if module:
            return module["texts"]
        if columns:
            return len(parse_columns(columns))
        return self.processor.num_texts if self.processor else None

    @property
    def has_named_columns(self):
        """True if the columns of the training file have names and no numbers, as in JSON Lines."""
        return tables.is_json_lines(self.record.get("files", {}).get("train_file"))

    @property
    def max_seq_length(self):
        """The largest number of tokens of an input."""
        return self.record["settings"].get("max_seq_length", self.bert_config.max_position_embeddings)

    @property
    def do_lower_case(self):
        """True if texts are lower-cased."""
        return bool(self.record["do_lower_case"])


def read(path, weights=best_weights.BEST):
    """Returns the `TrainedModel` of an output directory.

    Args:
      path: the directory.
      weights: "last" for the weights of the newest checkpoint; "best" for the best weights. If the training
        did not keep its best weights (--keep_best), "best" has the same meaning as "last".

    Raises:
      NotADirectoryError: the directory does not exist.
      ValueError, OSError: a file of the training is missing or damaged.
    """
    if not files.is_directory(path):
        raise NotADirectoryError(f"{path}: there is no such directory.")
    training = OutputDirectory(path).directory_of_weights(weights)
    training.refuse_lost_checkpoints(path)
    path, checkpoint, record = training.path, training.latest_checkpoint, training.record
    missing = ("checkpoint" if checkpoint is None else file_names.RECORD if record is None else
               None if files.exists(training.join(file_names.BERT_CONFIG)) else file_names.BERT_CONFIG)
    if missing:
        advice = ("Run the command of the training again, with --do_train=true and this --output_dir: it "
                  "trains only the steps that are left, if any, and writes the missing files."
                  if checkpoint else
                  "Pass another directory. For vectors of a pretrained model, pass "
                  f"--init_checkpoint={path} to extract_features.py, or use bertlib.keras.BertEncoder. To "
                  "predict with a model of Hugging Face, pass --do_predict=true and "
                  f"--init_checkpoint={path} to the command of its task, such as run_classifier.py.")
        raise ValueError(f"{path} has no {missing}, so it is not the output directory of a training with "
                         f"this version. {advice}")
    model_files.check_trained_weights(record, checkpoint)
    return read_with_weights(training, checkpoint)


def read_with_weights(training, weights):
    """Returns the `TrainedModel` of a directory with run.json, bert_config.json and the vocabulary.

    Args:
      training: the `OutputDirectory`.
      weights: path of the weights.

    Raises:
      ValueError, OSError: a file is missing or damaged, or contradicts run.json.
    """
    record, config = training.record, training.join(file_names.BERT_CONFIG)
    model_files.check_trained_vocabulary(training)
    bert_config = BertConfig.from_dict(files.read_json_object(config))
    model_files.check_trained_config(config, bert_config, training)
    return TrainedModel(
        training.path, bert_config, weights, _tokenizer(training, bert_config), record["labels"], record)


def _tokenizer(training, bert_config):
    """Returns the tokenizer of an output directory.

    Args:
      training: the `OutputDirectory`, which has a record.
      bert_config: a `modeling.BertConfig`.

    Raises:
      ValueError: there is no vocabulary, or the vocabulary does not fit the model.
    """
    path, record, tokenizer_settings = training.path, training.record, tokenizer_files.read([training.path])
    lower, _ = tokenizer_settings.options.get("do_lower_case", (record["do_lower_case"], None))
    if lower is None:  # a pre-training on records without a manifest does not know the letter case
        lower = True
        logging.warning("%s does not name the letter case of the training. Texts are converted to lower "
                        "case, which is the default of all commands. If the model is cased, write "
                        "\"do_lower_case\": false into %s.", training.record_path,
                        training.join(tokenizer_files.TOKENIZER_CONFIG))
    vocabulary, pieces = map(training.join, (file_names.VOCABULARY, file_names.SENTENCE_PIECES))
    has_pieces = files.exists(pieces)
    if not (has_pieces or files.exists(vocabulary)):
        raise ValueError(f"{path} contains neither {file_names.VOCABULARY} nor "
                         f"{file_names.SENTENCE_PIECES}, because the model was trained on TFRecords, not "
                         f"on text. Copy the vocabulary of these records to {path}.")
    return tokenizer_files.create_tokenizer(
        tokenizer_settings, pieces if has_pieces else vocabulary, has_pieces, lower,
        record["settings"].get("protect_special_tokens"), bert_config.vocab_size)
