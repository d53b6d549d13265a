"""Whether the script has called `hvd.init()`, and so divides the work among the replicas itself."""

from bertlib.replicas import replica_group

_initialized = False


def initialize():
    """Notes that the script has called `hvd.init()`."""
    global _initialized
    _initialized = True


def is_initialized():
    """Whether the script has called `hvd.init()`."""
    return _initialized


def script_divides_work():
    """Whether this process is one of several replicas of a script that divides the work itself.

    Each process then reads its own input and evaluates by itself. Other scripts get their share of each batch
    from this package.
    """
    return _initialized and replica_group.current() is not None
