"""Handles SIGTERM, SIGHUP and SIGINT (Ctrl-C) in a command.

A cluster sends SIGTERM some seconds before it takes the machine away. A terminal sends SIGHUP when it is
closed, and SIGINT when the user presses Ctrl-C. After the first signal, a training completes the current
micro-batch, saves the last complete step and ends. A second signal ends the training at once. All other work
ends at the first signal. Outside of a training, Ctrl-C raises a KeyboardInterrupt, as usual in Python.

An exception of a signal handler can interrupt any line, also a line of TensorFlow between two changes of a
queue. Then the main thread may wait forever while it cleans up. So a separate thread ends the process if the
main thread does not end it in time.
"""

import os
import select
import signal
import threading
import time

from bertlib.system import replica_group, stopping

_NUMBERS = signal.SIGTERM, signal.SIGHUP

# Numbers of the signals that this process received.
_signals = []

# After a signal outside of a training, or a second Ctrl-C, the main thread has `_POLLS * _POLL_SECONDS`
# seconds to clean up. After this time, this module ends the process.
_POLL_SECONDS, _POLLS = 0.5, 4
# Some clusters signal all processes of a job, so a replica receives one signal twice: from the cluster and
# from its launcher. A second signal within this number of seconds counts as a copy of the first one.
_SAME_SECONDS = 2
# A list with one number: the time of the first Ctrl-C during a training, in seconds. Before the first Ctrl-C,
# the list is empty.
_interrupted_at = []
# The numbers that the separate thread has received for Ctrl-C.
_interrupts = []
_ADVICE = (b"Ctrl-C: the command ends soon; a training saves its progress first. Press Ctrl-C again to end "
           b"it at once.\n")


def first():
    """Returns the number of the first signal that was received; SIGTERM if none was received."""
    return _signals[0] if _signals else signal.SIGTERM


def handle_termination(last_words):
    """Sets signal handlers for SIGTERM, SIGHUP and SIGINT.

    The handlers of SIGTERM and SIGHUP set `stopping.request`. Outside of a training, these two handlers also
    raise `stopping.Stopped`. The handler of SIGINT sets `stopping.request` only during a training. Outside of
    a training, this handler raises a KeyboardInterrupt instead.

    This function does nothing outside of the main thread, or if this process already handles SIGTERM. If
    SIGHUP or SIGINT is ignored, as under nohup, it stays ignored.

    Args:
      last_words: function without arguments. If the main thread does not end the process in time, this module
        calls the function and then ends the process.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    # Python runs a signal handler only after the main thread has returned from C++, which can take long. But
    # Python writes the number of the signal to this pipe at once. So a separate thread reads the pipe, and
    # notices the signal while the main thread is still in C++.
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    for number in _NUMBERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise_outside_of_training)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    os.register_at_fork(after_in_child=ignore_request)
    threading.Thread(target=_watch, args=(receiver, last_words), name="SIGTERM", daemon=True).start()


def ignore_request():
    """Restores the default signal handlers. This function is called in forked processes and after the end of
    the command."""
    for number in _NUMBERS:
        if signal.getsignal(number) is _raise_outside_of_training:
            signal.set_wakeup_fd(-1)
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_outside_of_training(number, frame):
    _signals.append(number)
    stopping.request.set()
    if not stopping.request.awaited:
        stopping.request.check()


def _interrupt(number, frame):
    """Handles Ctrl-C during a training: the training saves its last complete step. A second Ctrl-C, or a
    Ctrl-C outside of a training, raises a KeyboardInterrupt."""
    if not stopping.request.awaited:
        raise KeyboardInterrupt
    if not stopping.request.is_set:
        _signals.append(number)
        _interrupted_at.append(time.monotonic())
        stopping.request.set()
        if not replica_group.is_replica():
            # `logging` is not used, because this handler may run while a log line is being written.
            os.write(2, _ADVICE)
    elif not _is_copy():
        raise KeyboardInterrupt


def _is_copy():
    """Returns whether a Ctrl-C that arrives now is a copy of the first one."""
    return (replica_group.is_replica() and _interrupted_at
            and time.monotonic() < _interrupted_at[0] + _SAME_SECONDS)


def _must_end(receiver):
    """Reads signal numbers from the pipe. Returns whether the process must end: whether SIGTERM, SIGHUP or a
    second Ctrl-C during a training is among them."""
    numbers = os.read(receiver, 64)
    terminations = [number for number in numbers if number in _NUMBERS]
    _signals.extend(terminations)
    interrupts = [number for number in numbers if number == signal.SIGINT]
    _interrupts.extend(interrupts)
    is_second = interrupts and len(_interrupts) > 1 and _interrupted_at and not _is_copy()
    return bool(terminations or is_second)


def _watch(receiver, last_words):
    """Waits for a signal after which the main thread should end the process. If the main thread does not end
    it in time, or if another signal arrives, this function ends the process. While a training saves its last
    step, there is no time limit, except after a second Ctrl-C."""
    while not _must_end(receiver):
        pass
    saves_last_step = any(number in _NUMBERS for number in _signals)
    stopping.request.set()
    polls, second_counts_from = 0, time.monotonic() + _SAME_SECONDS * replica_group.is_replica()
    while polls < _POLLS:
        if select.select([receiver], [], [], _POLL_SECONDS)[0]:
            if _must_end(receiver) and time.monotonic() >= second_counts_from:
                break
        else:
            polls = 0 if stopping.request.awaited and saves_last_step else polls + 1
    last_words()
    os._exit(128 + first())
