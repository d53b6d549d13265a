"""Exports a trained model as a SavedModel, for TensorFlow Serving and for programs without this project.

    python export.py --model_dir=output/mrpc
    python export.py --model_dir=output/mrpc --text

The inputs of the first export are token ids, tf.Examples or both. The inputs of the second export are texts,
which the exported graph tokenizes; a program that loads this graph needs the package tensorflow-text. In the
model's directory, the first command writes a new version to export/, the second one to export_text/.
docs/howto/serving.md describes inputs, outputs and serving.
"""

import os

from absl import flags, logging

from bertlib.command_line import common_flags

from bertlib.output_directory import model_directory
from bertlib.runs import checks, final_export
from bertlib.runs.classification import training_texts
from bertlib.runs.settings import require_file
from bertlib.serving import answers, export_model, export_text, warmup

TEXT_DIRECTORY = "export_text"


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Model"):
        flags.DEFINE_string("model_dir", None, "Output directory of a training.")
        flags.DEFINE_enum("task", None, list(answers.TASKS), "Task of the exported model. The default is "
                          "the task for which the model was trained. Every model can also be exported with "
                          "--task=vectors.")
        common_flags.define_weights_flag()
    with common_flags.section("Export"):
        flags.DEFINE_bool("text", False, "Export a model that takes text and tokenizes it in the graph.")
        flags.DEFINE_string("output_dir", None, "Directory of the exported versions. The default is export/ "
                            "in --model_dir; with --text, export_text/ in --model_dir.")
        flags.DEFINE_string("compare_file", None, "File with one text in each line, for --text. The "
                            "command compares the tokens of the exported graph with the tokens of the Python "
                            "tokenizer on these texts. The default is the training data, if it still exists.")
        flags.DEFINE_integer("warmup_requests", 1, "Number of warm-up requests for each signature. "
                             "TensorFlow Serving runs these requests, from the shortest to the longest, when "
                             "it loads the model. 0: no "
                             "warm-up.", lower_bound=0, upper_bound=warmup.MAX_REQUESTS // 3)


def main(_):
    """Exports the model."""
    settings = common_flags.read_settings()
    checks.check_model_dir(settings)
    if settings.compare_file is not None:
        if not settings.text:
            raise ValueError("--compare_file has no effect without --text, because only the export "
                             "of --text contains a tokenizer. Pass --text, or leave --compare_file out.")
        require_file(settings, "compare_file")
    name = TEXT_DIRECTORY if settings.text else final_export.DIRECTORY
    directory = settings.output_dir or os.path.join(settings.model_dir, name)
    model = model_directory.read(settings.model_dir, settings.weights)
    write = export_text.export if settings.text else export_model.export
    final_export.log(write(model, directory, settings.task, settings.warmup_requests), model)
    if settings.text:
        _compare(settings, model)


def _compare(settings, model):
    """Logs for how many texts the tokens of the graph differ from the tokens of the tokenizer, with
    examples."""
    try:
        texts = training_texts.read_lines(settings.compare_file) if settings.compare_file else (
            training_texts.read_training_texts(model))
        differences = export_text.compare_tokens(model.tokenizer, texts)
    except (OSError, ValueError) as error:
        if settings.compare_file:
            raise
        logging.warning("The graph's tokens were not compared with the tokenizer's on the training data: %s "
                        "Name a file of texts with --compare_file.", error)
        return
    log = logging.warning if differences.number else logging.info
    log("The graph's tokens differ from the tokenizer's in %d of %d texts.%s",
        differences.number, differences.texts,
        "".join(f"\n  {text!r:.200}\n    {' '.join(expected):.200}\n    {' '.join(actual):.200}"
                for text, expected, actual in differences.first))
