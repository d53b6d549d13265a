"""All pairs of values of the flags of a command: each run ends well and writes all of its files.

flag_values.py contains the values, and the pairs that a command refuses. tests/data/result_files.json
contains the files of a finished run.
"""

import fnmatch
import functools
import itertools
import json
import shutil

import flag_values
from helpers import DATA
import pytest
import rows
import tiny

RESULT_FILES = json.loads((DATA / "result_files.json").read_text(encoding="utf-8"))
PHASES = ("do_train", "do_eval", "do_predict")
# A short training: two steps.
SHORT = {script: {"num_train_epochs": 0.5, "do_predict": False} for script in flag_values.TRAINING_COMMANDS}
SHORT["run_squad.py"] = {"num_train_epochs": 0.5}
SHORT["run_pretraining.py"] = {"num_train_steps": 2, "num_warmup_steps": 1}


def training_flags(row, case):
    """Returns {flag: value} of a training with the flags of a combination."""
    values = {name: {"METRIC": row.metric, "RESULTS": "results"}.get(value, value)
              for name, value in case.items()}
    deep = {"bert_config_file": "model/bert_config.json"} if "bert_config_file" in row.base else {}
    return row.training_flags(**{**deep, **SHORT[row.script], **values, "output_dir": "output"})


def expected_files(script, flags):
    """Returns (patterns of the files that a finished training has written, patterns of all possible files).

    Args:
      script: the command.
      flags: {flag: value} on the command line.
    """
    phases = {name: flags.get(name) for name in PHASES}
    if not any(name in flags for name in PHASES):
        phases.update(do_train=True, do_eval=True)
    table = [pattern for source in ("every training", script)
             for names, patterns in RESULT_FILES[source].items()
             if all({**flags, **phases}.get(flag) for flag in names.split(" and ")) for pattern in patterns]
    table = [pattern.format(predictions_format=flags.get("predictions_format", "csv")) for pattern in table]
    return ({pattern for pattern in table if not pattern.endswith("?")},
            {pattern.removesuffix("?") for pattern in table})


def find_problem(script, done, flags, directory):
    """Returns a description if a run did not end well, or if files are missing or unknown; otherwise None."""
    if done.code or "Traceback" in done.err:
        return f"exit code {done.code}: {done.err[-1500:]}"
    if script in IS_COMPLETE:
        return None if IS_COMPLETE[script](directory, flags, done) else "the result is not complete"
    names = {path.name for folder in ("output", "results") for path in (directory / folder).glob("*")}
    required, possible = expected_files(script, flags)
    missing = {pattern for pattern in required if not fnmatch.filter(names, pattern)}
    unknown = {name for name in names - {".lock"} if not any(map(functools.partial(fnmatch.fnmatch, name),
                                                                 possible))}
    return f"missing: {sorted(missing)}, unknown: {sorted(unknown)}" if missing or unknown else None


def is_refusal(script, done, flags):
    """Returns whether a run ended with one error message, and the message names one of the flags."""
    errors = [line for line in done.err.splitlines() if line.startswith(f"{script}: error: ")]
    return (done.code == 1 and len(errors) == 1 and "Traceback" not in done.err
            and any(f"--{name}" in errors[0] for name in flags))


# --- Commands that use a trained model -------------------------------------------------------------------


def write_inputs(row, directory):
    """Writes two inputs of the model of a row, in three formats."""
    names = {"SQuAD 1.1": ["question", "context"], "regression": ["text_a", "text_b"]}.get(row, ["text"])
    lines = [["the cat sees", "a dog"][:len(names)], ["=1", "a paper"][:len(names)]]
    for ending, texts in {"jsonl": [json.dumps(dict(zip(names, line))) for line in lines],
                          "csv": map(",".join, [names, *lines]), "txt": map(" ||| ".join, lines)}.items():
        (directory / f"lines.{ending}").write_text("".join(f"{text}\n" for text in texts))


def has_answered(directory, flags, done):
    """Returns whether predict.py has answered both lines."""
    path = directory / flags.get("output_file", "-")
    return "Lines answered: 2." in done.err and bool(path.exists() or done.out)


def has_exported(directory, flags, done):
    """Returns whether export.py has written a version."""
    return bool(list(directory.rglob("exported/*" if "output_dir" in flags else "output/export*/*")))


IS_COMPLETE = {"predict.py": has_answered, "export.py": has_exported}

# --- Runs of the combinations ----------------------------------------------------------------------------


@pytest.fixture
def run(scripts, workspaces, tmp_path):
    """A function that runs a command with the flags of a combination, in a copy of its directory. It returns
    (`Finished`, {flag: value}, the directory)."""
    numbers = itertools.count()

    def run_copy(script, row, **case):
        directory, is_training = tmp_path / str(next(numbers)), script in flag_values.TRAINING_COMMANDS
        work = workspaces(rows.ROWS[row], untrained=is_training)
        shutil.copytree(work.directory, directory)
        flags = training_flags(work.row, case) if is_training else {"model_dir": "output", **case}
        write_inputs(row, directory)
        return scripts.run(script, *tiny.flags(**flags), cwd=directory), flags, directory
    return run_copy


@pytest.mark.soak(reason="about twenty runs of each command")
@pytest.mark.parametrize("script", flag_values.PARAMETERS)
def test_all_pairs_of_flags(script, run):
    problems = []
    for case in flag_values.combinations(script):
        done, flags, directory = run(script, **case)
        problem = find_problem(script, done, flags, directory)
        if problem:
            problems.append(f"{directory}: {script} {' '.join(tiny.flags(**flags))}\n{problem}\n")
    assert not problems, "\n".join(problems)


@pytest.mark.slow(reason="one refused command line for each pair in the table of refused pairs")
@pytest.mark.parametrize("script", flag_values.REFUSED)
def test_refused_pairs_of_flags_are_named(script, run):
    problems, row = [], flag_values.PARAMETERS[script]["row"][0]
    for case in flag_values.REFUSED[script]:
        done, _, directory = run(script, **{**row, **case})
        # predict.py names the columns of the texts, which the task of a pair determines.
        if not is_refusal(script, done, [*case, *(["text_column"] if script == "predict.py" else [])]) or (
                script in flag_values.TRAINING_COMMANDS and (directory / "output").exists()):
            problems.append(f"{script} {case}\n{done.err[-1500:]}")
    assert not problems, "\n".join(problems)
