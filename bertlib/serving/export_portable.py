"""Exports a trained model as an ONNX or TFLite file. `portable_model` lists the files of such an export, and
reads them."""

import os

from bertlib.estimator import saved_model
from bertlib.runs import output_directory, registry
from bertlib.serving import export_onnx, export_tflite, portable_model
from bertlib.system import files
from bertlib.tasks import answers, export_model

# {name of a format: module whose function `write` writes the model's file}.
_WRITERS = {"onnx": export_onnx, "tflite": export_tflite}


def export(model, directory, file_format, task=None, quantize=False):
    """Exports a model as an ONNX or TFLite file. The directory of the new export gets its final name only
    when it is complete and a prediction with the exported model has succeeded.

    Args:
      model: a `trained_model.TrainedModel`.
      directory: the directory of all exports. The new export is written to a new subdirectory.
      file_format: a key of `FORMATS`.
      task: name of the task; None for the task that the model was trained for. See `answers.choose_task`.
      quantize: whether the weights of matrix products are stored in int8.

    Returns:
      the directory of the new export.

    Raises:
      ValueError, OSError: the format does not support the task or the graph of the model, the weights are
        damaged, or the directory cannot be written.
      ImportError: a package is not installed.
    """
    task_answers, format_module = answers.create(model, task), portable_model.FORMATS[file_format]
    if file_format not in task_answers.formats:
        tasks = ", ".join(name for name in registry.ANSWERS
                          if file_format in registry.find_answers(name).formats)
        raise ValueError(f"--format={file_format} is for the tasks {tasks}, but the task "
                         f"of this export is {task_answers.task}. Export with --format=saved_model.")
    files.require_directory(directory, directory)
    with saved_model.new_export_dir(directory) as (temporary, final):
        path = os.path.join(temporary, format_module.FILE)
        _WRITERS[file_format].write(model, task_answers, quantize, path)
        exported_model = format_module.Model(path)
        exported_model(export_model.warmup_rows(model, task_answers.input_names, 1))
        exported_model.close()
        export_model.copy_files(model, temporary)
        evaluation = output_directory.find_evaluation(model.path)
        if evaluation:
            files.write_bytes(os.path.join(temporary, output_directory.EVALUATION),
                              files.read_bytes(evaluation.join(output_directory.EVALUATION)))
        files.write_json(os.path.join(temporary, portable_model.DESCRIPTION), {
            "format": portable_model.DESCRIPTION_FORMAT, "file_format": file_format,
            "task": task_answers.task, "int8": quantize, "weights": portable_model.hash_weights(model),
            "files": portable_model.hash_directory(temporary)})
    return os.fsdecode(final)
