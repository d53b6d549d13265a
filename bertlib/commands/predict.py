"""Predicts labels, scores, tags, answers, masked words or vectors for lines of text, with a trained model.

    python predict.py --model_dir=output/mrpc --input_file=pairs.tsv --output_file=answers.jsonl
    echo "The house is big." | python predict.py --model_dir=output/cola
    python predict.py --model_dir=output/mrpc --interactive

The model is loaded once. The answers are JSON Lines in the order of the input. If the name of the output file
ends in .csv, the answers are a CSV table. Each answer contains the fields of its input. The output is flushed
whenever no input is waiting. docs/howto/serving.md describes inputs and answers.
"""

import contextlib
import json
import os
import queue
import sys
import threading

from absl import logging

from bertlib.command_line import common_flags

from bertlib import serving
from bertlib.estimator import replica_sync
from bertlib.flag_table import entries, shared
from bertlib.output_directory import output_files
from bertlib.replicas import replica_group
from bertlib.reports import prediction_files
from bertlib.rows import columns, tables
from bertlib.runs import checks, run_record
from bertlib.runs.settings import refuse_directory, require_file, require_model
from bertlib.serving import answer_tables, portable_model, prediction_inputs
from bertlib.system import files, locks, terminal

# Largest number of batches in a chunk. The lines of a chunk are sorted by length before they are cut into
# batches.
_BATCHES = 16
_COLUMNS = "Columns, by default those of the training"  # heading in --help


# The flags of a predictor; serve.py has them, too.
PREDICTOR = entries.section("Model", None, [
    entries.Path("model_dir", None,
                 "Output directory of a training. Instead, you can pass an ONNX or TFLite file that "
                 "export.py wrote, or the directory of such a file."),
    shared.WEIGHTS_TO_USE,
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

ENTRIES = shared.GPUS + PREDICTOR + entries.section("Lines", None, [
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
    shared.CSV_SAFE,
]) + shared.columns(_COLUMNS) + shared.word_columns(_COLUMNS) + shared.REPLICAS


@contextlib.contextmanager
def open_streams(settings):
    """Returns a context manager that yields the stream of the lines (binary) and the stream of the answers
    (text).

    The output file appears only when all answers are written. Only replica 0 writes the output file.
    """
    with contextlib.ExitStack() as stack:
        lines = sys.stdin.buffer
        output = sys.stdout if replica_group.is_first() else stack.enter_context(open(os.devnull, "w"))
        if settings.input_file != "-":
            lines = stack.enter_context(tables.open_table(settings.input_file))
        if settings.output_file != "-" and replica_group.is_first():
            files.make_directories(os.path.dirname(settings.output_file) or ".")
            stack.enter_context(locks.lock_file(settings.output_file))
            partial = stack.enter_context(files.atomic_replacement(settings.output_file))
            compressed = tables.is_compressed(settings.output_file)
            output = stack.enter_context(tables.text_writer(partial, compressed))
        yield lines, output


def chunks_as_they_arrive(items, most, waits=False):
    """Yields lists of 1 to `most` items. If `waits` is false, a list contains only the items that have
    already arrived.

    A thread iterates over the items. If the thread raises an error, this function first yields the items that
    came before the error, and then raises the error.

    Args:
      items: iterable.
      most: int, maximum length of a list.
      waits: bool, whether to wait until a list has its maximum length or the items end. If it is true, the
        batches are the same in each run. So the answers are also the same in each run: in a different batch,
        an answer could be rounded differently.
    """
    waiting = queue.Queue(2 * most)

    def fill():
        # Puts a pair (item, None) into the queue for each item. The last pair is (None, the exception that
        # ended the iteration).
        try:
            for item in items:
                waiting.put((item, None))
            waiting.put((None, StopIteration()))
        except Exception as error:  # noqa: BLE001 (raised below)
            waiting.put((None, error))

    threading.Thread(target=fill, daemon=True).start()
    end = None
    while end is None:
        chunk = []
        item, end = waiting.get()
        with contextlib.suppress(queue.Empty):  # if no further input is waiting, the chunk is complete
            while end is None:
                chunk.append(item)
                if len(chunk) == most:
                    break
                item, end = waiting.get(block=waits)
        if chunk:
            yield chunk
    if not isinstance(end, StopIteration):
        raise end


def answer_chunk(predictor, chunk, table, skip_bad_lines):
    """Answers the inputs of a chunk.

    Args:
      predictor: a `serving.Predictor`.
      chunk: list of `prediction_inputs.Input`, the inputs.
      table: see `_create_table`.
      skip_bad_lines: bool. If true, the answer to an unusable input describes the problem of this input. If
        false, only the inputs before the first unusable input are answered.

    Returns:
      a triple: a list with the text of each answer; the number of these answers that describe an unusable
      input; the unusable input at which answering stopped, or None.
    """
    checked, stop = [], None
    for item in chunk:
        item, prepared = _prepare(predictor, item, table)
        if item.problem is not None and not skip_bad_lines:
            stop = item
            break
        checked.append((item, prepared))
    answers = iter(predictor.answer([prepared for item, prepared in checked if item.problem is None]))
    texts = [table.format(item, next(answers) if item.problem is None else
                          {"error": f"line {item.line}: {item.problem}"}) for item, _ in checked]
    return texts, sum(item.problem is not None for item, _ in checked), stop


def _prepare(predictor, item, table):
    """Tokenizes an input. Returns the `prediction_inputs.Input`, with the problem if it cannot be used, and
    the result of `predictor.prepare`."""
    prepared, problem = None, item.problem
    if problem is None:
        try:
            prepared = predictor.prepare(*item.values)
            problem = table.find_problem(item)
        except ValueError as error:
            problem = str(error)
    return item._replace(problem=problem), prepared


def _create_table(settings, predictor, input_format):
    """Returns an `answer_tables.AnswerTable` for CSV output, or an `answer_tables.AnswerLines` for JSON
    Lines."""
    output_format = settings.output_format
    if output_format is None:
        is_csv = settings.output_file.lower().removesuffix(".gz").endswith(".csv")
        output_format = "csv" if is_csv else "jsonl"
    if output_format == "jsonl":
        return answer_tables.AnswerLines()
    # The first answer determines the columns of the table. In plain text, a later line may have more texts
    # than the first line. So the names of all columns are passed.
    fields = predictor.fields if input_format == "text" else ()
    labels = predictor.answers.columns_of_answers() if fields else ()
    return answer_tables.AnswerTable(fields, settings.skip_bad_lines, settings.csv_safe,
                                     predictor.label_separator, labels)


def _broadcast(replicas, chunks):
    """Broadcasts the chunks that replica 0 reads. On every replica, yields the same lists of
    `prediction_inputs.Input`."""
    for chunk in replica_sync.broadcast_items(
            replicas, ([tuple(item) for item in chunk] for chunk in chunks)):
        yield [prediction_inputs.Input(*item) for item in chunk]


def run(settings, predictor):
    """Answers all lines of the input file.

    Raises:
      ValueError: a line is not usable, see `_refuse`.
      BrokenPipeError: the program that reads the answers has ended.
    """
    answered = skipped = 0
    column_flags = {name: getattr(settings, name) for name in prediction_inputs.COLUMN_FLAGS
                    if settings.is_given(name)}
    reader = predictor.input_reader(column_flags)
    replicas = replica_group.current()
    with open_streams(settings) as (lines, output):
        name = "standard input" if settings.input_file == "-" else settings.input_file
        # From a pipe, no lines are read ahead: the program that writes to the pipe may wait for the answer to
        # a line before it writes the next line.
        is_whole = files.is_remote(settings.input_file) or os.path.isfile(settings.input_file)
        input_format = settings.input_format or prediction_inputs.format_from_name(settings.input_file)
        table = _create_table(settings, predictor, input_format)
        inputs = reader.read(lines, name, input_format, columns.LOOKAHEAD_ROWS if is_whole else 0)
        chunks = chunks_as_they_arrive(inputs, settings.batch_size * _BATCHES, is_whole)
        for chunk in _broadcast(replicas, chunks):
            answers, num_bad, bad_input = answer_chunk(predictor, chunk, table, settings.skip_bad_lines)
            output.write("".join(answers))
            output.flush()
            answered, skipped = answered + len(answers) - num_bad, skipped + num_bad
            if bad_input is not None:
                _refuse(bad_input, name, settings.output_file, answered)
        output.write(table.finish())
        output.flush()
    logging.info("Lines answered: %d%s.", answered, f"; lines that could not be used: {skipped}" if skipped
                 else "")


def _refuse(bad_input, name, output_file, answered):
    """Raises the ValueError for an unusable line. A stream already contains the answers to the lines before
    this line. A file is written only when all lines are answered.

    Args:
      bad_input: the `prediction_inputs.Input`.
      name: name of the input.
      output_file: the value of --output_file.
      answered: number of lines that are answered.
    """
    if output_file != "-" and not files.is_special(output_file):
        written = f"Nothing was written to {output_file}. "
    else:
        written = "The lines before this line are answered. " if answered else ""
    raise ValueError(f"{name}:{bad_input.line}: {bad_input.problem} {written}To write an error instead of "
                     "the answer and continue, pass --skip_bad_lines=true.")


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


def _hash_model_files(directory):
    """Returns {name of a file: its fingerprint} for the files that describe the model and its tokenizer."""
    names = (*output_files.NAMES, output_files.RECORD, portable_model.DESCRIPTION)
    paths = {name: os.path.join(directory, name) for name in names}
    return {name: run_record.hash_files([path])["fingerprint"] for name, path in paths.items()
            if files.exists(path)}


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
    read, written = ({name: [getattr(settings, name)]} if getattr(settings, name) != "-" else {}
                     for name in ("input_file", "output_file"))
    checks.refuse_overwriting(settings, read, written)
    group = replica_group.current()
    check_replicas(settings, group)
    with serving.load(settings.model_dir, settings.task, settings.precision, settings.batch_size,
                      group, settings.weights, settings.engine) as predictor:
        if group:
            directory = portable_model.find(settings.model_dir) or settings.model_dir
            run_record.check_replicas_agree(group, settings, dict(
                _hash_model_files(directory), model=run_record.hash_checkpoint(predictor.checkpoint)))
        if settings.interactive:
            answer_interactively(predictor)
        else:
            run(settings, predictor)
