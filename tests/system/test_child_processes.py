"""How commands end, as data: the file BERT_OUTCOME_FILE, and the `Outcome` of a child process."""

import json
import os
import pathlib
import signal
import subprocess
import sys

from helpers import is_running, wait_until
import pytest
from scripts import ROOT

from bertlib.system import child_processes
from bertlib.system.child_processes import Outcome

COMMAND = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from absl import flags
from bertlib.commands import launch

flags.DEFINE_string("act", "", "What to do, in Python.")
flags.DEFINE_string("input_file", None, "")

def main(_):
    exec(flags.FLAGS.act, {{}})

launch.run(main, resumable=True)
"""


@pytest.mark.parametrize("act, expected", [
    ("pass", Outcome("finished")),
    ("raise ValueError('the sky is down')", Outcome("refused", 1, "the sky is down")),
    ("open('in.txt')", Outcome("refused", 1, "in.txt: No such file or directory", flags=["input_file"],
                               file="in.txt")),
    ("from bertlib.estimator import session_hooks; raise session_hooks.NanLossError('Keine Zahl.', 7)",
     Outcome("diverged", 1, "Keine Zahl.", step=7)),
    ("from absl import logging; [logging.warning('Old %s.', name) for name in ('data', 'data', 'flags')]; "
     "logging.info('New.'); {}['a']",
     Outcome("failed", 1, "KeyError: 'a'.", has_traceback=True, warnings=["Old data.", "Old flags."])),
    ("import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
     Outcome("stopped", 143, "terminated. Run the same command again to continue.")),
    ("--input_fil", Outcome("refused", 1, "Unknown command line flag 'input_fil'. Did you mean: input_file ?",
                            flags=["input_fil"], similar_flags=["input_file"]))])
def test_a_command_writes_how_it_ended(act, expected, scripts, tmp_path):
    (tmp_path / "command.py").write_text(COMMAND)
    done = scripts.run(tmp_path / "command.py", "--input_file=in.txt", act if act.startswith("--") else
                       f"--act={act}", cwd=tmp_path, BERT_OUTCOME_FILE="outcome.json")
    found = json.loads((tmp_path / "outcome.json").read_text())
    assert (found, done.code) == (json.loads(json.dumps(expected._asdict())), expected.exit_code), done
    assert sorted(os.listdir(tmp_path)) == ["command.py", "outcome.json"]


def child(program, **options):
    return child_processes.Child([sys.executable, "-S", "-c", f"import os, time\n{program}"], **options)


WRITE = "open(os.environ['BERT_OUTCOME_FILE'], 'w').write({!r})\n"
DONE = WRITE.format('{"outcome": "finished"}')


@pytest.mark.parametrize("program, expected", [
    ("os._exit(3)", ("failed", 3)), ("os.kill(os.getpid(), 15)", ("stopped", 143)),
    (f"{DONE}os.kill(os.getpid(), 9)", ("failed", 137)),
    (WRITE.format('{"outcome": "refused", "exit_code": 1, "mess'), ("finished", 0)),
    (WRITE.format('{"outcome": "diverged", "exit_code": 1, "step": 3}') + "os._exit(1)", ("diverged", 1))])
def test_a_process_that_reports_nothing_has_an_outcome(program, expected):
    ended = child(program)
    assert ended.wait()[:2] == expected and not ended.runs() and ended.end_time > ended.start_time
    assert ended.outcome.step == (3 if "step" in program else None)


def test_children_end_by_a_signal_and_are_killed_if_the_wait_is_interrupted():
    stubborn = "import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(60)"
    children = [child("time.sleep(60)"), child(stubborn, stdout=subprocess.PIPE)]
    children[1].process.stdout.readline()

    def wait(child):
        if child is children[1]:
            raise KeyboardInterrupt
        child.wait()

    with pytest.raises(KeyboardInterrupt), children[1].process.stdout:
        child_processes.end(children, wait)
    assert [child.outcome.exit_code for child in children] == [143, 137]


def test_a_child_ends_with_its_caller():
    program = (f"import sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
               "from bertlib.system import child_processes\n"
               "print(child_processes.Child(['sleep', '60']).process.pid, flush=True)\ntime.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as caller:
        pid = int(caller.stdout.readline())
        # setpriv must have started the command.
        wait_until(lambda: pathlib.Path(f"/proc/{pid}/cmdline").read_text().startswith("sleep"))
        caller.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(pid), 20)
