"""Shared fixtures. `scripts` run as a user's, but as children of one process that has loaded TensorFlow."""
import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pytest  # noqa: E402
from scripts import Scripts  # noqa: E402

# A shell starts background jobs with SIGINT ignored, and children inherit this. Some tests send SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collectstart():
    """Loads TensorFlow before the first test module, in the processes that collect tests. The process that
    only distributes tests to workers does not need it, and starts the workers some seconds earlier."""
    from bertlib.system import quiet_tensorflow  # without a garbage collection of TensorFlow's modules
    tf = quiet_tensorflow.load()
    tf.disable_v2_behavior()
    tf.enable_resource_variables()


@pytest.hookimpl(tryfirst=True)  # before -m leaves any out
def pytest_collection_modifyitems(items):
    """A test that `make test` leaves out says why. Files with whole commands, which take longest, come first,
    so that no worker starts one of them when the others are done."""
    for item in items:
        for mark in (*item.iter_markers("slow"), *item.iter_markers("soak")):
            if mark.args or set(mark.kwargs) != {"reason"} or not str(mark.kwargs["reason"]).strip():
                raise pytest.UsageError(f"{item.nodeid} is {mark.name} without a reason: write "
                                        f"@pytest.mark.{mark.name}(reason=\"…\").")
    items.sort(key=lambda item: item.path.parent.name not in ("commands", "estimator"))


@pytest.fixture
def graph():
    """An empty default graph."""
    import tensorflow.compat.v1 as tf  # see `pytest_collectstart`
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture(scope="session")
def scripts():
    """Runs scripts; see `Scripts`."""
    with Scripts() as scripts:
        yield scripts


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A `tiny.Model`, to read only."""
    from tiny import Model  # see `pytest_collectstart`
    return Model(tmp_path_factory.mktemp("tiny_model"))
