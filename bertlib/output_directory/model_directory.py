"""An output directory of a training: what model is in it, and what its tokenizer does."""

import os
from typing import Any, NamedTuple

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import output_files, record_fields, tokenizer_files
from bertlib.rows.columns import parse_columns
from bertlib.system import files
from bertlib.tasks.classification.classifier_data import PROCESSORS, get_processor
import modeling
import tokenization


class ModelDirectory(NamedTuple):
    """A trained model.

    path: the directory. kind: what it was trained for, see `output_files.head_kind`. bert_config: a
    `modeling.BertConfig`. checkpoint: the newest weights. tokenizer: a `tokenization.FullTokenizer` or
    `SentencePieceTokenizer`. labels: list of str in the order of the outputs, or None. record: run.json.
    """

    path: str
    kind: str
    bert_config: Any
    checkpoint: str
    tokenizer: Any
    labels: list | None
    record: dict

    def setting(self, name, default=None):
        """Returns what the training had for a flag; if it recorded none, what its version went by, see
        `record_fields.default_in_older_versions`, or else `default`."""
        settings = self.record["settings"]
        if name in settings:
            return settings[name]
        return record_fields.default_in_older_versions(name, self.kind, default)

    @property
    def task(self):
        """The name of the task, such as "mrpc"."""
        return self.record["task"]

    @property
    def processor(self):
        """The processor of the known task that it was trained on; None of other data."""
        if self.kind not in ("classification", "regression") or str(self.task).lower() not in PROCESSORS:
            return None
        processor = get_processor(self.task)
        if processor.language:
            processor.language = self.setting("xnli_language", processor.language)
        return processor

    @property
    def num_texts(self):
        """The texts of an example of the training, 1 or 2; None if that is not known."""
        columns = self.setting("text_column")
        if columns:
            return len(parse_columns(columns))
        return self.processor.num_texts if self.processor else None

    @property
    def max_seq_length(self):
        """Tokens of an input at most."""
        longest = self.bert_config.max_position_embeddings
        return min(self.record["settings"].get("max_seq_length", longest), longest)

    @property
    def do_lower_case(self):
        """Whether text is lower-cased."""
        return bool(self.record.get("do_lower_case"))


def read(path):
    """Returns the `ModelDirectory` of an output directory.

    Raises:
      ValueError, OSError: it is none, or a file of it is damaged.
    """
    if not files.is_directory(path):
        raise NotADirectoryError(f"{path}: there is no such directory.")
    checkpoint, record = checkpoint_formats.latest_checkpoint(path), output_files.read_record(path)
    config = os.path.join(path, output_files.CONFIG)
    missing = ("checkpoint" if checkpoint is None else output_files.RECORD if record is None else
               None if files.exists(config) else output_files.CONFIG)
    if missing:
        raise ValueError(f"{path} is no output directory of a training of this version: it has no {missing}. "
                         "Name one; a training that goes on there writes what is missing.")
    output_files.check_trained(record, checkpoint)
    output_files.check_vocabulary(path, record)
    bert_config = modeling.BertConfig.from_dict(files.read_json_object(config))
    output_files.check_config(config, bert_config)
    return ModelDirectory(path, output_files.head_kind(record), bert_config, checkpoint,
                          _tokenizer(path, record, bert_config), record["labels"], record)


def _tokenizer(path, record, bert_config):
    """The tokenizer that the files of a training describe.

    Raises:
      ValueError: there is no vocabulary, or it does not fit the model.
    """
    said = tokenizer_files.read([path])
    options = {name: value for name, (value, _) in said.options.items()}
    lower = options.pop("do_lower_case", record.get("do_lower_case"))
    never_split = tokenization.SPECIAL_TOKENS if record["settings"].get("protect_special_tokens") else ()
    vocabulary, pieces = (os.path.join(path, name)
                          for name in (output_files.VOCABULARY, output_files.SENTENCE_PIECES))
    if files.exists(pieces):
        return tokenization.SentencePieceTokenizer(pieces, lower, never_split, bert_config.vocab_size)
    if not files.exists(vocabulary):
        raise ValueError(f"{path} has no {output_files.VOCABULARY} or {output_files.SENTENCE_PIECES}: the "
                         "training saw no text. Put the vocabulary of its data there.")
    tokenization.check_vocab(vocabulary, bert_config.vocab_size)
    return tokenization.FullTokenizer(vocabulary, lower, (*never_split, *tokenizer_files.added_tokens(said)),
                                      **options)
