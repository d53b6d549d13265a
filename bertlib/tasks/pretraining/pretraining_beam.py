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
import queue
import shlex
import signal
import socket
import sys
import threading
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
# Python code of a worker process of the local runner.
_WORKER = ("import sys; sys.path[:] = {path!r}; from bertlib.tasks.pretraining import pretraining_beam; "
           "pretraining_beam.serve({port})")
# For each worker process, the local runner has two threads with these names. The first thread waits for the
# end of the process, and the second thread reads from the process.
_WAITS_FOR_PROCESS, _READS_OF_PROCESS = "run_worker", "beam_control_read"
_TIMEOUT_SECONDS = 3
_LESS_MEMORY = "If memory ran out, use fewer workers, or a smaller --shuffle_buffer_documents."
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

    Attributes:
      opens_ports: whether the runner is a local runner that listens for its workers on all network
        interfaces.
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
        self._local = runner.lower() in _LOCAL_RUNNER_NAMES
        self._name = _LOCAL_RUNNER if self._local else runner
        if not all(option.strip(" -") for option in options):
            raise ValueError("An option for Apache Beam is empty. Remove it.")
        self._flags = [f"--{option.strip().lstrip('-')}" for option in options]
        # The import is here and not at the top, because loading Apache Beam takes about one second.
        from apache_beam.runners import runner as runners
        from apache_beam.runners.portability import portable_runner

        try:
            instance = runners.create_runner(self._name)
        except (ValueError, TypeError, AttributeError, ModuleNotFoundError):
            instance = None
        if not isinstance(instance, runners.PipelineRunner):
            known = self._beam.options.pipeline_options.StandardOptions.KNOWN_RUNNER_NAMES
            raise ValueError(f"Apache Beam has no runner with this name. Its runners are {', '.join(known)}.")
        self._check_options(takes_unknown=isinstance(instance, portable_runner.PortableRunner))
        direct = self._options().view_as(self._beam.options.pipeline_options.DirectOptions)
        self._in_processes = self._local and direct.direct_running_mode == "multi_processing"
        # Beam's local runner starts servers that listen on all interfaces. Only its mode `in_memory` has no
        # servers.
        self.opens_ports = self._local and direct.direct_running_mode != "in_memory"

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
        if given.get("runner"):
            raise ValueError(f"The options name the runner {given['runner']}, but the runner is "
                             f"{self._name}. Remove `runner` from the options.")
        if self._local and known["direct_num_workers"] < 0:
            raise ValueError("direct_num_workers must not be negative; 0 means one worker for each CPU core.")
        unknown = sorted(set(given) - set(known))
        if unknown and not takes_unknown:
            raise ValueError(f"Apache Beam has no option {', '.join(unknown)}. Write options as name=value, "
                             "with commas between them.")

    def _options(self):
        return self._beam.options.pipeline_options.PipelineOptions(self._flags)

    def _prepared(self, port):
        """Returns (runner, options of the runner).

        Args:
          port: int. The worker processes of the local runner end when this port is closed, see `serve`. None
            for other runners.
        """
        # The import is here and not at the top, because loading Apache Beam takes about one second.
        from apache_beam.runners import runner
        from apache_beam.runners.portability import fn_api_runner
        from apache_beam.transforms import environments

        options = self._options()
        if not self._in_processes:
            return runner.create_runner(self._name), options
        # Beam's default command for starting a worker process is not used, for two reasons: it fails if a
        # path contains a space, and it logs every step.
        options.view_as(self._beam.options.pipeline_options.DirectOptions).direct_running_mode = "in_memory"
        code = shlex.quote(_WORKER.format(path=sys.path, port=port))
        environment = environments.SubprocessSDKEnvironment.from_command_string(
            f"exec {shlex.quote(sys.executable)} -c {code}")
        return fn_api_runner.FnApiRunner(environment), options

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

        def run(port=None):
            pipeline = self._beam.Pipeline(*self._prepared(port))
            (build(pipeline) | "To one place" >> self._beam.Map(lambda result: (0, result))
             | "All" >> self._beam.GroupByKey() | "Report" >> self._beam.Map(_write_report, path))
            pipeline.run().wait_until_finish()

        try:
            with _shorten_errors(), _quiet() if self._local else contextlib.nullcontext():
                if self._in_processes:
                    _run_with_port(run, is_done=lambda: files.exists(path))
                else:
                    run()
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
def _quiet():
    """Returns a context manager. Inside its block, the log and the tracebacks of the local runner are
    hidden."""
    with _without_logging(), contextlib.redirect_stderr(_NoTracebacks(sys.stderr)):
        yield


def _run_with_port(run, is_done):
    """Opens a port, and calls a function that runs the local runner. The worker processes end when the port
    is closed.

    For each worker process, the runner has a thread that waits for the end of the process. If the process
    fails, the error is raised only in this thread. The runner does not notice the error, and waits forever
    for an answer from the process. For this reason, `run` is called in a separate thread. If a process fails,
    `_run_with_port` no longer waits for the end of `run`.

    Args:
      run: function that takes the port, see `serve`.
      is_done: function without arguments that returns whether the work is complete.

    Raises:
      ChildProcessError: a worker process failed before the work was complete.
    """
    ends, before = queue.SimpleQueue(), threading.excepthook

    def run_to_end(port):
        try:
            ends.put(run(port))
        except BaseException as error:
            ends.put(error)

    def note(failure):
        if failure.thread is not None and failure.thread.name == _WAITS_FOR_PROCESS:
            ends.put(ChildProcessError(f"{failure.exc_value}. {_LESS_MEMORY}"))

    threading.excepthook = note
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
            threading.Thread(target=run_to_end, args=server.getsockname()[1:], daemon=True).start()
            end = ends.get()
    finally:
        # The threads with these names end when the worker processes end. If such a thread fails, Python
        # passes the error to the hook `note`. So `note` stays the hook until these threads have ended.
        for thread in threading.enumerate():
            if thread.name in (_WAITS_FOR_PROCESS, _READS_OF_PROCESS):
                thread.join(_TIMEOUT_SECONDS)
        threading.excepthook = before
    if end is not None and not is_done():
        raise end


class _NoTracebacks:
    """A stream that drops tracebacks and forwards all other text to `stream`. Beam prints the traceback of an
    error and also raises the error, so the printed traceback is not needed."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        return len(text) if text.startswith("Traceback ") else self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextlib.contextmanager
def _shorten_errors():
    """Returns a context manager that shortens the messages of errors from workers. It removes the traceback
    of the worker and the text that Beam has added."""
    try:
        yield
    except ChildProcessError:
        raise
    except Exception as error:
        last = (str(error).strip().splitlines() or [""])[-1]
        message, is_from_worker, _ = last.partition(" [while running '")
        if isinstance(error, RuntimeError) and not is_from_worker:
            raise ChildProcessError(f"The pipeline failed: {last}. {_LESS_MEMORY}") from error
        if not isinstance(error, (ValueError, OSError)):
            name, _, message = message.partition(": ")
            kind = getattr(builtins, name, None)
            is_expected = isinstance(kind, type) and issubclass(kind, (ValueError, OSError))
            if not is_expected and not name.startswith(_TENSORFLOW_ERRORS):
                raise
        raise OSError(message) from error


def serve(port):
    """Runs a worker process of the local runner. The command that started this process keeps the port open
    until all work is done or has failed. When the port is closed, this process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers ignore Ctrl-C; the command handles it
    threading.Thread(target=_exit_when_closed, args=(port,), daemon=True).start()
    code = 1
    try:
        with _without_logging():
            # The import is here and not at the top, because loading Apache Beam takes about one second.
            import apache_beam.runners.worker.sdk_worker_main as harness

        logging.disable(logging.CRITICAL)
        sys.stderr = _NoTracebacks(sys.stderr)
        harness.main([])
        code = 0
    finally:
        # A normal exit would wait for all threads. Some threads may never end, and TensorFlow's threads need
        # about a second to end.
        os._exit(code)


def _exit_when_closed(port):
    # `recv` waits until the command that owns the port closes it. The command never accepts this connection.
    # When it closes the port, the operating system also closes the connection, and `recv` returns.
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)
    os._exit(0)


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
