"""How a command starts and ends: its flags, its log, its errors in one message."""

import atexit
import contextlib
import ctypes
import gc
import os
import re
import sys
import traceback

from absl import app, flags, logging
import tensorflow.compat.v1 as tf

from bertlib.command_line import common_flags, process_role, signals

from bertlib.estimator import estimator, step_config
from bertlib.replicas import replica_group
from bertlib.system import files, stopping, terminal, workers

FLAGS = flags.FLAGS

# glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory():
    """Has glibc keep what is freed, as the next step takes it again: giving it back and clearing it anew
    takes time.

    Without effect elsewhere than on Linux with glibc, and where the environment says how to allocate.
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for parameter, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 2**26)):
            mallopt(parameter, value)
        if replica_group.is_replica():
            # The many threads that gradients travel by would each keep some, in arenas of their own.
            mallopt(_M_ARENA_MAX, 1)


def start(command):
    """Runs a module of this room as a command: its `define_flags` and its `main`; its docstring is for
    `--help`. Arguments that are no flags are for a module with `TAKES_PATHS`; one with `GOES_ON` goes on with
    what an interrupted one left."""
    command.define_flags()
    run(command.main, getattr(command, "GOES_ON", False), command.__doc__,
        getattr(command, "TAKES_PATHS", False))


def run(main, goes_on=False, description=None, takes_paths=False):
    """Runs a command: parses its flags, sets up logging, calls main(argv), and turns a known error into one
    message.

    Errors end with exit code 1, Ctrl-C with 130, SIGTERM with 143, SIGHUP with 129; see `signals`.

    Args:
      main: function of the arguments that are no flags, the command's name first.
      goes_on: whether the same command goes on with what an interrupted one left.
      description: what `--help` says before the flags; by default the docstring of the script.
      takes_paths: whether arguments that are no flags are allowed.
    """
    def guarded(argv):
        _set_up_logging()
        try:
            _call(main, argv, goes_on, takes_paths)
        except (Exception, KeyboardInterrupt, stopping.Stopped) as error:  # noqa: BLE001 (raised there)
            _end_with_error(error, goes_on)
        finally:
            signals.ignore_request()

    terminal.guard_output()
    try:
        common_flags.define_common_flags(description or sys.modules["__main__"].__doc__)
        keep_freed_memory()
        # Neither modules while the script runs nor all that is left at its end are worth a search for
        # garbage: it takes a second.
        gc.freeze()
        atexit.register(gc.freeze)
        with _interruption_wins():
            app.run(guarded)
    except KeyboardInterrupt:
        _fail("interrupted.", code=130)
    except SystemExit as end:
        if not end.code:
            _flush_help()
        raise


def _call(main, argv, goes_on, takes_paths):
    """Calls main(argv) in this process, as the only one or as a replica; or starts the replicas, and ends as
    they do."""
    if len(argv) > 1 and not takes_paths:
        raise ValueError(f"Arguments that are no flags: {' '.join(argv[1:])}. Flags are --name=value.")
    common_flags.refuse_empty_paths()
    end = process_role.launch(_resume_advice(goes_on).strip())
    if end is not None:  # as the replicas that it started have ended
        if end.message:
            _print(end.message)
        sys.exit(end.code)
    signals.handle_termination(
        lambda: _report_end(f"terminated.{_resume_advice(goes_on)}", signals.exit_code()))
    with _interruption_wins(), process_role.join_replicas():
        main(argv)
        terminal.flush_output()


def _flush_help():
    """Writes what --help has printed, whose end is no other than a command's."""
    try:
        terminal.flush_output()
    except terminal.StreamError as error:
        _fail(f"error: {error}")


def _describe_encoding_error(error):
    """Returns the message of a UnicodeEncodeError: where the character is that cannot be written."""
    text, character = error.object[max(0, error.start - 50):error.start + 50], error.object[error.start]
    if not "\ud800" <= character <= "\udfff":
        return (f"{text!r} cannot be written as {error.encoding}, the encoding of the standard output. Set "
                "the environment variable PYTHONIOENCODING=utf-8.")
    where = _place_of_surrogate(character)
    if where is None and character >= "\udc80":  # how Python decodes names of files that are not UTF-8
        return f"{text!r} is not UTF-8. If it is the name of a file, rename that."
    return (f"{where or 'the input'}: {text!r} has half of a surrogate pair, {character!r}, which is no "
            "character: UTF-8 cannot hold it. Correct the text there.")


def _place_of_surrogate(character):
    """Returns "file:line" of half a surrogate pair, first in the files that flags name, or None.

    Only an escape in JSON, such as "\\ud83d", brings one into a text: files are read as UTF-8.
    """
    code = f"\\\\u(?i:{ord(character):x})"
    alone = (f"{code}(?!\\\\u[dD][c-fC-F])" if character < "\udc00"
             else f"(?<!\\\\u[dD][89abAB][0-9a-fA-F]{{2}}){code}").encode()
    named = {path for value in FLAGS.flag_values_dict().values() for path in str(value).split(",")}
    for path in sorted(filter(os.path.isfile, named)):
        with contextlib.suppress(OSError), files.open_file(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if re.search(alone, line):
                    return f"{path}:{number}"
    return None


def _end_with_error(error, goes_on):
    """Ends the process after the error that is handled: a known one is one message, any other a traceback."""
    if isinstance(error, KeyboardInterrupt):
        _fail(f"interrupted.{_resume_advice(goes_on)}", code=130)
    if isinstance(error, stopping.Stopped):
        kept = f" {error}: the same command goes on." if str(error) else _resume_advice(goes_on)
        _fail(f"terminated.{kept}", signals.exit_code())
    if isinstance(error, ChildProcessError) and stopping.request.is_set:
        # A cluster signals workers too.
        _fail(f"terminated.{_resume_advice(goes_on)}", signals.exit_code())
    if isinstance(error, UnicodeEncodeError):
        _fail_with_known(error, _describe_encoding_error(error), passes=False)
    if isinstance(error, (ValueError, OSError, ImportError, estimator.NanLossError)):
        from_system = isinstance(error, OSError) and error.filename and error.strerror
        _fail_with_known(error, f"{error.filename}: {error.strerror}" if from_system else error,
                         passes=replica_group.may_pass(error))
    if isinstance(error, replica_group.ReplicaError):
        _fail(f"error: {error}", passes=True, own=False)
    if isinstance(error, tf.errors.OpError) and error.op is None:  # from the file system, not from the graph
        _fail_with_known(error, error.message, passes=True)
    if isinstance(error, MemoryError):
        by_tokens = "tokens_per_micro_batch" in FLAGS and FLAGS.tokens_per_micro_batch
        fewer = (f"Pass {step_config.flags_for_less_memory(by_tokens)}. Or close"
                 if "recompute" in FLAGS else "Close")
        _fail_with_known(error, f"out of RAM ({error}). {fewer} other programs.", passes=True)
    _show_traceback(error)


def _fail_with_known(error, message, passes):
    """Ends the process with a message about a known error, or with --traceback=true with its traceback; for
    `passes` see `_fail`."""
    if FLAGS.traceback:
        _show_traceback(error, passes)
    _fail(f"error: {message}", passes=passes)


@contextlib.contextmanager
def _interruption_wins():
    """Raises what interrupted the block, and not what the code that was interrupted made of it.

    Ctrl-C in an import in C is a SystemError, a signal while a scope is left a RuntimeError, and one in a
    function that TensorFlow calls is an error of TensorFlow's that names it.
    """
    try:
        yield
    except Exception as error:
        inner = error
        while inner is not None:
            said = inner.message.partition("Traceback")[0] if isinstance(inner, tf.errors.OpError) else ""
            for kind in (KeyboardInterrupt, stopping.Stopped):
                if isinstance(inner, kind):
                    raise inner from None
                if f"{kind.__name__}: " in said:
                    raise kind from None
            inner = inner.__cause__ or inner.__context__
        raise


def _resume_advice(goes_on):
    """What to say of the same command after one that was ended; see `run`."""
    training = "do_train" in FLAGS and (FLAGS.do_train or not common_flags.phases_given())
    where = " from the last checkpoint" if training else ""
    return (training or goes_on) * f" The same command goes on{where}."


def _fail(message, code=1, passes=False, own=True):
    """Ends the process with a message; `passes`: another try may end otherwise, which a launcher is told;
    `own`: it is not about another replica's failure."""
    _report_end(message, code, own and code == 1)
    sys.exit(os.EX_TEMPFAIL if passes and replica_group.is_replica() else code)


def _show_traceback(error, passes=True):
    """Ends the process with the traceback of the error that is handled; as a replica with the error's name in
    one line besides, for the command that started it. `passes`: see `_fail`."""
    if replica_group.current() is None:
        raise error
    traceback.print_exc()
    said, kind = replica_group.message_of(error), f"{type(error).__name__}: "
    _fail(f"error: {kind}{said.removeprefix(kind)} Its log has the traceback.", passes=passes)


def _report_end(message, code, own=False):
    """Says what the process ends with: to stderr, or as a replica to the others, to its launcher, which says
    it, and into its own log."""
    group = replica_group.current()
    if group is not None:
        group.leave(message, code, own)
    if not replica_group.is_replica() or group is not None and not group.is_first:
        _print(message)


def _print(message):
    with contextlib.suppress(OSError):  # the terminal may be closed
        print(terminal.printable(f"{os.path.basename(sys.argv[0])}: {message}"), file=sys.stderr, flush=True)


def _set_up_logging():
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(_Formatter())


class _Formatter(logging.PythonFormatter):
    """Time and message, without characters that control a terminal; the level only if it is above INFO."""

    def format(self, record):
        level = "" if record.levelname == "INFO" else f"{record.levelname}: "
        return terminal.printable(f"{self.formatTime(record, '%H:%M:%S')} {level}{record.getMessage()}")


def log_devices():
    """Logs which devices the run, or this replica of it, will use."""
    gpus = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in tf.config.list_physical_devices("GPU")]
    threads = os.environ.get("TF_NUM_INTRAOP_THREADS") or workers.available_cores()
    group = replica_group.current()
    logging.info("TensorFlow %s on %s%s.", tf.version.VERSION,
                 ", ".join(gpus) if gpus else f"CPU, {threads} threads (no GPU found)",
                 f", replica {group.index} of {group.count}" if group else "")
