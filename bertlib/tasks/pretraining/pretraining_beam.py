"""Makes pre-training records with Apache Beam. The work is done by the workers of a Beam runner. The workers
can run on other machines.

    files → numbers of documents → parts of blocks --group by block--> a file with the records of each block

The command reads the files of the blocks, and writes their records into the output files.

A block is the unit of work, as in `pretraining_stream`. The documents of a block, the random numbers used for
the block and the positions of its records depend only on the positions of the documents in the text. So the
output does not depend on the number of workers, or on the bundles into which Beam divides the work. If Beam
repeats a failed bundle, the output is the same, too.

Apache Beam (https://beam.apache.org) is loaded when a `BeamRunner` is created. Beam does not send the code
of a function to the workers. It sends only the names of the function and of its module, and the workers
import the module. All functions that the workers run are in this module. Importing this module does not load
TensorFlow.
"""

import builtins
import contextlib
import functools
import glob
import io
import itertools
import json
import logging
import os
import uuid

from bertlib.data import corpus, tfrecord_files
from bertlib.system import files, quiet_tensorflow

# Part of the names of temporary files. The name of a temporary file begins with "<first output file>.beam-".
_TEMPORARY_SUFFIX = ".beam-"
# The local runner of Beam that is written in Python. Beam's default local runner is not used, because it
# would download a program that is written in Go.
_LOCAL_RUNNER = "FnApiRunner"
_LOCAL_RUNNER_NAMES = ("direct", "directrunner", "fnapi", "fnapirunner")
_TENSORFLOW_ERRORS = "tensorflow.python.framework.errors_impl."


def _beam():
    """Returns the module apache_beam.

    Raises:
      ImportError: Apache Beam is not installed.
    """
    try:
        with _without_logging():  # hides the list of missing optional packages
            # The import is here and not at the top, because it takes about one second and is needed only if
            # the command uses Beam.
            import apache_beam
            import apache_beam.options.pipeline_options
            import apache_beam.runners.runner
    except ImportError as error:
        raise ImportError("Runners of Apache Beam need the package apache-beam, which cannot be imported "
                          f"({error}). Install it with `pip install -r requirements-beam.txt`.") from error
    return apache_beam


class BeamRunner:
    """A runner of Apache Beam with its options. `pretraining_stream` makes records on the workers of this
    runner.

    The local runner works in memory, with one worker. With several workers, it would open ports to other
    machines.
    """

    def __init__(self, runner, options=()):
        """Creates a cluster, and checks the names of the runner and its options.

        Args:
          runner: name of the runner, such as "DirectRunner".
          options: list of str, the options of Beam, such as "name=value" or "name".

        Raises:
          ValueError: the runner or an option does not exist, or an option has an invalid value.
          ImportError: Apache Beam, or a package that the runner needs, is not installed.
        """
        self._beam = _beam()
        self._is_local = runner.lower() in _LOCAL_RUNNER_NAMES
        self._name = _LOCAL_RUNNER if self._is_local else runner
        self._flags = [f"--{option.strip().lstrip('-')}" for option in options]
        try:
            instance = self._runner()
        except (ValueError, TypeError, AttributeError, ModuleNotFoundError):
            known = self._beam.options.pipeline_options.StandardOptions.KNOWN_RUNNER_NAMES
            raise ValueError("Apache Beam has no runner with this name. Its runners are "
                             f"{', '.join(known)}.") from None
        # A runner with a job server sends its options to the server, which may know more options than Beam.
        self._check_options(takes_unknown=hasattr(instance, "create_job_service"))

    def _runner(self):
        return self._beam.runners.runner.create_runner(self._name)

    def _check_options(self, takes_unknown):
        """Raises a ValueError if an option is not valid.

        Args:
          takes_unknown: whether the runner accepts options that Beam does not know.
        """
        stderr = io.StringIO()
        try:
            with contextlib.redirect_stderr(stderr), _without_logging():
                given = self._options().get_all_options(retain_unknown_options=True)
                known = self._options().get_all_options()
        except SystemExit:
            problem = stderr.getvalue().strip().rpartition("error: ")[2]
            raise ValueError(f"Apache Beam does not accept these options: {problem}.") from None
        if self._is_local and known["direct_running_mode"] != "in_memory":
            raise ValueError(f"direct_running_mode={known['direct_running_mode']} would open ports to other "
                             "machines. Leave this option out. To use several processes of this machine, "
                             "pass --num_workers without --beam_runner.")
        unknown = sorted(set(given) - set(known))
        if unknown and not takes_unknown:
            raise ValueError(f"Apache Beam has no option {', '.join(unknown)}. Write options as name=value, "
                             "with commas between them.")

    def _options(self):
        return self._beam.options.pipeline_options.PipelineOptions(self._flags)

    # --- Pipelines ---------------------------------------------------------------------------------------

    def survey(self, input_files, tokenizer, output_file):
        """Reads all input once.

        Args:
          input_files: list of paths, which the workers must be able to read.
          tokenizer: an object with `tokenize(text)`.
          output_file: path of the first output file. The workers write temporary files in its directory.

        Returns:
          list of `corpus.Survey`, one for each file.

        Raises:
          OSError: a file cannot be read, or its text is not UTF-8.
          RuntimeError: the pipeline failed.
        """
        def build(pipeline):
            return (pipeline | "Files" >> self._beam.Create(list(enumerate(input_files)))
                    | "Spread files" >> self._beam.Reshuffle()
                    | "Survey" >> self._beam.Map(_survey_file, tokenizer))

        surveys = []
        for _, counts, problem in sorted(self._results(build, output_file)):
            if problem:
                raise OSError(problem)
            surveys.append(corpus.Survey(*counts))
        return surveys

    def make_blocks(self, input_files, documents, tokenizer, make_block, size, output_file):
        """Makes all records on the workers. Yields (records, {name: count}) for each block, in their order.

        Args:
          input_files: list of paths, which the workers must be able to read.
          tokenizer: an object with `tokenize(text)`.
          output_file: path of the first output file.
          documents: list of the number of documents in each file, computed by `survey`.
          make_block: picklable function that takes a pair (index of a block, documents) and returns a pair
            (records, {name: count}).
          size: number of documents in a block.

        Raises:
          OSError: a file cannot be read or written.
          RuntimeError: the pipeline failed.
          ChildProcessError: documents or blocks are missing in the output.
        """
        beam = self._beam
        ends = list(itertools.accumulate(documents))
        inputs = [(path, end - count, end) for path, count, end in zip(input_files, documents, ends)]
        blocks = corpus.count_blocks(ends[-1], size)

        def build(pipeline):
            return (pipeline | "Files" >> beam.Create(inputs) | "Spread files" >> beam.Reshuffle()
                    | "Cut into blocks" >> beam.FlatMap(functools.partial(
                        _parts_of_file, tokenizer=tokenizer, size=size, blocks=blocks))
                    | "Blocks" >> beam.GroupByKey()
                    | "Make records" >> beam.Map(_write_block, make_block, output_file))

        results = self._results(build, output_file)
        try:
            read = sum(statistics["documents"] for _, _, statistics in results)
            if (read, len(results)) != (ends[-1], blocks):
                raise ChildProcessError(f"The pipeline lost documents: it read {read} of {ends[-1]} "
                                        f"documents, and made {len(results)} of {blocks} blocks. Run the "
                                        "command again.")
            for _, path, statistics in sorted(results):
                yield tfrecord_files.read_records(path), statistics
        finally:
            _remove_temporary_files(output_file)

    def _results(self, build, output_file):
        """Runs a pipeline. Returns a list of the elements in the last collection of the pipeline.

        Args:
          build: function that takes a new pipeline, adds the steps to it, and returns the last collection.
          output_file: path of the first output file.
        """
        _remove_temporary_files(output_file)
        path = _temporary_path(output_file)
        try:
            with _shorten_errors(), _without_logging() if self._is_local else contextlib.nullcontext():
                pipeline = self._beam.Pipeline(self._runner(), self._options())
                (build(pipeline) | "To one place" >> self._beam.Map(lambda result: (0, result))
                 | "All" >> self._beam.GroupByKey() | "Report" >> self._beam.Map(_write_elements, path))
                pipeline.run().wait_until_finish()
        except BaseException:
            _remove_temporary_files(output_file)
            raise
        results = json.loads(files.read_bytes(path))
        files.remove(path)
        return results


def _temporary_path(output_file):
    """Returns a new path. If Beam repeats the work of a worker, each attempt writes to a different path."""
    return f"{output_file}{_TEMPORARY_SUFFIX}{uuid.uuid4().hex}"


def _remove_temporary_files(output_file):
    """Removes all temporary files. Killed runs and repeated attempts of a worker leave such files."""
    folder, name = os.path.split(output_file)
    for temporary in files.find_files(os.path.join(folder, f"{glob.escape(name)}{_TEMPORARY_SUFFIX}*")):
        files.remove(temporary)


@contextlib.contextmanager
def _without_logging():
    """Returns a context manager that turns logging off in its block."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _shorten_errors():
    """Returns a context manager that shortens the messages of errors from workers. It removes the traceback
    of the worker and the text that Beam has added."""
    try:
        yield
    except Exception as error:
        last = (str(error).strip().splitlines() or [""])[-1]
        message, is_from_worker, _ = last.partition(" [while running '")
        if not is_from_worker and isinstance(error, RuntimeError):
            raise ChildProcessError(f"The pipeline failed: {last}. If memory ran out, use fewer workers, or "
                                    "a smaller --shuffle_buffer_documents.") from error
        if not isinstance(error, (ValueError, OSError)):
            name, _, message = message.partition(": ")
            kind = getattr(builtins, name, None)
            is_expected = isinstance(kind, type) and issubclass(kind, (ValueError, OSError))
            if not is_expected and not name.startswith(_TENSORFLOW_ERRORS):
                raise
        raise OSError(message) from error


# --- Functions that workers run --------------------------------------------------------------------------


def _survey_file(indexed, tokenizer):
    """Surveys a file. `indexed` is (index of the file, path). Returns [index, survey, error message or None].

    An error is returned and not raised, so that the command can report the first file with an error.
    """
    index, path = indexed
    try:
        return [index, corpus.survey_file(path, tokenizer), None]
    except (ValueError, OSError) as error:
        named = isinstance(error, OSError) and error.filename and error.strerror
        return [index, None, f"{error.filename}: {error.strerror}" if named else str(error)]


def _parts_of_file(file, tokenizer, size, blocks):
    """Divides the documents of a file among blocks. For each block that contains documents of the file,
    yields (index of the block, (index of the first of these documents, list of these documents)).

    The blocks are the same as those that `corpus.make_blocks` makes from the documents of all files.

    Args:
      file: (path, index of the file's first document, index after its last document). The indices count the
        documents of all files.
      tokenizer: an object with `tokenize(text)`.
      size: number of documents in a block.
      blocks: number of blocks.

    Raises:
      ValueError: the file has another number of documents than its indices say.
    """
    path, first, end = file
    documents, position = corpus.read_documents(path, tokenizer), first
    while position < end:
        block = min(position // size, blocks - 1)  # the last block may have size + 1 documents
        stop = end if block == blocks - 1 else min(end, (block + 1) * size)
        part = list(itertools.islice(documents, stop - position))
        yield block, (position, part)
        position += len(part)
        if position < stop:
            break
    if position < end or next(documents, None) is not None:
        raise ValueError(f"{path} was changed while it was read: at first, it had {end - first} documents. "
                         "Run the command again.")


def _write_block(grouped, make_block, output_file):
    """Makes the records of a block, and writes them into a temporary file. Returns [index of the block, path
    of the file, statistics].

    Args:
      grouped: (block, list of the parts that `_parts_of_file` yields for this block).
      make_block: see `BeamRunner.make_blocks`.
      output_file: path of the first output file.
    """
    block, parts = grouped
    documents = [document for _, part in sorted(parts) for document in part]
    records, statistics = make_block((block, documents))
    # The writer loads TensorFlow, which would print messages on stderr. `quiet_tensorflow` loads it first,
    # without these messages.
    quiet_tensorflow.load()
    path = _temporary_path(output_file)
    with files.translate_disk_errors(output_file), tfrecord_files.open_writer(path) as writer:
        for record in records:
            writer.write(record)
    return [block, path, dict(statistics)]


def _write_elements(grouped, path):
    _, results = grouped
    aside = _temporary_path(path)
    files.write_text(aside, json.dumps(list(results)))
    files.move(aside, path)
