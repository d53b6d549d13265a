"""Shared fixtures. `scripts` run as a user's, but as children of one process that has loaded TensorFlow."""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pytest  # noqa: E402
from scripts import Scripts  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from tiny import Model  # noqa: E402

tf.disable_v2_behavior()
tf.enable_resource_variables()


@pytest.hookimpl(tryfirst=True)  # before -m leaves any out
def pytest_collection_modifyitems(items):
    """A test that `make test` leaves out says why."""
    for item in items:
        for mark in (*item.iter_markers("slow"), *item.iter_markers("soak")):
            if mark.args or set(mark.kwargs) != {"reason"} or not str(mark.kwargs["reason"]).strip():
                raise pytest.UsageError(f"{item.nodeid} is {mark.name} without a reason: write "
                                        f"@pytest.mark.{mark.name}(reason=\"…\").")


@pytest.fixture
def graph():
    """An empty default graph."""
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
    return Model(tmp_path_factory.mktemp("tiny_model"))
