"""--help of each command lists the most important flags, and --helpfull lists all flags, in sections."""

import re
import sys

from helpers import ROOT
import pytest
from test_rooms import OUR_COMMANDS, PUBLISHED_COMMANDS

sys.path.insert(0, str(ROOT / "docs"))

import render_flags  # noqa: E402  after the path

from bertlib.command_line import common_flags  # noqa: E402


def flags_by_heading(text):
    """Returns {heading: [names of flags]} of a help text, in the order of the text."""
    parts = re.split(r"\n\n(\w.*):\n(?=  --)", text)
    return {heading: re.findall(r"^  --(?:\[no\])?(\w+)", flags, re.M)
            for heading, flags in zip(parts[1::2], parts[2::2])}


@pytest.mark.parametrize("command", ["run_classifier", "predict", "reproduce"])
def test_help_shows_everyday_flags_and_helpfull_all(command, scripts, tmp_path):
    everyday = scripts.run(f"{command}.py", "--help", cwd=tmp_path)
    full = scripts.run(f"{command}.py", "--helpfull", cwd=tmp_path)
    assert everyday.code == full.code == 0 and not everyday.err and not full.err
    entries = [*render_flags.module_of(command).ENTRIES, *common_flags.COMMON]
    names, advanced = {entry.name for entry in entries}, {entry.name for entry in entries if entry.advanced}

    sections = flags_by_heading(everyday.out)
    shown = sum(sections.values(), [])
    assert len(shown) == len(set(shown)) and set(shown) == names - advanced and len(shown) > 2
    assert len(sections) >= 2 and list(sections)[-1] == "Errors"
    description, flags = everyday.out.split(f"\n\n{next(iter(sections))}:\n")
    assert len(description) > 80 and max(map(len, flags.splitlines())) <= 110
    last = " ".join(everyday.out.split("\n\n")[-1].split())
    assert last.startswith(f"--helpfull lists {len(advanced)} more flags: " if advanced
                           else "--helpfull lists the ")

    all_sections = flags_by_heading(full.out)
    foreign = set(all_sections.pop("Flags of absl and TensorFlow"))
    headings = list(all_sections)
    assert headings[:len(sections)] == list(sections)
    assert all(heading.startswith("Advanced: ") for heading in headings[len(sections):])
    ours = sum(all_sections.values(), [])
    assert len(ours) == len(set(ours)) and set(ours) == names
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
