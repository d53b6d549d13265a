"""--help of each command lists the most important flags, and --helpfull lists all flags, in sections."""

import re

from helpers import ROOT
import pytest
from test_rooms import OUR_COMMANDS, PUBLISHED_COMMANDS

# Prints the names of the flags that a command defines, and the names of the flags of absl and of the test
# server.
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


# Only --helpfull lists these flags.
ADVANCED = {"use_tpu", "tpu_name", "tpu_zone", "gcp_project", "master", "num_tpu_cores",
            "iterations_per_loop", "recompute_segment", "compile_kernels", "gradient_dtype", "num_workers",
            "features_cache", "tokens_per_micro_batch", "adam_bias_correction", "replica_timeout",
            "max_restarts",
            "protect_special_tokens", "xnli_language", "label_separator", "profile_steps", "log_steps",
            "tf32", "deterministic", "gpu_allow_growth", "weight_decay", "clip_norm", "keep_checkpoint_max",
            "layer_decay", "reinit_layers", "freeze_embeddings"}


def flags_by_heading(text):
    """Returns {heading: [names of flags]} of a help text, in the order of the text."""
    parts = re.split(r"\n\n(\w.*):\n(?=  --)", text)
    return {heading: re.findall(r"^  --(?:\[no\])?(\w+)", flags, re.M)
            for heading, flags in zip(parts[1::2], parts[2::2])}


@pytest.mark.parametrize("command", sorted(OUR_COMMANDS | PUBLISHED_COMMANDS))
def test_help_shows_everyday_flags_and_helpfull_all(command, scripts, probe, tmp_path):
    everyday = scripts.run(f"{command}.py", "--help", cwd=tmp_path)
    full = scripts.run(f"{command}.py", "--helpfull", cwd=tmp_path)
    assert everyday.code == full.code == 0 and not everyday.err and not full.err
    defined = scripts.run(probe, f"{ROOT}/{command}.py", cwd=tmp_path).out.split()

    sections = flags_by_heading(everyday.out)
    shown = sum(sections.values(), [])
    assert len(shown) == len(set(shown)) and set(shown) == set(defined) - ADVANCED and len(shown) > 2
    assert len(sections) >= 2 and list(sections)[-1] == "Errors"
    description, flags = everyday.out.split(f"\n\n{next(iter(sections))}:\n")
    assert len(description) > 80 and max(map(len, flags.splitlines())) <= 110
    last = " ".join(everyday.out.split("\n\n")[-1].split())
    number = len(set(defined) & ADVANCED)
    assert last.startswith(f"--helpfull lists {number} more flags: " if number else "--helpfull lists the ")

    all_sections = flags_by_heading(full.out)
    foreign = set(all_sections.pop("Flags of absl and TensorFlow"))
    headings = list(all_sections)
    assert headings[:len(sections)] == list(sections)
    assert all(heading.startswith("Advanced: ") for heading in headings[len(sections):])
    ours = sum(all_sections.values(), [])
    assert len(ours) == len(set(ours)) and set(ours) == set(defined)
    assert {"verbosity", "flagfile", "helpfull"} <= foreign and not foreign & set(ours)


def test_help_gives_defaults_and_choices(scripts, tmp_path):
    out = " ".join(scripts.run("run_squad.py", "--help", cwd=tmp_path).out.split())
    assert "--max_seq_length Maximum number of WordPieces in an input, including [CLS] and [SEP]." in out
    assert "(default: 384)" in out
    assert "--precision=<bf16|fp16|fp32> Number format of the encoder's computation." in out
    assert "(default: fp32)" in out
    assert "--[no]do_lower_case" in out and "(default: true)" in out


def test_the_page_of_flags_is_the_rendered_one(scripts, tmp_path):
    done = scripts.run("docs/render_flags.py", "flags.md", cwd=tmp_path)
    page = (ROOT / "docs" / "reference" / "flags.md").read_text(encoding="utf-8")
    written = (tmp_path / "flags.md").read_text(encoding="utf-8")
    assert (done.code, done.out) == (0, "") and written == page, "run docs/render_flags.py"
    assert set(re.findall(r"^### (\w+)\.py$", page, re.M)) == OUR_COMMANDS | PUBLISHED_COMMANDS
    assert page.count("\n| `--use_tpu` |") == 1
    assert page.index("`--use_tpu`") > page.index("## Advanced flags")


def test_a_flag_that_there_is_not_is_refused_with_the_nearest(scripts, tmp_path):
    done = scripts.run("run_classifier.py", "--task_nam=MRPC", cwd=tmp_path)
    assert done.code == 1 and "Unknown command line flag 'task_nam'. Did you mean: task_name ?" in done.err
    assert len(done.err.splitlines()) < 5
