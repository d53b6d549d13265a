"""Defines the names of the files in an output directory that describe the model.

These files are the configuration, the vocabulary, the tokenizer settings and the labels. A training with
--dev_fraction also has the file dev_rows.txt. A training with --task_module also has the file task_module.py.
`model_files` writes them. `record_format` describes run.json.
"""

from bertlib.runs import tokenizer_files

BERT_CONFIG, VOCABULARY, SENTENCE_PIECES, LABELS = "bert_config.json", "vocab.txt", "spm.model", "labels.txt"
# {format of weights: name of the configuration beside them}.
CONFIGS = {"tensorflow": BERT_CONFIG, "hugging_face": "config.json"}
# {flag of a vocabulary: name of its file in the output directory}.
VOCABULARIES = {"vocab_file": VOCABULARY, "spm_model_file": SENTENCE_PIECES}
MODEL_FILES = (BERT_CONFIG, VOCABULARY, SENTENCE_PIECES, tokenizer_files.TOKENIZER_CONFIG, LABELS)
# Name of the file that lists the development set of --dev_fraction.
DEV_ROWS = "dev_rows.txt"
# Name of the file in the output directory to which the file of --task_module is copied.
TASK_MODULE = "task_module.py"
# Name of the file with a table of the skipped lines (--skip_bad_lines=true).
SKIPPED_LINES = "skipped_lines.csv"
# Each of these flags may name a file that an earlier training wrote to --output_dir. The new training then
# writes the same content to this file again.
FILE_FLAGS = ("bert_config_file", "vocab_file", "spm_model_file", "task_module")
# Names of more files that a training writes, but only if certain flags are set. See `run_record.RunRecord`.
FILES_OF_SOME_FLAGS = (DEV_ROWS, TASK_MODULE)
RECORD, SWEEP_RECORD, REPRODUCTION = "run.json", "sweep.json", "reproduction.json"
# Name of the file that describes the evaluated model in a --results_dir without run.json.
EVALUATED = "evaluated_model.json"
