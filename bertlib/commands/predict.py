"""Predicts labels, scores, tags, answers, masked words or vectors for lines of text, with a trained model.

    python predict.py --model_dir=output/mrpc --input_file=pairs.tsv --output_file=answers.jsonl
    echo "The house is big." | python predict.py --model_dir=output/cola
    python predict.py --model_dir=output/mrpc --interactive

The model is loaded once. The answers are JSON Lines in the order of the input. If the name of the output file
ends in .csv, the answers are a CSV table. Each answer contains the fields of its input. The output is flushed
whenever no input is waiting. docs/howto/serving.md describes inputs and answers.
"""

import json

from bertlib.commands import common_flags

from bertlib import serving
from bertlib.data import prediction_files
from bertlib.runs import checks, entries, record_content
from bertlib.runs.input_paths import refuse_directory, require_file, require_model
from bertlib.serving import line_answers, portable_model, prediction_inputs
from bertlib.system import replica_group, terminal
from bertlib.tasks import shared_flags

_COLUMNS = "Columns, by default those of the training"  # heading in --help


# The flags of a predictor; serve.py has them, too.
PREDICTOR = entries.section("Model", None, [
    entries.Path("model_dir", None,
                 "Output directory of a training. Instead, you can pass an ONNX or TFLite file that "
                 "export.py wrote, or the directory of such a file."),
    shared_flags.WEIGHTS_TO_USE,
    entries.Choice("task", None, list(serving.TASKS),
                   "Task of the prediction. The default is the task for which the model was trained. For a "
                   "model that was only pre-trained, the default is --task=masked_words. --task=vectors "
                   "works with every model."),
    entries.Choice("precision", "fp32", ["fp32", "bf16"], "Number format of the encoder's computation."),
    entries.Choice("engine", None, list(serving.ENGINES),
                   "Program that runs the model. onnx: ONNX Runtime, with the newest export in export_onnx/ "
                   "of --model_dir. The default is onnx if --model_dir is an ONNX file, otherwise "
                   "tensorflow."),
    entries.Integer("batch_size", serving.BATCH_SIZE,
                    "Batch size: number of texts. Each window of a long text counts as one text.", least=1),
])

ENTRIES = shared_flags.GPUS + PREDICTOR + entries.section("Lines", None, [
    entries.Path("input_file", "-", "Input file. By default (-), the command reads the standard input."),
    entries.Path("output_file", "-",
                 "Output file. By default (-), the command writes to the standard output."),
    entries.Choice("input_format", None, list(prediction_inputs.FORMATS),
                   "Format of the input. By default, the command derives it from the file extension. If the "
                   "extension is unknown, the format is 'text': each line contains one text, or two texts "
                   f"with{prediction_inputs.PAIR}between them."),
    entries.Choice("output_format", None, list(prediction_files.FORMATS),
                   "Format of the answers: a CSV table or JSON Lines. The default is csv if the name of the "
                   "output file ends in .csv or .csv.gz, otherwise jsonl."),
    entries.Switch("skip_bad_lines", False,
                   "Answer an unusable line with an error message and continue. By default, the command "
                   "stops at such a line."),
    entries.Switch("interactive", False, "Ask for the texts on the terminal, one after the other."),
    shared_flags.OUTPUT_DELIMITER,
    shared_flags.OUTPUT_DECIMAL,
    shared_flags.CSV_SAFE,
]) + shared_flags.columns(_COLUMNS) + shared_flags.word_columns(_COLUMNS) + shared_flags.REPLICAS


def answer_interactively(predictor):
    """Asks for texts on the terminal and answers them until the input ends."""
    while True:
        try:
            values = [input(f"{name}: ") for name in predictor.fields]
        except EOFError:
            return print()
        # Only blank answers at the end are left out. Otherwise, the texts after a blank answer would move one
        # place forward: the fourth ending of a question would become the third.
        while len(values) > predictor.required and not values[-1]:
            values.pop()
        try:
            result = predictor(*values)
        except ValueError as error:
            print(terminal.printable(str(error)))
        else:
            print(terminal.printable(json.dumps(result, ensure_ascii=False, indent=2)))


def check_replicas(settings, group):
    """Checks that the flags of replicas can be used with the chosen input and output.

    Raises:
      ValueError: --interactive is given for several processes; or --max_restarts is given, and the command
        reads the standard input or writes the standard output.
    """
    if settings.interactive and group:
        raise ValueError(f"--interactive asks for one text at a time, so {group.count} processes cannot "
                         "share the work. Leave --num_replicas out.")
    if settings.max_restarts and "-" in (settings.input_file, settings.output_file):
        raise ValueError(f"--max_restarts={settings.max_restarts} needs --input_file and --output_file. "
                         "Without these files, the run could not restart: it could not read the standard "
                         "input again, and could not take back lines of the standard output.")


def main(_):
    """Loads the model and answers the lines."""
    settings = common_flags.read_settings("model_dir")
    require_model(settings)
    if settings.input_file != "-":
        require_file(settings, "input_file")
    refuse_directory(settings)
    line_answers.find_output_format(settings)
    inputs, outputs = ({name: [getattr(settings, name)]} if getattr(settings, name) != "-" else {}
                       for name in ("input_file", "output_file"))
    checks.refuse_overwriting(settings, inputs, outputs)
    group = replica_group.current()
    check_replicas(settings, group)
    with serving.load(settings.model_dir, settings.task, settings.precision, settings.batch_size,
                      group, settings.weights, settings.engine) as predictor:
        if group:
            directory = portable_model.find(settings.model_dir) or settings.model_dir
            record_content.check_replicas_agree(group, settings, dict(
                portable_model.hash_files(directory),
                model=record_content.hash_checkpoint(predictor.checkpoint)))
        if settings.interactive:
            answer_interactively(predictor)
        else:
            line_answers.answer_file(settings, predictor)
