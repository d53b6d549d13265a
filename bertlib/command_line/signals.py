"""What SIGTERM and SIGHUP do to a command: a cluster sends SIGTERM some seconds before it takes the machine
back, and a terminal SIGHUP when it is closed.

A training ends after the micro-batch at work and saves its last whole step; everything else ends at once, and
so does a training that is told twice.
"""

import os
import select
import signal
import threading
import time

from bertlib.replicas import replica_group
from bertlib.system import stopping

_NUMBERS = signal.SIGTERM, signal.SIGHUP

_received = []

# Outside of a training, time for the main thread to clean up. It cannot while it is in one call of
# TensorFlow.
_POLL_SECONDS, _POLLS = 0.5, 4
# Some clusters signal all processes of a job: a replica gets the signal from there and from its launcher.
_SAME_SECONDS = 2


def exit_code():
    """Returns the exit code of a process that such a signal ended: 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + (_received[0] if _received else signal.SIGTERM)


def handle_termination(last_words):
    """Lets SIGTERM and SIGHUP make the request. Without effect in a thread, or if this process handles
    SIGTERM already. SIGHUP stays ignored if it is, as under nohup.

    Args:
      last_words: function that is called when nothing else ends the process, before it is ended.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    # Python runs a handler when the main thread is back from C++; this thread sees the signal at once.
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    for number in _NUMBERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise_outside_of_training)
    os.register_at_fork(after_in_child=ignore_request)
    threading.Thread(target=_watch, args=(receiver, last_words), name="SIGTERM", daemon=True).start()


def ignore_request():
    """Gives the signals their usual meaning: in forked processes, and once the command is done."""
    for number in _NUMBERS:
        if signal.getsignal(number) is _raise_outside_of_training:
            signal.set_wakeup_fd(-1)
            signal.signal(number, signal.SIG_DFL)


def _raise_outside_of_training(number, frame):
    del frame
    _received.append(number)
    stopping.request.set()
    if not stopping.request.awaited:
        stopping.request.check()


def _is_sent(receiver):
    """Whether one of the signals is among those that were received last."""
    found = [number for number in os.read(receiver, 64) if number in _NUMBERS]
    _received.extend(found)
    return bool(found)


def _watch(receiver, last_words):
    while not _is_sent(receiver):
        pass
    stopping.request.set()
    polls, again = 0, time.monotonic() + _SAME_SECONDS * replica_group.is_replica()
    while polls < _POLLS:
        if select.select([receiver], [], [], _POLL_SECONDS)[0]:
            if _is_sent(receiver) and time.monotonic() >= again:
                break
        else:
            polls = 0 if stopping.request.awaited else polls + 1
    last_words()
    os._exit(exit_code())
