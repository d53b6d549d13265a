"""Exports a trained model as a SavedModel, or as an ONNX or TFLite file.

    python export.py --model_dir=output/mrpc
    python export.py --model_dir=output/mrpc --text
    python export.py --model_dir=output/mrpc --format=onnx --quantize=int8

Each command writes a new version to a folder in the model's directory. The first command writes a SavedModel
to export/. The inputs of this SavedModel are token ids, tf.Examples or both. The second command writes a
SavedModel to export_text/. Its inputs are texts, which the exported graph tokenizes. A program that loads
this graph needs the package tensorflow-text. docs/howto/serving.md describes the inputs and outputs of a
SavedModel, and how to serve it. The third command writes an ONNX file to export_onnx/; see
docs/howto/onnx.md.

The second and the third command also compare the answers of the export with the answers of the model in
TensorFlow.
"""

import os

from bertlib.commands import common_flags

from absl import logging

from bertlib import serving
from bertlib.reports import answer_differences
from bertlib.runs import entries, registry, trained_model
from bertlib.runs.input_paths import require_file, require_model
from bertlib.serving import export_portable, export_text, portable_model
from bertlib.tasks import data_splits, export_model, serving_warmup, shared_flags

TEXT_DIRECTORY = "export_text"
# TensorFlow Serving serves the newest version in a directory. So the versions that compute vectors are
# written to a separate directory, and never replace the versions for the task of the training.
SAVED_MODEL = "saved_model"


ENTRIES = entries.section("Model", None, [
    entries.Path("model_dir", None, "Output directory of a training."),
    entries.Choice("task", None, list(registry.ANSWERS),
                   "Task of the exported model. The default is the task for which the model was trained. "
                   "Every model can also be exported with --task=vectors."),
    shared_flags.WEIGHTS_TO_USE,
]) + entries.section("Export", None, [
    entries.Choice("format", SAVED_MODEL, [SAVED_MODEL, *portable_model.FORMATS],
                   "Format of the export. saved_model: TensorFlow's SavedModel. onnx: an ONNX file, for ONNX "
                   "Runtime. tflite: a TFLite file, for classification, regression and multi-label "
                   "classification."),
    entries.Choice("quantize", None, ["int8"],
                   "Number format of the weights in matrix products, for --format=onnx or --format=tflite. "
                   "By default, the weights are in fp32."),
    entries.Switch("text", False, "Export a model that takes text and tokenizes it in the graph."),
    entries.Path("output_dir", None,
                 "Directory of the exported versions. The default is a folder in --model_dir: export/ for a "
                 "SavedModel, export_text/ with --text, export_vectors/ with --task=vectors, "
                 "export_text_vectors/ with both flags, export_onnx/ with --format=onnx, and export_tflite/ "
                 "with --format=tflite."),
    entries.Path("compare_file", None,
                 "With --text, --format=onnx or --format=tflite: input file in the form that predict.py "
                 "reads. The command compares the answers of the exported model with the answers of the "
                 "model. The default is the development set, if it still exists."),
    entries.Integer("compare_examples", 1000,
                    "Largest number of examples for the comparison of answers. If there are more examples, "
                    "the command compares examples that are evenly spaced in the data.", least=1),
    entries.Integer("warmup_requests", 1,
                    "Number of warm-up requests for each signature. TensorFlow Serving runs these requests, "
                    "from the shortest to the longest, when it loads the model. 0: no warm-up requests.",
                    least=0, most=serving_warmup.MAX_REQUESTS // 3),
])


def main(_):
    """Exports the model. If the export answers texts or is a file, compares its answers with the answers of
    the model."""
    settings = common_flags.read_settings("model_dir")
    require_model(settings)
    is_file = settings.format != SAVED_MODEL
    _check_flags(settings, is_file)
    model = trained_model.read(settings.model_dir, settings.weights)
    if not (is_file or settings.text):
        _export(settings, model, is_file)
        return
    with serving.load(settings.model_dir, settings.task, weights=settings.weights) as predictor:
        inputs, labels, source = _inputs(settings, model, predictor)
        path = _export(settings, model, is_file)
        answers = _answer(predictor, inputs)
    if not inputs:
        return
    if is_file:
        with serving.load(path) as exported_predictor:
            exported_answers = _answer(exported_predictor, inputs)
    else:
        exported_answers = export_text.answer(path, inputs, predictor.answers)
    title = f"{portable_model.FORMATS[settings.format].TITLE} file" if is_file else "SavedModel"
    logging.info("The %s compared with the model in TensorFlow (fp32), on %s: %s.", title, source,
                 answer_differences.compare(answers, exported_answers, labels))


def _answer(predictor, inputs):
    return predictor.answer([predictor.prepare(*texts) for texts in inputs])


def _check_flags(settings, is_file):
    """Raises a ValueError if flags exclude each other, and an OSError if --compare_file is not a file."""
    formats = " or ".join(f"--format={name}" for name in portable_model.FORMATS)
    # {flag: (whether it has an effect, the flags that it needs)}
    needs = {"text": (not is_file, f"--format={SAVED_MODEL}"),
             "warmup_requests": (not is_file, f"--format={SAVED_MODEL}"),
             "quantize": (is_file, formats),
             **dict.fromkeys(("compare_file", "compare_examples"),
                             (is_file or settings.text, f"--text, or {formats}"))}
    for name, (has_effect, requirement) in needs.items():
        is_passed = settings.is_given(name) and getattr(settings, name) is not False
        if is_passed and not has_effect:
            raise ValueError(f"--{name} needs {requirement}. Pass {requirement}, or leave --{name} out.")
    if settings.compare_file is not None:
        require_file(settings, "compare_file")


def _export(settings, model, is_file):
    """Writes the export, and returns its directory."""
    if is_file:
        directory = portable_model.default_directory(settings.model_dir, settings.format)
        path = export_portable.export(model, settings.output_dir or directory, settings.format, settings.task,
                                      settings.quantize == "int8")
    else:
        name = TEXT_DIRECTORY if settings.text else export_model.DIRECTORY
        name += registry.find_answers(settings.task).folder_suffix if settings.task else ""
        write = export_text.export if settings.text else export_model.export
        path = write(model, settings.output_dir or os.path.join(settings.model_dir, name), settings.task,
                     settings.warmup_requests)
    export_model.log(path, model)
    return path


def _inputs(settings, model, predictor):
    """Returns the inputs for a comparison.

    The inputs are read from --compare_file. Without this flag, they are read from the development set of the
    training.

    Returns:
      three values. The first is a list of at most --compare_examples inputs, each a tuple of texts. The list
      is empty if the development set cannot be read. The second is a list of their correct labels, or None if
      a label is unknown or the task is not classification. The third is a name of their source for the log.

    Raises:
      ValueError, OSError: no line of --compare_file can be used.
    """
    if settings.compare_file:
        source = settings.compare_file
        examples = [(item.values, None) for item in predictor.read(source) if item.problem is None]
    else:
        source = "the development set"
        try:
            examples = data_splits.read_dev_set(model)
        except (OSError, ValueError) as error:
            logging.warning("The answers are not compared, because the development set cannot be read: %s "
                            "Name a file with --compare_file.", error)
            return [], None, source
    # If a tagger is exported for another task, such as vectors, each input must be a text.
    if not predictor.answers.takes_words:
        examples = [(tuple(map(export_text.join_words, texts)), label) for texts, label in examples]
    usable_examples = [(texts, label) for texts, label in examples if _is_usable(predictor, texts)]
    if not usable_examples:
        raise ValueError(f"No example in {source} can be used for the comparison. Name another file with "
                         "--compare_file.")
    inputs, labels = zip(*usable_examples[::-(-len(usable_examples) // settings.compare_examples)])
    has_labels = predictor.answers.has_label and None not in labels
    return list(inputs), list(labels) if has_labels else None, source


def _is_usable(predictor, texts):
    """Returns whether the predictor can answer an input. For example, it cannot answer an empty text."""
    try:
        predictor.prepare(*texts)
    except ValueError:
        return False
    return True
