"""Records whether the script has called `hvd.init()`. A script that has called it divides the work among the
replicas itself."""

from bertlib.system import replica_group

_initialized = False


def initialize():
    """Stores the fact that the script has called `hvd.init()`."""
    global _initialized
    _initialized = True


def is_initialized():
    """Returns whether the script has called `hvd.init()`."""
    return _initialized


def script_divides_work():
    """Returns whether the script itself divides the work among replicas. This is true if the script has
    called `hvd.init()` and this process is one of several replicas.

    Each process of such a script reads its own input and evaluates alone. For other scripts, this package
    scatters the batches over the replicas.
    """
    return _initialized and replica_group.current() is not None
