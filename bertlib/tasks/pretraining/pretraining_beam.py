"""Pre-training records on Apache Beam: what `pretraining_stream` does in processes, on a runner's workers.

    files → documents counted → parts of blocks --by block--> records --by output file--> output files

A block is the unit of work, as in `pretraining_stream`. Which documents are in it, its random numbers and the
places of its records follow from the documents' positions in the text, so that neither workers nor bundles
nor attempts decide what is written. Beam (https://beam.apache.org) is loaded when a `Cluster` is made;
functions that workers run are at the top of this module, which loads no TensorFlow.
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

# Records that travel together from where they were made to where they are written.
_RECORDS_AT_A_TIME = 1024
# Of files that a run writes aside: "<output file>.beam-<run>-<…>".
_TEMPORARY_SUFFIX = ".beam-"
# Beam's own local runner first starts one in Go, which it downloads; this is the one in Python.
_LOCAL_RUNNER = "FnApiRunner"
_LOCAL_RUNNER_NAMES = ("direct", "directrunner", "fnapi", "fnapirunner")
# What a process of the local runner executes.
_WORKER = ("import sys; sys.path[:] = {path!r}; from bertlib.tasks.pretraining import pretraining_beam; "
           "pretraining_beam.serve({port})")
# Threads of the runner that are there for each process.
_WAITS_FOR_PROCESS, _READS_OF_PROCESS = "run_worker", "beam_control_read"
_TIMEOUT_SECONDS = 3
_LESS_MEMORY = "If memory ran out, use fewer workers, or a smaller --shuffle_buffer_documents."
_TENSORFLOW_ERRORS = "tensorflow.python.framework.errors_impl."


def _beam():
    """Returns the module apache_beam.

    Raises:
      ImportError: it is not installed.
    """
    try:
        with _without_logging():  # it says what it lacks
            # Imported here: only who asks for a runner needs it, and it takes a second.
            import apache_beam
            import apache_beam.options.pipeline_options
    except ImportError as error:
        raise ImportError("Runners of Apache Beam need the package apache-beam, which cannot be imported "
                          f"({error}). Install it with `pip install -r requirements-beam.txt`.") from error
    return apache_beam


class Cluster:
    """A runner of Apache Beam and its options: the workers that `pretraining_stream` may use.

    Attributes:
      opens_ports: whether this process, as Beam's local runner, listens for its workers on all interfaces.
    """

    def __init__(self, runner, options=()):
        """Checks the names.

        Args:
          runner: a runner's name, such as "DirectRunner".
          options: list of Beam's options for it, "name=value" or "name".

        Raises:
          ValueError: there is no such runner or option, or an option cannot have that value.
          ImportError: Apache Beam, or what the runner needs, is not installed.
        """
        self._beam = _beam()
        self._local = runner.lower() in _LOCAL_RUNNER_NAMES
        self._name = _LOCAL_RUNNER if self._local else runner
        if not all(option.strip(" -") for option in options):
            raise ValueError("Of Apache Beam's options, an option is empty.")
        self._flags = [f"--{option.strip().lstrip('-')}" for option in options]
        # Imported here: see `_beam`.
        from apache_beam.runners import runner as runners
        from apache_beam.runners.portability import portable_runner

        try:
            made = runners.create_runner(self._name)
        except (ValueError, TypeError, AttributeError, ModuleNotFoundError):
            made = None
        if not isinstance(made, runners.PipelineRunner):
            known = self._beam.options.pipeline_options.StandardOptions.KNOWN_RUNNER_NAMES
            raise ValueError(f"Apache Beam has no runner of that name. It has {', '.join(known)}.")
        self._check_options(takes_others=isinstance(made, portable_runner.PortableRunner))
        direct = self._options().view_as(self._beam.options.pipeline_options.DirectOptions)
        self._in_processes = self._local and direct.direct_running_mode == "multi_processing"
        # In these modes Beam's servers listen on all interfaces; `in_memory` has none.
        self.opens_ports = self._local and direct.direct_running_mode != "in_memory"

    def _check_options(self, takes_others):
        """Raises a ValueError if Beam does not know an option; some runners take what Beam does not know."""
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), _without_logging():
                found = self._options().get_all_options(retain_unknown_options=True)
                known = self._options().get_all_options()
        except SystemExit:
            problem = said.getvalue().strip().rpartition("error: ")[2]
            raise ValueError(f"Apache Beam does not understand its options: {problem}.") from None
        if found.get("runner"):
            raise ValueError(f"Apache Beam's options name a runner, {found['runner']}, beside {self._name}.")
        if self._local and known["direct_num_workers"] < 0:
            raise ValueError("direct_num_workers must be 0, for one a core, or more.")
        unknown = sorted(set(found) - set(known))
        if unknown and not takes_others:
            raise ValueError(f"Apache Beam has no option {', '.join(unknown)}. Its options are name=value, "
                             "with commas between.")

    def _options(self):
        return self._beam.options.pipeline_options.PipelineOptions(self._flags)

    def _prepared(self, port):
        """Returns a runner and its options; processes of the local one end with the port, see `serve`."""
        # Imported here: see `_beam`.
        from apache_beam.runners import runner
        from apache_beam.runners.portability import fn_api_runner
        from apache_beam.transforms import environments

        options = self._options()
        if not self._in_processes:
            return runner.create_runner(self._name), options
        # Beam's own command for a process breaks at a space in a path, and logs all that it does.
        options.view_as(self._beam.options.pipeline_options.DirectOptions).direct_running_mode = "in_memory"
        code = shlex.quote(_WORKER.format(path=sys.path, port=port))
        environment = environments.SubprocessSDKEnvironment.from_command_string(
            f"exec {shlex.quote(sys.executable)} -c {code}")
        return fn_api_runner.FnApiRunner(environment), options

    # --- Pipelines ---------------------------------------------------------------------------------------

    def survey(self, input_files, tokenizer, output_files):
        """Reads all input once.

        Args:
          input_files: list of paths, which the workers see too.
          tokenizer: see `corpus.read_documents`.
          output_files: list of paths. Beside the first one is, for a while, what workers found.

        Returns:
          list of `corpus.Survey`, one for each file.

        Raises:
          OSError: a file cannot be read, or holds no text.
          RuntimeError: the pipeline failed.
        """
        def build(pipeline):
            return (pipeline | "Files" >> self._beam.Create(list(enumerate(input_files)))
                    | "Spread files" >> self._beam.Reshuffle()
                    | "Survey" >> self._beam.Map(_survey_file, tokenizer))

        surveys = {}
        for index, counts, problem in sorted(self._results(build, output_files), key=lambda found: found[0]):
            if problem:
                raise OSError(problem)
            surveys[index] = corpus.Survey(*counts)
        return [surveys[index] for index in range(len(input_files))]

    def write(self, input_files, documents, tokenizer, make_block, size, output_files):
        """Makes and writes all records.

        Args:
          input_files: list of paths.
          documents: the number of documents of each, as `survey` found it.
          tokenizer: see `corpus.read_documents`.
          make_block: function of (block's index, documents) to (records, {name: count}), picklable.
          size: documents of a block.
          output_files: list of paths, which the workers can write to; they are not touched.

        Returns:
          (files, one for each output file and beside it, with what belongs there; the sum of the counts).

        Raises:
          OSError: a file cannot be read or written.
          RuntimeError: the pipeline failed.
          ChildProcessError: what it wrote is not all.
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

        found = dict(self._results(build, output_files))
        counts, written = found.pop("statistics"), sum(records for _, records in found.values())
        made = counts.get("documents", 0), counts.get("instances", 0)
        if made != (ends[-1], written) or len(found) < len(output_files):
            _remove_temporary_files(output_files)
            raise ChildProcessError(f"The pipeline lost something: {made[0]} of {ends[-1]} documents were "
                                    f"made into {made[1]} instances, of which {written} were written, to "
                                    f"{len(found)} of {len(output_files)} files. Run the command again.")
        return [found[index][0] for index in range(len(output_files))], counts

    def _results(self, build, output_files):
        """Runs the pipeline that a function builds; returns what its last collection holds."""
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
    """Removes what a killed run, or an attempt of a worker that was not needed, left beside output files."""
    for path in output_files:
        folder, name = os.path.split(path)
        for left in files.find_files(os.path.join(folder, f"{glob.escape(name)}{_TEMPORARY_SUFFIX}*")):
            files.remove(left)


@contextlib.contextmanager
def _without_logging():
    """Ignores in the block what is logged."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _quiet():
    """Runs the block, which uses the local runner, without its log and its tracebacks."""
    with _without_logging(), contextlib.redirect_stderr(_NoTracebacks(sys.stderr)):
        yield


def _run_with_port(run, is_done):
    """Calls a function, which has the local runner start processes, with the port that they end with.

    A thread of the runner waits for each process. What it raises when one ends in failure is told to nobody,
    and whoever waits for an answer of that process would wait for ever. So the function runs in a thread that
    can be left.

    Raises:
      ChildProcessError: a process ended in failure, and not all was done by then.
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
        for thread in threading.enumerate():  # they end with the processes
            if thread.name in (_WAITS_FOR_PROCESS, _READS_OF_PROCESS):
                thread.join(_TIMEOUT_SECONDS)
        threading.excepthook = before
    if end is not None and not is_done():
        raise end


class _NoTracebacks:
    """stderr, but for tracebacks: Beam prints those that it raises, too."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        return len(text) if text.startswith("Traceback ") else self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextlib.contextmanager
def _shorten_errors():
    """Raises what a function raised on a worker, without the worker's traceback and Beam's additions."""
    try:
        yield
    except ChildProcessError:
        raise
    except Exception as error:
        last = (str(error).strip().splitlines() or [""])[-1]
        said, raised_there, _ = last.partition(" [while running '")
        if isinstance(error, RuntimeError) and not raised_there:
            raise ChildProcessError(f"The pipeline failed: {last}. {_LESS_MEMORY}") from error
        if not isinstance(error, (ValueError, OSError)):
            name, _, said = said.partition(": ")
            kind = getattr(builtins, name, None)
            ours = isinstance(kind, type) and issubclass(kind, (ValueError, OSError))
            if not ours and not name.startswith(_TENSORFLOW_ERRORS):
                raise
        raise OSError(said) from error


def serve(port):
    """What a process of the local runner does, as long as the command that started it has the port open."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    threading.Thread(target=_exit_when_closed, args=(port,), daemon=True).start()
    code = 1
    try:
        with _without_logging():
            # Imported here: see `_beam`.
            import apache_beam.runners.worker.sdk_worker_main as harness

        logging.disable(logging.CRITICAL)
        sys.stderr = _NoTracebacks(sys.stderr)
        harness.main([])
        code = 0
    finally:
        os._exit(code)  # its threads do not always end, and that of TensorFlow takes a second


def _exit_when_closed(port):
    # Nobody accepts the connection: the system ends it with the port.
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)
    os._exit(0)


# --- What workers do -------------------------------------------------------------------------------------


def _survey_file(indexed, tokenizer):
    """(index, path) to [index, survey, what is wrong or None], so that the first file at fault is named."""
    index, path = indexed
    try:
        return [index, corpus.survey_file(path, tokenizer), None]
    except (ValueError, OSError) as error:
        named = isinstance(error, OSError) and error.filename and error.strerror
        return [index, None, f"{error.filename}: {error.strerror}" if named else str(error)]


def _parts_of_file(file, tokenizer, size, blocks):
    """Yields what `parts_of_blocks` does of a file, (path, its first document, the next file's)."""
    path, first, end = file
    return parts_of_blocks(path, corpus.read_documents(path, tokenizer), first, end, size, blocks)


def parts_of_blocks(path, documents, first, end, size, blocks):
    """Yields (block, (place of the first document, documents)) of each block that a file's documents are in.

    Blocks are those of `corpus.make_blocks` the documents of all files.

    Args:
      path: the file, for errors.
      documents: iterator over those of the file.
      first, end: places that the file's documents take among those of all files.
      size, blocks: documents of a block; the number of blocks.

    Raises:
      ValueError: the file has another number of documents.
    """
    position = first
    while position < end:
        block = min(position // size, blocks - 1)  # the last one takes a document that would be alone
        stop = end if block == blocks - 1 else min(end, (block + 1) * size)
        part = list(itertools.islice(documents, stop - position))
        yield block, (position, part)
        position += len(part)
        if position < stop:
            break
    if position < end or next(documents, None) is not None:
        raise ValueError(f"{path} was changed while it was read: it had {end - first} documents.")


def _records_of_block(make_block, grouped):
    """Yields (block, first record, records, statistics or {}) of (block, parts of `parts_of_blocks`)."""
    block, parts = grouped
    documents = [document for _, part in sorted(parts) for document in part]
    records, statistics = make_block((block, documents))
    for first in range(0, len(records) or 1, _RECORDS_AT_A_TIME):
        yield block, first, records[first:first + _RECORDS_AT_A_TIME], {} if first else dict(statistics)


def _first_records(counts):
    """(0, [(block, records)]) to {block: how many records come before it}."""
    of_block = collections.Counter()
    for block, count in counts[1]:
        of_block[block] += count
    blocks = sorted(of_block)
    return dict(zip(blocks, itertools.accumulate((of_block[block] for block in blocks), initial=0)))


def _parts_of_files(part, number, starts):
    """Yields (file, ((block, first record), records)) of a part of a block: files get records in turn."""
    block, first, records, _ = part
    for file in range(number):
        share = records[(file - starts[block] - first) % number::number]
        if share or not block and not first:  # each file is written, be it empty
            yield file, ((block, first), share)


def _write_file(grouped, output_files):
    """(file, parts of `_parts_of_files`) to [file, [the path beside it with its records, their number]]."""
    index, parts = grouped
    quiet_tensorflow.load()  # which writes records, and else tells each worker's stderr about itself
    path = f"{output_files[index]}{_TEMPORARY_SUFFIX}{uuid.uuid4().hex}"  # another attempt has another one
    written = 0
    with files.translate_disk_errors(output_files[index]), record_files.open_writer(path) as writer:
        for _, records in sorted(parts, key=lambda part: part[0]):
            for record in records:
                writer.write(record)
            written += len(records)
    return [index, [path, written]]


def _sum_counts(counts):
    """Returns the sum of dicts of counts."""
    total = collections.Counter()
    for found in counts:
        total.update(found)
    return dict(total)


def _write_report(grouped, path):
    _, results = grouped
    aside = f"{path}-{uuid.uuid4().hex}"
    files.write_text(aside, json.dumps(list(results)))
    files.move(aside, path)
