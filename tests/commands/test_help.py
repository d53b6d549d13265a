"""--help of each command: all of its flags, in sections, with their defaults."""

import re

from helpers import ROOT
import pytest
from test_rooms import OUR_COMMANDS, PUBLISHED_COMMANDS

# Prints the names of the flags that a command defines, and of those of absl and the test's server.
PROBE = """
import runpy, sys
from absl import app, flags
from bertlib.command_line import common_flags
from bertlib.runs import estimator_setup
app.define_help_flags()
before = set(flags.FLAGS)
app.run = lambda main: print("\\n".join(name for name in flags.FLAGS if name not in before))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    path = tmp_path_factory.mktemp("help") / "probe.py"
    path.write_text(PROBE)
    return path


@pytest.mark.parametrize("command", sorted(OUR_COMMANDS | PUBLISHED_COMMANDS))
def test_help_shows_all_flags_in_sections(command, scripts, probe, tmp_path):
    done = scripts.run(f"{command}.py", "--help", cwd=tmp_path)
    assert done.code == 0 and not done.err
    defined = scripts.run(probe, f"{ROOT}/{command}.py", cwd=tmp_path).out.split()
    shown = re.findall(r"^  --(?:\[no\])?(\w+)", done.out, re.M)
    assert len(shown) == len(set(shown)) and set(shown) == set(defined) and len(shown) > 2
    headings = re.findall(r"\n\n(\w.*):\n  --", done.out)
    assert len(headings) >= 2 and headings[-1] == "When it fails"
    description, flags = done.out.split(f"\n\n{headings[0]}:\n")
    assert len(description) > 80 and max(map(len, flags.splitlines())) <= 110


def test_help_gives_defaults_and_choices(scripts, tmp_path):
    out = " ".join(scripts.run("run_squad.py", "--help", cwd=tmp_path).out.split())
    assert "--max_seq_length WordPieces of an input, [CLS] and [SEP] included." in out
    assert "(default: 384)" in out
    assert "--precision=<bf16|fp16|fp32> What the encoder computes in:" in out and "(default: fp32)" in out
    assert "--[no]do_lower_case" in out and "(default: true)" in out


def test_a_flag_that_there_is_not_is_refused_with_the_nearest(scripts, tmp_path):
    done = scripts.run("run_classifier.py", "--task_nam=MRPC", cwd=tmp_path)
    assert done.code == 1 and "Unknown command line flag 'task_nam'. Did you mean: task_name ?" in done.err
    assert len(done.err.splitlines()) < 5
