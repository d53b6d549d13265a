"""The launcher of replicas. The replicas are a few lines of Python without TensorFlow, so they start fast."""

import collections
import json
import os
import re
import signal
import socket
import sys
import threading
import time

from helpers import wait_until
import pytest

from bertlib.system import cluster, replica_launcher

# The first lines of a replica: they read its own settings, and define how it reports its end.
PRELUDE = """
import json, os, signal, sys, time
me = json.loads(os.environ["BERT_REPLICA"])
index = me["index"]

def end(message, code=1, cause=index, outcome=None, **more):
    with open(os.environ["BERT_OUTCOME_FILE"], "w") as file:
        json.dump({"outcome": outcome or ("refused" if code == 1 else "stopped"), "exit_code": code,
                   "message": message, "replica": cause, **more}, file)
    sys.exit(code)

def wait():
    open(f"ready-{me['attempt']}-{index}", "w").close()
    time.sleep(60)
"""


# The exit code of the run, the last line of its output, and whether the run may be started again.
End = collections.namedtuple("End", ["code", "message", "again"])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A new working directory, in an environment without GPUs and without numbers of threads."""
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
                 "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(code, count=2, log=None, timeout=20, patience=20, **plan):
    """Runs replicas that execute `code`. Returns the `End` of the run."""
    command = (sys.executable, "-S", "-c", PRELUDE + code)
    begun = time.monotonic()
    outcome = replica_launcher.run(replica_launcher.Plan(
        count, timeout, patience=patience, command=command, **plan), [].append if log is None else log.append)
    assert time.monotonic() - begun < 15
    return End(outcome.exit_code, outcome.message and outcome.line, outcome.outcome == "failed")


def when_ready(here, names, action):
    """Calls `action` in a thread when all files `names` exist: then, all replicas wait."""
    def watch():
        wait_until(lambda: all((here / name).exists() for name in names))
        action()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def values(here, count):
    """Returns the value that each replica wrote into its own file."""
    return [json.loads((here / str(index)).read_text()) for index in range(count)]


WRITE = "json.dump({**me, **{k: os.environ.get(k) for k in os.environ}}, open(str(index), 'w'))\n"


MEET = """
import socket
found = None
if index:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(me["coordinator"])
    found = connection.recv(100).decode()
else:
    socket.socket(fileno=me["listener"]).accept()[0].sendall(b"met")
me = {**me, "found": found}
"""


# --- Settings that the launcher passes to replicas -------------------------------------------------------


@pytest.mark.parametrize("cores, count, threads", [(8, 3, "2"), (2, 2, "1")])
def test_replicas_of_one_machine(here, monkeypatch, cores, count, threads):
    monkeypatch.setattr(replica_launcher.workers, "available_cores", lambda: cores)
    assert run(WRITE, count, timeout=7.5) == (0, None, False)
    found = values(here, count)
    for index, one in enumerate(found):
        expected = dict(
            index=index, local_index=index, count=count, local_count=count, host="127.0.0.1", timeout=7.5,
            launcher=os.getpid(), attempt=0, coordinator=found[0]["coordinator"], key=found[0]["key"],
            TF_NUM_INTRAOP_THREADS=threads, OMP_NUM_THREADS=threads,
            # One thread starts sums while another one computes.
            TF_NUM_INTEROP_THREADS="2")
        assert {name: one[name] for name in expected} == expected and "CUDA_VISIBLE_DEVICES" not in one
        assert (one["listener"] is None) == (one["log"] is not None) == (index > 0)
    assert len(found[0]["key"]) == 64 and len({one["BERT_OUTCOME_FILE"] for one in found}) == count
    assert not os.path.exists(os.path.dirname(found[0]["BERT_OUTCOME_FILE"]))


def test_replica_0_gets_a_socket_that_the_others_reach(here):
    assert run(MEET + WRITE).code == 0
    assert [one["found"] for one in values(here, 2)] == [None, "met"]


def test_a_temporary_directory_with_a_long_path_is_an_error_with_a_remedy(here, monkeypatch):
    (here / ("long" * 30)).mkdir()
    monkeypatch.setattr(replica_launcher.tempfile, "tempdir", str(here / ("long" * 30)))
    with pytest.raises(OSError, match="The replicas cannot meet in .*: AF_UNIX path too long. Set .* TMPDIR"):
        run(WRITE)


def test_gpus_are_shared_out(here, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-ab,5")
    monkeypatch.setattr(replica_launcher.gpu_libraries, "missing_libraries", list)
    assert replica_launcher.count_here(0) == 3 and replica_launcher.count_here(2) == 2
    assert run(WRITE, 2).code == 0
    assert [one["CUDA_VISIBLE_DEVICES"] for one in values(here, 2)] == ["3", "GPU-ab"]


def test_more_replicas_than_gpus_are_refused():
    with pytest.raises(ValueError, match=r"--num_replicas=3 needs 3 GPUs, but this machine has only 2 that "
                       r"CUDA_VISIBLE_DEVICES=0,1 shows\. Pass --num_replicas=2"):
        replica_launcher.count_here(3, {"CUDA_VISIBLE_DEVICES": "0,1"})


@pytest.mark.parametrize("named", ["", "-1", "-1,0", "NoDevFiles"])
def test_without_gpus_replicas_share_the_cpu(named):
    assert [replica_launcher.count_here(asked, {"CUDA_VISIBLE_DEVICES": named}) for asked in (0, 1, 5)] == [
        1, 1, 5]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.parametrize("place", [0, 1])
def test_replicas_of_one_of_several_machines(place, here):
    port = free_port()
    machines = cluster.Cluster((f"localhost:{port}", "elsewhere:9", "third:9"), place)
    assert run(WRITE, 2, cluster=machines).code == 0
    found = [json.loads((here / str(2 * place + number)).read_text()) for number in (0, 1)]
    assert [one["local_index"] for one in found] == [0, 1]
    assert [one["listener"] is None for one in found] == [place == 1, True]
    for one in found:
        assert (one["count"], one["local_count"], one["key"]) == (6, 2, machines.key)
        assert one["coordinator"] == ["localhost", port]
        assert one["host"] == ("localhost", "elsewhere")[place]


# --- How they end ----------------------------------------------------------------------------------------


def test_output_of_replica_0_is_the_launchers_and_of_others_in_their_logs(capfd):
    assert run("print('out', index); print('err', index, file=sys.stderr)").code == 0
    assert capfd.readouterr() == ("out 0\n", "err 0\n")


# Replica 1 does not end, and then replica 0 ends with an error.
STAYS = """
if index:
    wait()
while not os.path.exists("ready-0-1"):
    time.sleep(0.01)
end("no")
"""
STOPPED = """
if index == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(0.3)
end("replica 1 sent no message", cause=1)
"""
KILLED = """
if index == {0}:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.2)
end("{0} was lost", cause={0})
"""
# Replica 0 crashed after the connection broke. The launcher sees this first.
CRASHED_FIRST = f"if index == 0: os.abort()\n{KILLED.format(1)}"


@pytest.mark.parametrize("code, message, again", [
    ("end('no data')", "no data", False),
    # One replica is faster than the others.
    ("if index: end('no data')\ntime.sleep(0.3)\nend('no data', cause=1)", "no data", False),
    ("end('the disk is full') if index == 2 else end('2 failed', cause=2)", "replica 2: the disk is full",
     False),
    ("end('the disk is full') if index == 0 else end('0 failed', cause=0)", "the disk is full", False),
    ("end('replica 5 sent no message', cause=5)", "replica 5 sent no message", True),
    (STAYS, "no", False), (STOPPED, "replica 1 sent no message", True),
    *((code, rf"replica {index} \(process \d+\) was killed by SIGKILL\. If nobody killed it, the machine ran "
       r"out of memory\. Do it again\.", True)
      for code, index in ((KILLED.format(0), 0), (KILLED.format(1), 1), (CRASHED_FIRST, 1)))],
    ids=["all", "a fast one", "2", "0", "none", "one stays", "one is stopped", "0 is killed", "1 is killed",
         "others speak of 1"])
def test_what_all_say_is_said_as_by_one_and_what_one_says_names_it(code, message, again):
    end = run(code, 3, patience=0.9, afterwards="" if "sent no" in message else "Do it again.")
    assert (end.code, end.again) == (1, again) and re.fullmatch(f"error: {message}", end.message)


@pytest.mark.parametrize("asked, of_all, shown", [
    (True, False, True), (False, False, False), (True, True, False)])
def test_of_an_error_of_another_replica_the_traceback_is_shown(capfd, asked, of_all, shown):
    code = (f"print('line of', index)\nend('no', has_traceback={asked}) if index or {of_all} else "
            "end('lost', cause=1)")
    assert run(code).message.endswith("no")
    assert ("line of 1\n" in capfd.readouterr().err) == shown


def test_a_replica_that_goes_on_when_replica_0_has_ended_is_ended():
    end = run("wait() if index else None", timeout=0.3)
    assert end.code == 1 and re.fullmatch(r"error: replica 1 \(process \d+\) did not end when the other "
                                          r"replicas ended, so it was killed\.", end.message)


# --- Signals ---------------------------------------------------------------------------------------------

SAVES = """
def save(number, frame):
    time.sleep(0.2 if index == 0 else 0)
    word = "interrupted" if number == signal.SIGINT else "terminated"
    end(f"{word}. Step {index} is saved.", 128 + number)

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, save)
wait()
"""


@pytest.fixture
def hangs_up():
    """Sets SIGHUP to its default during the test, because the tests may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangs_up")
@pytest.mark.parametrize("number, said", [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted"),
                                          (signal.SIGHUP, "terminated")])
def test_a_signal_is_passed_on_and_replica_0_says_what_is_kept(number, said, here):
    when_ready(here, ["ready-0-0", "ready-0-1"], lambda: os.kill(os.getpid(), number))
    assert run(SAVES, max_restarts=3) == (128 + number, f"{said}. Step 0 is saved.", False)


@pytest.mark.parametrize("handler, code, said", [
    ("signal.SIG_DFL", 143, "terminated."), ("signal.SIG_IGN", 143, "terminated."),
    ("signal.SIG_IGN if index else lambda *_: end('terminated. Saved.', 143)", 143, "terminated. Saved."),
    ("lambda *_: end('the disk is full')", 1, "error: the disk is full")])
def test_how_replicas_end_after_a_signal(handler, code, said, here):
    """A replica that does not end is killed."""
    when_ready(here, ["ready-0-0", "ready-0-1"], lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run(f"signal.signal(signal.SIGTERM, {handler})\nwait()", timeout=0.4) == (code, said, False)


# --- Restarts --------------------------------------------------------------------------------------------

FAILS_TWICE = """
json.dump(me, open(f"{index}-{me['attempt']}", "w"))
if me["attempt"] < 2:
    os.kill(os.getpid(), signal.SIGKILL) if index else end("lost", cause=1)
"""


def test_all_are_started_again_as_often_as_allowed(here):
    log = []
    assert run(FAILS_TWICE, log=log, max_restarts=2) == (0, None, False)
    assert len(log) == 2 and log[0].startswith("replica 1 (process ")
    assert log[1].endswith("All replicas are started again: 2 of --max_restarts=2.")
    told = [json.loads((here / f"1-{attempt}").read_text()) for attempt in range(3)]
    assert len({(one["key"], *one["coordinator"]) for one in told}) == 1
    log = []
    end = run(FAILS_TWICE, log=log, max_restarts=1, afterwards="Do it again.")
    assert end.code == 1 and len(log) == 1 and end.message.endswith("Do it again.")
    assert log[0].count("Do it again") == 0


@pytest.mark.parametrize("code, restarts", [
    ("end('no such file')", 0), ("end('the network is down', outcome='failed')", 1),
    ("os.abort()", 1), ("sys.exit(3)", 1)])
def test_what_is_refused_is_not_tried_again(code, restarts):
    log = []
    end = run(code, 1, log=log, max_restarts=1, afterwards="Do it again.")
    explained = "end(" in code
    assert end.message.endswith("Do it again.") != explained
    assert len(log) == restarts and end.code == (3 if "exit(3)" in code else 1)


def test_no_restart_after_a_signal(here):
    when_ready(here, ["ready-0-0"], lambda: os.kill(os.getpid(), signal.SIGTERM))
    log = []
    assert run("wait() if index == 0 else os.abort()", log=log, max_restarts=5).code in (1, 143)
    assert not log
