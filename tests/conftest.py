"""Shared fixtures. `scripts` runs scripts as a user does, but in forks that have loaded TensorFlow before."""
import multiprocessing
import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from hypothesis import HealthCheck, Phase, settings  # noqa: E402
import pytest  # noqa: E402
from scripts import Scripts  # noqa: E402

# A shell starts background jobs with SIGINT ignored, and child processes inherit this setting. Some tests
# send SIGINT, so the default is restored here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Property tests draw the same examples in each run. With --hypothesis-profile=soak, they draw more of them.
settings.register_profile("tests", max_examples=30, derandomize=True, database=None, deadline=None,
                          phases=[Phase.explicit, Phase.generate, Phase.shrink],
                          suppress_health_check=list(HealthCheck))
settings.register_profile("soak", settings.get_profile("tests"), max_examples=1500)
settings.load_profile("tests")


def pytest_collectstart():
    """Loads TensorFlow before the first test module, in the processes that collect tests.

    The process that only distributes tests to workers does not load TensorFlow. So it starts the workers some
    seconds earlier.
    """
    from bertlib.system import quiet_tensorflow  # without a garbage collection of TensorFlow's modules
    tf = quiet_tensorflow.load()
    tf.disable_v2_behavior()
    tf.enable_resource_variables()


@pytest.hookimpl(tryfirst=True)  # before -m deselects tests
def pytest_collection_modifyitems(items):
    """Checks that each test that `make test` leaves out has a reason, and sorts the tests.

    Files that run whole commands take longest, so they come first. Otherwise, a worker could start one of
    them when the other workers are done.
    """
    for item in items:
        for mark in (*item.iter_markers("slow"), *item.iter_markers("soak")):
            if mark.args or set(mark.kwargs) != {"reason"} or not str(mark.kwargs["reason"]).strip():
                raise pytest.UsageError(f"{item.nodeid} is {mark.name} without a reason: write "
                                        f"@pytest.mark.{mark.name}(reason=\"…\").")
    items.sort(key=lambda item: item.path.parent.name not in ("commands", "conformance", "estimator"))


@pytest.fixture(autouse=True)
def end_children():
    """Kills the forks that a failed test leaves: they hold pipes open, so `scripts` would never end."""
    yield
    for child in multiprocessing.active_children():
        child.kill()
        child.join()


@pytest.fixture
def graph():
    """An empty default graph."""
    import tensorflow.compat.v1 as tf  # see `pytest_collectstart`
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def session(graph):
    """A session of the empty default graph."""
    import tensorflow.compat.v1 as tf  # see `pytest_collectstart`
    with tf.Session(graph=graph) as session:
        yield session


@pytest.fixture(scope="session")
def scripts():
    """Yields a `Scripts`, which runs scripts."""
    with Scripts() as scripts:
        yield scripts


@pytest.fixture
def run_script(scripts, tmp_path):
    """A function that runs a script in `tmp_path`, with words and flags, and returns `Finished`."""
    from tiny import flags as command_line  # see `pytest_collectstart`
    return lambda script, *words, **flags: scripts.run(script, *words, *command_line(**flags), cwd=tmp_path)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A `tiny.Model`. All tests share it, so they must not change its files."""
    from tiny import Model  # see `pytest_collectstart`
    return Model(tmp_path_factory.mktemp("tiny_model"))


@pytest.fixture(scope="session")
def classifier_dir(tiny_model, tmp_path_factory):
    """The output directory of a classifier. All tests share it, so they must not change its files."""
    import model_directories  # see `pytest_collectstart`
    return model_directories.write_classifier(tmp_path_factory.mktemp("classifier") / "model", tiny_model)


@pytest.fixture(scope="session")
def workspaces(scripts, tiny_model, tmp_path_factory):
    """A `Workspaces`, which trains a row of the table once. The processes of pytest-xdist share them."""
    from workspaces import Workspaces  # see `pytest_collectstart`
    if "PYTEST_XDIST_WORKER" in os.environ:
        return Workspaces(scripts, tiny_model, tmp_path_factory.getbasetemp().parent / "workspaces")
    return Workspaces(scripts, tiny_model, tmp_path_factory.mktemp("workspaces"))


@pytest.fixture
def trained(row, workspaces):
    """The trained workspace of the row. Tests must not change it."""
    return workspaces(row)


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of the trained workspace."""
    return trained.copy(tmp_path / "copy")


@pytest.fixture
def untrained(row, workspaces, tmp_path):
    """A workspace with the data of the row, before its training."""
    return workspaces(row, untrained=True).copy(tmp_path / "untrained")
