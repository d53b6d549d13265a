"""Starts and ends a command: parses its flags, sets up its log, reports an error in one message."""

import atexit
import contextlib
import ctypes
import gc
import os
import signal
import sys
import traceback

from bertlib.commands import common_flags, devices, signals

from absl import app, flags, logging

from bertlib.estimator import step_config
from bertlib.graph import lazy_tensorflow as tf
from bertlib.runs import entries
from bertlib.system import child_processes, quiet_tensorflow, replica_group, stopping, terminal
from bertlib.system.child_processes import Outcome

FLAGS = flags.FLAGS

# Numbers of the parameters of glibc's function `mallopt`, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


def start(command):
    """Runs a module of `bertlib.commands`: defines the flags in its `ENTRIES`, and calls its `main`.

    Args:
      command: the module. `--help` prints the module's docstring. With `TAKES_PATHS = True` in the module,
        the command accepts arguments other than flags. `RESUMABLE = True` in the module means that an
        interrupted command continues its work if it is run again.
    """
    common_flags.define(command.ENTRIES)
    run(command.main, getattr(command, "RESUMABLE", False), command.__doc__,
        getattr(command, "TAKES_PATHS", False))


def run(main, resumable=False, description=None, takes_paths=False):
    """Runs a command: parses its flags, sets up logging and calls main(argv).

    A known error is reported in one message. The exit code is 1 after an error, 130 after Ctrl-C, 143 after
    SIGTERM and 129 after SIGHUP; see `signals`. If the caller asks for it, the outcome is also written as
    JSON; see `child_processes`.

    Args:
      main: function with one argument, a list of str: the command's name and the arguments that are not
        flags.
      resumable: bool, whether an interrupted command continues its work if it is run again.
      description: str, the text of `--help` before the flags; by default the docstring of the script.
      takes_paths: bool, whether the command accepts arguments other than flags.
    """
    def guarded(argv):
        if not FLAGS["verbosity"].present:
            logging.set_verbosity(logging.INFO)
        logging.get_absl_handler().setFormatter(_Formatter())
        logging.get_absl_logger().addFilter(child_processes.note_warning)
        try:
            _call(main, argv, resumable, takes_paths)
        except (Exception, KeyboardInterrupt, stopping.Stopped) as error:  # noqa: BLE001
            _end_with_error(error, resumable)  # if the error is unknown, this call raises it again
        finally:
            signals.ignore_request()

    terminal.guard_output()
    try:
        common_flags.define_common_flags(description or sys.modules["__main__"].__doc__)
        quiet_tensorflow.load_on_import(keep_freed_memory)
        # `gc.freeze` excludes the loaded modules from garbage collection. A garbage collection of these
        # modules takes a second. It would find nothing to free while the command runs, and it would be
        # useless at the end of the process.
        gc.freeze()
        atexit.register(gc.freeze)
        with _interruption_wins():
            app.run(guarded)
    except UnicodeDecodeError as error:
        if FLAGS.is_parsed():
            raise
        _end(Outcome("refused", 1, f"a file that --flagfile names is not UTF-8 ({error}). Convert the file "
                     "to UTF-8.", flags=["flagfile"]))
    except KeyboardInterrupt:
        _end(child_processes.stopped_by(signal.SIGINT))
    except SystemExit as end:
        if not end.code:  # the text of --help may not be written yet
            try:
                terminal.flush_output()
            except terminal.ClosedPipeError:
                pass  # the reader of `--help | head` has read enough
            except terminal.StreamError as error:
                _end(Outcome("failed", 1, str(error)))
        elif advice := common_flags.advice_on(end.__context__, description):
            print(advice, file=sys.stderr)  # after absl's message
        child_processes.report(_outcome_of_exit(end))
        raise


def _call(main, argv, resumable, takes_paths):
    """Calls main(argv) if this process is a replica or the only process of its command.

    Every other process is a launcher, which starts the replicas, or an evaluator, which starts the
    evaluations. Such a process waits for the processes that it started, and ends with their exit code.
    """
    if len(argv) > 1 and not takes_paths:
        # A line of a --flagfile may be a secret whose flag is missing, so it is not shown.
        hidden = "a line of the --flagfile without --name="
        words = [text if text in sys.argv else hidden for text in argv[1:]]
        raise ValueError("This command takes only flags, written as --name=value. Remove or correct: "
                         f"{' '.join(dict.fromkeys(words))}.")
    common_flags.resolve_paths()
    outcome = start_processes(_resume_advice(resumable).strip())
    if outcome is not None:  # this process has started replicas or evaluations, and they have ended
        _end(outcome)
    signals.handle_termination(
        lambda: _report(child_processes.stopped_by(signals.first(), _resume_advice(resumable))))
    quiet_tensorflow.load_on_import(devices.set_up_gpus)
    with _interruption_wins(), join_replicas():
        main(argv)
        terminal.flush_output()


def keep_freed_memory():
    """Makes glibc keep freed memory in the process instead of returning it to the system.

    A command calls this function when TensorFlow is imported: without TensorFlow, it needs little memory. The
    next step needs the same memory again. Returning this memory to the system, and clearing it when it is
    allocated again, takes time. This function does nothing outside of Linux with glibc, or if an environment
    variable MALLOC_… is set.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name.startswith("MALLOC_") for name in os.environ):
        return
    for parameter, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, 2**26)):
        mallopt(parameter, value)
    if replica_group.is_replica():
        # Without this limit, each of the many threads that exchange gradients keeps freed memory in a
        # separate arena.
        mallopt(_M_ARENA_MAX, 1)


# --- The role of this process ----------------------------------------------------------------------------

# A process has one of four roles, according to the replica flags and TF_CONFIG: it is the only process of its
# command, a replica, the launcher of the replicas on this machine, or the evaluator of a cluster.


def start_processes(afterwards):
    """Starts the replicas if this process is a launcher, or the evaluations if it is an evaluator. Waits
    until they have ended.

    Args:
      afterwards: str, last sentence of a message about a replica that was killed or lost.

    Returns:
      a `child_processes.Outcome`; None if this process does the work itself, alone or as a replica.

    Raises:
      ValueError: the flags require more GPUs than this machine has; the flags require closed ports, but the
        ports cannot be closed; TF_CONFIG is invalid; or this machine is an evaluator, but the command cannot
        evaluate.
      OSError: another process uses the port that TF_CONFIG names, or this machine is an evaluator and no
        training has begun.
    """
    if "num_replicas" not in FLAGS or replica_group.is_replica():
        return None
    machines = None
    if "TF_CONFIG" in os.environ:
        from bertlib.system import cluster
        machines = cluster.from_environment()
    if machines is None and FLAGS.num_replicas == 1:
        return None
    if machines is not None and machines.is_evaluator:
        from bertlib.commands import evaluator_process
        return evaluator_process.follow(FLAGS.replica_timeout)
    from bertlib.system import replica_launcher
    return replica_launcher.launch(
        FLAGS.num_replicas, FLAGS.replica_timeout, FLAGS.max_restarts, machines, FLAGS.open_ports,
        path_arguments(), logging.info, afterwards)


def path_arguments():
    """Returns the flags whose values can be paths, as a list of "--name=value"."""
    values = {name: FLAGS[name].value for name in FLAGS}
    # If the value of a flag is the address of a TF Hub module, the flag is left out. Such an address looks
    # like a remote path, but nothing is downloaded: the address only selects a directory in the cache of
    # modules.
    return [f"--{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in values.items() if isinstance(value, (str, list))
            and not (name.endswith("_handle") and value.startswith(("https://", "http://")))]


@contextlib.contextmanager
def join_replicas():
    """Returns a context manager. If this process is a replica, it belongs to the group of replicas during the
    block.

    Raises:
      replica_group.ReplicaError: another replica failed. This error is raised instead of the TensorFlow error
        of the op that noticed the failure.
    """
    if not replica_group.is_replica():
        yield
        return
    group = replica_group.join()
    try:
        yield
    except Exception as error:
        if _is_op_error(error) and group.failure and group.failure.about != group.index:
            raise group.failure from error
        raise
    group.leave()


# --- Errors ----------------------------------------------------------------------------------------------


def _outcome_of_exit(end):
    error = end.__context__
    if isinstance(error, flags.UnrecognizedFlagError):
        return Outcome("refused", 1, str(error), flags=[error.flagname],
                       similar_flags=entries.similar_names(error.flagname, FLAGS)[:1])
    if isinstance(error, flags.Error):
        return Outcome("refused", 1, str(error))
    return Outcome("finished", end.code if isinstance(end.code, int) else int(bool(end.code)))


def _is_op_error(error):
    """Returns whether TensorFlow raised an error. Without TensorFlow in this process, it did not."""
    return sys.modules.get("tensorflow") is not None and isinstance(error, tf.errors.OpError)


def _known_message(error):
    """Returns the message about an error; None if the error is unknown."""
    if isinstance(error, UnicodeEncodeError):
        text = error.object[max(0, error.start - 50):error.start + 50]
        return (f"{text!r} contains {error.object[error.start]!r}, which cannot be written as "
                f"{error.encoding}. If the name of a file is not UTF-8, or a text contains half of a "
                "surrogate pair, correct it. Otherwise, set the environment variable PYTHONIOENCODING=utf-8.")
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (ValueError, OSError, ImportError, replica_group.ReplicaError)) or hasattr(
            error, "outcome"):
        return str(error)
    # An OpError without an op comes from the file system, not from a graph.
    if _is_op_error(error) and error.op is None:
        return error.message
    if isinstance(error, MemoryError):
        by_tokens = "tokens_per_micro_batch" in FLAGS and FLAGS.tokens_per_micro_batch
        fewer = (f"Pass {step_config.flags_for_less_memory(by_tokens)}. Or close"
                 if "recompute" in FLAGS else "Close")
        return f"out of RAM ({error}). {fewer} other programs."
    return None


def _outcome_of(error, resumable):
    """Returns the `Outcome` of a command that ended with an error.

    Any error may have the attributes `outcome`, `filename`, `step`, `about` (a replica) and `has_traceback`;
    see `Outcome`.
    """
    if isinstance(error, KeyboardInterrupt):
        return child_processes.stopped_by(signal.SIGINT, _resume_advice(resumable))
    is_request = isinstance(error, stopping.Stopped)
    if is_request and str(error):
        return child_processes.stopped_by(signals.first(),
                                          f" {error}: run the same command again to continue.")
    # A cluster also sends the signal to the worker processes, so their end is expected and is not an error.
    if is_request or isinstance(error, ChildProcessError) and stopping.request.is_set:
        return child_processes.stopped_by(signals.first(), _resume_advice(resumable))
    message, file, group = _known_message(error), getattr(error, "filename", None), replica_group.current()
    kind = getattr(error, "outcome", None) or (
        "failed" if message is None or _is_op_error(error) else replica_group.kind_of(error))
    has_traceback = message is None or getattr(
        error, "has_traceback", FLAGS.traceback and not isinstance(error, replica_group.ReplicaError))
    if has_traceback:
        name = f"{type(error).__name__}: "
        message = f"{name}{replica_group.message_of(error).removeprefix(name)}"
    return Outcome(kind, 1, message, has_traceback, file=file, step=getattr(error, "step", None),
                   flags=[name for name in FLAGS if file and FLAGS[name].value == file],
                   replica=getattr(error, "about", group and group.index))


def _end_with_error(error, resumable):
    """Ends the process after an error, with one message. Shows the traceback of an unknown error. With
    --traceback=true, shows the traceback of any error."""
    outcome = _outcome_of(error, resumable)
    if outcome.has_traceback:
        if replica_group.current() is None:
            child_processes.report(outcome)
            raise error
        traceback.print_exc()
        outcome = outcome._replace(message=f"{outcome.message} The traceback is in the log of this replica.")
    _end(outcome)


@contextlib.contextmanager
def _interruption_wins():
    """Returns a context manager. If a KeyboardInterrupt or `Stopped` was raised in the `with` block, and
    other code replaced it by a different error, the context manager raises the KeyboardInterrupt or `Stopped`
    again.

    These errors can replace a KeyboardInterrupt or `Stopped`:

    - a SystemError, if Ctrl-C is pressed while C code imports a module,
    - a RuntimeError, if the signal arrives at the end of a `with` block,
    - a RuntimeError "… ORIGINAL NotFoundError REPLACED BY Stopped: …" of pybind11, if the signal arrives
      while TensorFlow's C++ code raises an error, for example for a file that does not exist,
    - a TensorFlow error whose message names the exception, if the signal arrives in a Python function that
      TensorFlow calls.
    """
    try:
        yield
    except Exception as error:
        inner = error
        while inner is not None:
            message = (inner.message if _is_op_error(inner) else
                       str(inner) if isinstance(inner, RuntimeError) else "").partition("Traceback")[0]
            for kind in (KeyboardInterrupt, stopping.Stopped):
                if isinstance(inner, kind):
                    raise inner from None
                if f"{kind.__name__}: " in message:
                    raise kind from None
            inner = inner.__cause__ or inner.__context__
        raise


def _resume_advice(resumable):
    """Returns the advice to run the same command again; "" if the command cannot continue its work, see
    `run`."""
    training = "do_train" in FLAGS and (FLAGS.do_train or not common_flags.phases_given())
    where = " from the last checkpoint, if one exists" if training else ""
    return (training or resumable) * f" Run the same command again to continue{where}."


def _end(outcome):
    _report(outcome)
    sys.exit(outcome.exit_code)


def _report(outcome):
    """Reports the `Outcome` with which the process ends.

    A process that is not a replica prints the message to stderr. A replica sends the message to the other
    replicas and to its launcher, and the launcher prints it. All replicas except the first one also print the
    message to their own logs.
    """
    group = replica_group.current()
    if group is not None:
        group.leave(outcome)
    child_processes.report(outcome)
    if not group.is_first if group else not replica_group.is_replica():
        outcome.show(sys.argv[0])


class _Formatter(logging.PythonFormatter):
    """Formats a log line: the time, the level if it is not INFO, and the message.

    Characters that control a terminal are replaced.
    """

    def format(self, record):
        level = "" if record.levelname == "INFO" else f"{record.levelname}: "
        return terminal.printable(f"{self.formatTime(record, '%H:%M:%S')} {level}{record.getMessage()}")
