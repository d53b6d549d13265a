"""Exports a trained model as a SavedModel: for TensorFlow Serving, and for programs without this project.

    python export.py --model_dir=output/mrpc
    python export.py --model_dir=output/mrpc --text

The first takes ids, tf.Examples or both; the second takes text, which it tokenizes by itself, and needs the
package tensorflow-text wherever it is loaded. Each writes a version into export/ or export_text/ in the
model's directory. docs/howto/serving.md says what goes in, what comes out, and how to serve it.
"""

import os

from absl import flags, logging

from bertlib.command_line import common_flags

from bertlib.output_directory import model_directory
from bertlib.runs import final_export
from bertlib.runs.classification import training_texts
from bertlib.runs.settings import require_file
from bertlib.serving import answers, export_model, export_text, warmup

TEXT_DIRECTORY = "export_text"


def define_flags():
    """Defines the flags of this command."""
    with common_flags.section("Model"):
        flags.DEFINE_string("model_dir", None, "Output directory of a training.")
        flags.DEFINE_enum("task", None, list(answers.TASKS), "What to export, if not what the model was "
                          "trained for: vectors.")
    with common_flags.section("Export"):
        flags.DEFINE_bool("text", False, "Take text, and tokenize in the graph.")
        flags.DEFINE_string("output_dir", None, "Directory of the versions. By default export in model_dir, "
                            "with --text export_text.")
        flags.DEFINE_string("compare_file", None, "With --text: a text a line, on which the graph's tokens "
                            "are compared with the tokenizer's. By default the training data, if it is "
                            "still there.")
        flags.DEFINE_integer("warmup_requests", 1, "Requests of each signature, of growing length, that "
                             "TensorFlow Serving sends itself when it loads the model; 0 for none.",
                             lower_bound=0, upper_bound=warmup.MAX_REQUESTS // 3)


def main(_):
    """Exports."""
    settings = common_flags.read_settings()
    if settings.model_dir is None:
        raise ValueError("--model_dir is required: the output directory of a training.")
    if settings.compare_file is not None:
        if not settings.text:
            raise ValueError("--compare_file is about the tokens of --text: pass both, or none.")
        require_file(settings, "compare_file")
    name = TEXT_DIRECTORY if settings.text else final_export.DIRECTORY
    directory = settings.output_dir or os.path.join(settings.model_dir, name)
    model = model_directory.read(settings.model_dir)
    write = export_text.export if settings.text else export_model.export
    final_export.log(write(model, directory, settings.task, settings.warmup_requests), model)
    if settings.text:
        _compare(settings, model)


def _compare(settings, model):
    """Logs on how many texts the graph's tokens differ from the tokenizer's."""
    try:
        texts = training_texts.read_lines(settings.compare_file) if settings.compare_file else (
            training_texts.read_training_texts(model))
        found = export_text.compare_tokens(model.tokenizer, texts)
    except (OSError, ValueError) as error:
        if settings.compare_file:
            raise
        logging.warning("The graph's tokens were not compared with the tokenizer's on the training data: %s "
                        "Name a file of texts with --compare_file.", error)
        return
    log = logging.warning if found.number else logging.info
    log("The graph's tokens differ from the tokenizer's in %d of %d texts.%s", found.number, found.texts,
        "".join(f"\n  {text!r:.200}\n    {' '.join(ours):.200}\n    {' '.join(theirs):.200}"
                for text, ours, theirs in found.first))
