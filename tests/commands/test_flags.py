"""The flags of the commands: --help and --helpfull, classes, refused values and the page of flags."""

import ast
import copy
import json
import re
import subprocess
import sys

from helpers import ROOT
import pytest
from test_architecture import OUR_COMMANDS, PUBLISHED_COMMANDS

from bertlib.runs import registry
from bertlib.runs.entries import WEIGHTS
from bertlib.runs.input_paths import absolute_paths
from bertlib.runs.settings import Settings

COMMANDS = sorted(OUR_COMMANDS | PUBLISHED_COMMANDS)
_POSITIVE, _NUMBER = "must be a whole number from 1 to 2147483647", "must be a number above 0"
# (command, flag and value, part of the message).
REFUSED = [
    *(("run_classifier", f"--{text}", said) for text, said in [
        ("train_batch_size=0", _POSITIVE), ("train_batch_size=nan", "int()"), ("num_train_epochs=0", _NUMBER),
        ("num_train_epochs=1e+308", "above 0 and at most 1e+09"),
        ("memory_limit_gb=inf", "must be a number of at least 0 and at most"),
        ("seed=9223372036854775808", "to 9223372036854775807"), ("do_train=maybe", "boolean flag"),
        ("max_seq_lenght=20", "Unknown command line flag 'max_seq_lenght'. Did you mean: max_seq_length"),
        ("xnli_language=xx", "ar|bg|de|"), ("init_checkpoint= ", "--init_checkpoint is empty."),
        ("threshold=1.5", "must be a number above 0 and below 1"),
        ("delimiter=||", "must be auto, comma, semicolon, tab, pipe or a single character"),
        ("encoding=hex", "must be the name of a text encoding of Python"),
        *((f"marker_tokens={tokens}", "must be different tokens without blanks")
          for tokens in ("", "[E1],", "[E 1]", "[E1],[E1]")),
        *((f"profile_steps={steps}", "must be two numbers a,b with 1 <= a <= b")
          for steps in ("3", "2,1", "0,1", "a,b", ""))]),
    ("run_squad", "--null_score_diff_threshold=nan", "must be a finite number"),
    ("create_pretraining_data", f"--max_predictions_per_seq={10**30}", "65536"),
    ("create_pretraining_data", "--num_workers=1025", "1024"),
    ("build_vocab", f"--vocab_size={10**20}", "16777216"), ("build_vocab", "--num_unused=1000000000000", "")]


@pytest.fixture(scope="module")
def described(scripts, tmp_path_factory):
    """What describe_flags.py prints: ({command: its flags}, messages on `REFUSED`)."""
    lines = [(command, []) for command in COMMANDS] + [(command, [text]) for command, text, _ in REFUSED]
    here = tmp_path_factory.mktemp("flags")
    done = scripts.run("tests/commands/describe_flags.py", json.dumps(lines), cwd=here)
    done.assert_success()
    commands, replies = json.loads(done.out)
    assert replies[:len(COMMANDS)] == [None] * len(COMMANDS)
    return commands, replies[len(COMMANDS):]


def test_values_that_cannot_be_are_refused_with_their_flag(described):
    for (command, text, expected), reply in zip(REFUSED, described[1], strict=True):
        assert reply is not None and expected in reply, (command, text, reply)
        assert text.partition("=")[0].removeprefix("--") in reply


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_from_a_shell_variable_that_is_not_set_is_refused(command, described):
    replies = described[0][command]["empty"]
    assert replies or command == "compare_results"
    assert all(reply.startswith(f"--{name} is empty. Pass a path,") for name, reply in replies.items())


def test_the_home_directory_in_a_path_is_found(scripts, tmp_path, monkeypatch):
    done = scripts.run("export.py", "--model_dir=~/none", "--output_dir=a", cwd=tmp_path, HOME=str(tmp_path))
    assert f"--model_dir={tmp_path}/none: there is no such directory" in done.err
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_paths("input_file", "~/a,b~,~/c", "/here") == f"{tmp_path}/a,/here/b~,{tmp_path}/c"


def flags_by_heading(text):
    """Returns {heading: [names of flags]} of a help text, in the order of the text."""
    parts = re.split(r"\n\n(\w.*):\n(?=  --)", text)
    return {heading: re.findall(r"^  --(?:\[no\])?(\w+)", flags, re.M)
            for heading, flags in zip(parts[1::2], parts[2::2])}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_everyday_flags_and_helpfull_all(command, described):
    found = described[0][command]
    everyday, full, defined = found["help"], found["helpfull"], found["classes"]
    sections = flags_by_heading(everyday)
    shown = sum(sections.values(), [])
    assert sorted(shown) == sorted(set(defined) - set(found["advanced"])) and list(sections)[-1] == "Errors"
    description, flags = everyday.split(f"\n\n{next(iter(sections))}:\n")
    assert len(description) > 80 and max(map(len, flags.splitlines())) <= 110
    last = " ".join(everyday.split("\n\n")[-1].split())
    number = len(found["advanced"])
    assert last.startswith(f"--helpfull lists {number} more flags: " if number else "--helpfull lists the ")

    all_sections = flags_by_heading(full)
    foreign = set(all_sections.pop("Flags of absl and TensorFlow"))
    headings = list(all_sections)
    assert headings[:len(sections)] == list(sections)
    assert all(heading.startswith("Advanced: ") for heading in headings[len(sections):])
    ours = sum(all_sections.values(), [])
    assert sorted(ours) == sorted(defined)
    assert {"verbosity", "flagfile", "helpfull"} <= foreign and not foreign & set(ours)


def test_help_gives_defaults_and_choices(described):
    text = " ".join(described[0]["run_squad"]["help"].split())
    for part in ("(default: 384)", "--precision=<bf16|fp16|fp32> Number format", "--[no]do_lower_case"):
        assert part in text


def test_the_page_of_flags_is_the_rendered_one(run_script, tmp_path):
    done = run_script("docs/render_flags.py", "flags.md")
    page = (ROOT / "docs" / "reference" / "flags.md").read_text(encoding="utf-8")
    written = (tmp_path / "flags.md").read_text(encoding="utf-8")
    assert (done.code, done.out) == (0, "flags.md: changed\n") and written == page, "run docs/render_flags.py"
    assert set(re.findall(r"^### (\w+)\.py$", page, re.M)) == OUR_COMMANDS | PUBLISHED_COMMANDS
    assert page.count("\n| `--use_tpu` |") == 1
    assert page.index("`--use_tpu`") > page.index("## Advanced flags")


@pytest.mark.parametrize("arguments, said", [
    (["stray", "3"], "This command takes only flags, written as --name=value. Remove or correct: stray 3."),
    (["--flagfile=b.flags"], "Remove or correct: a line of the --flagfile without --name=."),
    (["--flagfile=a.flags"], "a file that --flagfile names is not UTF-8")])
def test_a_command_refuses_arguments_in_one_message(arguments, said, run_script, tmp_path):
    (tmp_path / "a.flags").write_bytes(b"--output_dir=caf\xe9\n")
    (tmp_path / "b.flags").write_text("a-secret\n")
    done = run_script("run_classifier.py", *arguments)
    done.assert_refused(said)
    assert "a-secret" not in done.err
    assert len(done.err.splitlines()) < 5


def test_without_the_environment_each_command_says_how_to_get_it(tmp_path):
    runs = {command: subprocess.Popen([sys.executable, "-S", ROOT / f"{command}.py", "--help"], cwd=tmp_path,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
            for command in COMMANDS}
    for command, run in runs.items():
        out, message = run.communicate(timeout=100)
        assert (run.returncode, out) == (1, "") and len(message.splitlines()) == 1, message
        assert message.startswith(f"{command}.py: error: No module named 'absl'. Activate the environment")
        assert ". .venv/bin/activate" in message and "pip install -r requirements.txt" in message


def test_a_phase_that_is_false_turns_off_the_others():
    phases = dict.fromkeys(("do_train", "do_eval", "do_predict"), False)
    with pytest.raises(ValueError, match="^Nothing to do: --do_eval is on the command line, so all other "):
        Settings(phases, {"do_eval"}).choose_phases()
    settings = Settings(phases)
    settings.choose_phases()
    assert settings.do_train and settings.do_eval and not settings.do_predict


def test_no_flag_changes_after_freeze():
    settings = Settings({"output_dir": "here", "max_steps": 3})
    settings.set_default("output_dir", "there")
    settings.freeze()
    with pytest.raises(AttributeError, match="max_steps: the flags of this run are final"):
        settings.max_steps = 4
    with pytest.raises(AttributeError, match="output_dir"):
        settings.inherit({"output_dir": "here"})
    assert (settings.output_dir, settings.max_steps) == ("there", 3)


def test_settings_behave_like_an_object_with_attributes():
    settings = Settings({"output_dir": "here", "max_steps": 3})
    other = copy.copy(settings)
    other.max_steps = 4
    assert (settings.max_steps, other.max_steps) == (3, 4)
    with pytest.raises(AttributeError):
        settings.output_directory = "there"
    with pytest.raises(AttributeError, match="results_dir: the command has no flag of this name"):
        _ = settings.results_directory


def test_each_flag_that_changes_the_weights_is_used():
    # An entry of the table and a field of `StepConfig` alone have no effect.
    trees = (ast.parse(path.read_text(encoding="utf-8"))
             for path in (*ROOT.glob("*.py"), *ROOT.glob("bertlib/**/*.py")))
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {entry.name for command in registry.COMMANDS for entry in registry.find_flags(command)
             if entry.category == WEIGHTS}
    assert "clip_norm" in names and names <= read
