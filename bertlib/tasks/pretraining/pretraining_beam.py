"""Makes pre-training records with Apache Beam. The work is done by the workers of a Beam runner. The workers
can run on other machines.

    files → numbers of documents → parts of blocks --group by block--> records --group by output file--> files

A block is the unit of work, as in `pretraining_stream`. The documents of a block, the random numbers used for
the block and the positions of its records depend only on the positions of the documents in the text. So the
output does not depend on the number of workers, or on the bundles into which Beam divides the work. If Beam
repeats a failed bundle, the output is the same, too.

Apache Beam (https://beam.apache.org) is loaded when a `Cluster` is created. Beam does not send the code of a
function to the workers. It sends only the names of the function and of its module, and the workers import the
module. All functions that the workers run are in this module. Importing this module does not load TensorFlow.
"""

import builtins
import collections
import contextlib
import functools
import glob
import io
import itertools
import json
import logging
import os
import uuid

from bertlib.data import record_files
from bertlib.system import files, quiet_tensorflow
from bertlib.tasks.pretraining import corpus

# The worker that makes records sends them to the worker that writes them. Each message contains at most this
# number of records.
_RECORDS_AT_A_TIME = 1024
# Part of the names of temporary files. A temporary file is in the directory of its output file, and its name
# begins with "<output file>.beam-".
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
    except ImportError as error:
        raise ImportError("Runners of Apache Beam need the package apache-beam, which cannot be imported "
                          f"({error}). Install it with `pip install -r requirements-beam.txt`.") from error
    return apache_beam


class Cluster:
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
        # The import is here and not at the top, because loading Apache Beam takes about one second.
        from apache_beam.runners import runner

        return runner.create_runner(self._name)

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

    def survey(self, input_files, tokenizer, output_files):
        """Reads all input once.

        Args:
          input_files: list of paths, which the workers must be able to read.
          tokenizer: see `corpus.read_documents`.
          output_files: list of paths. The workers write their results into a temporary file in the directory
            of the first output file.

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

        surveys = {}
        results = sorted(self._results(build, output_files), key=lambda result: result[0])
        for index, counts, problem in results:
            if problem:
                raise OSError(problem)
            surveys[index] = corpus.Survey(*counts)
        return [surveys[index] for index in range(len(input_files))]

    def write(self, input_files, documents, tokenizer, make_block, size, output_files):
        """Makes and writes all records.

        Args:
          input_files: list of paths.
          documents: list of the number of documents in each file, computed by `survey`.
          tokenizer: see `corpus.read_documents`.
          make_block: picklable function that takes a pair (index of a block, documents) and returns a pair
            (records, {name: count}).
          size: number of documents in a block.
          output_files: list of paths. The workers write temporary files in the directories of these files.
            The output files themselves are not changed.

        Returns:
          a pair: a list of temporary files, each of which contains the records of one output file; and {name:
          sum of the counts of all blocks}.

        Raises:
          OSError: a file cannot be read or written.
          RuntimeError: the pipeline failed.
          ChildProcessError: documents or records are missing in the output.
        """
        beam = self._beam
        ends = list(itertools.accumulate(documents))
        inputs = [(path, end - count, end) for path, count, end in zip(input_files, documents, ends)]
        cut = functools.partial(_parts_of_file, tokenizer=tokenizer, size=size,
                                blocks=corpus.count_blocks(ends[-1], size))

        def build(pipeline):
            made = (pipeline | "Files" >> beam.Create(inputs) | "Spread files" >> beam.Reshuffle()
                    | "Cut into blocks" >> beam.FlatMap(cut) | "Blocks" >> beam.GroupByKey()
                    | "Make records" >> beam.FlatMap(functools.partial(_records_of_block, make_block)))
            starts = (made | "Count" >> beam.Map(lambda part: (0, (part[0], len(part[2]))))
                      | "Counts" >> beam.GroupByKey() | "Starts" >> beam.Map(_first_records))
            written = (made | "Deal out" >> beam.FlatMap(_parts_of_files, len(output_files),
                                                         beam.pvalue.AsSingleton(starts))
                       | "Output files" >> beam.GroupByKey()
                       | "Write" >> beam.Map(_write_file, output_files))
            statistics = (made | "Statistics" >> beam.Map(lambda part: part[3])
                          | "Sum" >> beam.CombineGlobally(_sum_counts)
                          | "Of all" >> beam.Map(lambda counts: ("statistics", counts)))
            return (written, statistics) | "Results" >> beam.Flatten()

        results = dict(self._results(build, output_files))
        counts, written = results.pop("statistics"), sum(records for _, records in results.values())
        read, instances = counts.get("documents", 0), counts.get("instances", 0)
        if (read, instances) != (ends[-1], written) or len(results) < len(output_files):
            _remove_temporary_files(output_files)
            raise ChildProcessError("The pipeline lost documents, instances or files: it read "
                                    f"{read} of {ends[-1]} documents, made {instances} instances, and wrote "
                                    f"{written} instances to {len(results)} of {len(output_files)} files. "
                                    "Run the command again.")
        return [results[index][0] for index in range(len(output_files))], counts

    def _results(self, build, output_files):
        """Runs a pipeline. Returns a list of the elements in the last collection of the pipeline.

        Args:
          build: function that takes a new pipeline, adds the steps to it, and returns the last collection.
          output_files: see `write`.
        """
        _remove_temporary_files(output_files)
        path = f"{output_files[0]}{_TEMPORARY_SUFFIX}{uuid.uuid4().hex}"

        try:
            with _shorten_errors(), _without_logging() if self._is_local else contextlib.nullcontext():
                pipeline = self._beam.Pipeline(self._runner(), self._options())
                (build(pipeline) | "To one place" >> self._beam.Map(lambda result: (0, result))
                 | "All" >> self._beam.GroupByKey() | "Report" >> self._beam.Map(_write_report, path))
                pipeline.run().wait_until_finish()
        except BaseException:
            _remove_temporary_files(output_files)
            raise
        results = json.loads(files.read_bytes(path))
        files.remove(path)
        return results


def _remove_temporary_files(output_files):
    """Removes the temporary files in the directories of the output files. Killed runs and repeated attempts
    of a worker leave such files."""
    for path in output_files:
        folder, name = os.path.split(path)
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
    """Yields the parts of a file, see `parts_of_blocks`. `file` is (path, index of its first document, index
    after its last document)."""
    path, first, end = file
    return parts_of_blocks(path, corpus.read_documents(path, tokenizer), first, end, size, blocks)


def parts_of_blocks(path, documents, first, end, size, blocks):
    """Divides the documents of a file among blocks. For each block that contains documents of the file,
    yields (index of the block, (index of the first of these documents, list of these documents)).

    The blocks are the same as those that `corpus.make_blocks` makes from the documents of all files.

    Args:
      path: path of the file, for error messages.
      documents: iterator over the documents of the file.
      first, end: index of the file's first document, and the index after its last document. The indices count
        the documents of all files.
      size: number of documents in a block.
      blocks: number of blocks.

    Raises:
      ValueError: the number of documents in the file is not `end - first`.
    """
    position = first
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


def _records_of_block(make_block, grouped):
    """Makes the records of a block, and yields them in parts. A part is (block, first, records, statistics).

    `block` is the index of the block. `first` is the index of the part's first record among all records of
    the block. In the first part, `statistics` contains the statistics of the whole block. In the other
    parts, it is {}.

    Args:
      make_block: see `Cluster.write`.
      grouped: (block, list of the parts that `parts_of_blocks` yields for this block).
    """
    block, parts = grouped
    documents = [document for _, part in sorted(parts) for document in part]
    records, statistics = make_block((block, documents))
    for first in range(0, len(records) or 1, _RECORDS_AT_A_TIME):
        yield block, first, records[first:first + _RECORDS_AT_A_TIME], {} if first else dict(statistics)


def _first_records(counts):
    """Returns {block: number of records in all earlier blocks}.

    Args:
      counts: (0, list of (block, number of records in a part of this block)). The 0 is the key by which Beam
        collects all counts in one list.
    """
    of_block = collections.Counter()
    for block, count in counts[1]:
        of_block[block] += count
    blocks = sorted(of_block)
    return dict(zip(blocks, itertools.accumulate((of_block[block] for block in blocks), initial=0)))


def _parts_of_files(part, number, starts):
    """Distributes the records of a part of a block to the output files, in round-robin order.

    Args:
      part: see `_records_of_block`.
      number: number of output files.
      starts: see `_first_records`.

    Yields:
      (index of an output file, (position, records for this file)). The position is (index of the block, index
      of the part's first record in the block). It is the key by which the parts of a file are sorted later.
    """
    block, first, records, _ = part
    for file in range(number):
        share = records[(file - starts[block] - first) % number::number]
        # The first part of the first block yields a result for each file, even if the part has no record for
        # this file. Without such a result, a file that gets no record from any part would not be written.
        if share or not block and not first:
            yield file, ((block, first), share)


def _write_file(grouped, output_files):
    """Writes the records of an output file into a temporary file. Returns [index of the output file, [path of
    the temporary file, number of records]].

    Args:
      grouped: (index of the output file, list of the parts that `_parts_of_files` yields for this file).
      output_files: list of paths.
    """
    index, parts = grouped
    # The writer loads TensorFlow, which would print messages on stderr. `quiet_tensorflow` loads it first,
    # without these messages.
    quiet_tensorflow.load()
    # If Beam calls this function again for the same file, the new call writes to a different path.
    path = f"{output_files[index]}{_TEMPORARY_SUFFIX}{uuid.uuid4().hex}"
    written = 0
    with files.translate_disk_errors(output_files[index]), record_files.open_writer(path) as writer:
        for _, records in sorted(parts, key=lambda part: part[0]):
            for record in records:
                writer.write(record)
            written += len(records)
    return [index, [path, written]]


def _sum_counts(counts):
    """Adds several dicts of counts. Returns a dict with the sum for each key."""
    total = collections.Counter()
    for part in counts:
        total.update(part)
    return dict(total)


def _write_report(grouped, path):
    _, results = grouped
    aside = f"{path}-{uuid.uuid4().hex}"
    files.write_text(aside, json.dumps(list(results)))
    files.move(aside, path)
