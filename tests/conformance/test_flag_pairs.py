"""All pairs of values of the flags of a command: each run ends well and writes all of its files.

flag_values.py contains the values, and the pairs that a command refuses. tests/data/result_files.json
contains the files of a finished run.
"""

import csv
import fnmatch
import functools
import json
import shutil

import flag_values
from helpers import DATA
import model_directories
from model_directories import linear
import pytest
import rows
import tiny

RESULT_FILES = json.loads((DATA / "result_files.json").read_text(encoding="utf-8"))
PHASES = ("do_train", "do_eval", "do_predict")
# A short training: two steps.
SHORT = {script: {"num_train_epochs": 0.5, "do_predict": False} for script in flag_values.TRAINING_COMMANDS}
SHORT["run_squad.py"] = {"num_train_epochs": 0.5}
SHORT["run_pretraining.py"] = {"num_train_steps": 2, "num_warmup_steps": 1}


@pytest.fixture(scope="module")
def workspace(scripts, tiny_model, tmp_path_factory):
    """A function that returns the `rows.Workspace` of a row, without a training."""
    @functools.cache
    def create(name):
        return rows.Workspace.create(rows.ROWS[name], scripts, tmp_path_factory.mktemp("pairs") / "work",
                                     tiny_model)
    return create


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
    names = {path.name for folder in ("output", "results") for path in (directory / folder).glob("*")}
    required, possible = expected_files(script, flags)
    missing = {pattern for pattern in required if not fnmatch.filter(names, pattern)}
    unknown = {name for name in names - {".lock"} if not any(map(functools.partial(fnmatch.fnmatch, name),
                                                                 possible))}
    return f"missing: {sorted(missing)}, unknown: {sorted(unknown)}" if missing or unknown else None


@pytest.mark.soak(reason="about twenty trainings for each command")
@pytest.mark.parametrize("script", flag_values.TRAINING_COMMANDS)
def test_all_pairs_of_flags_of_a_training_command(script, workspace):
    problems = []
    for case in flag_values.combinations(script):
        work = workspace(case.pop("row"))
        flags = training_flags(work.row, case)
        problem = find_problem(script, work.run(script, **flags), flags, work.directory)
        if problem:
            problems.append(f"{script} {' '.join(tiny.flags(**flags))}\n{problem}\n")
        for folder in ("output", "results"):
            shutil.rmtree(work.directory / folder, ignore_errors=True)
    assert not problems, "\n".join(problems)


@pytest.mark.slow(reason="one refused command line for each pair in the table of refused pairs")
@pytest.mark.parametrize("script", flag_values.TRAINING_COMMANDS)
def test_refused_pairs_of_flags_of_a_training_command_are_named(script, workspace):
    problems = []
    for case in flag_values.REFUSED[script]:
        case = {"row": flag_values.PARAMETERS[script]["row"][0]["row"], **case}
        work = workspace(case.pop("row"))
        done = work.run(script, **training_flags(work.row, case))
        if not is_refusal(script, done, case) or work.output.exists():
            problems.append(f"{script} {case}\n{done.err[-1500:]}")
    assert not problems, "\n".join(problems)


def is_refusal(script, done, flags):
    """Returns whether a run ended with one error message, and the message names one of the flags."""
    errors = [line for line in done.err.splitlines() if line.startswith(f"{script}: error: ")]
    return (done.code == 1 and len(errors) == 1 and "Traceback" not in done.err
            and any(f"--{name}" in errors[0] for name in flags))


# --- Commands that use a trained model -------------------------------------------------------------------

# {kind of a model: (variables of its head, labels)}.
HEADS = {"classification": (linear(2), ["no", "yes"]), "regression": (linear(1), None),
         "multilabel": (linear(2), ["red", "green"]), "tagging": (linear(5), model_directories.TAGS),
         "questions": ({"cls/squad/output_weights": (2, 16), "cls/squad/output_bias": (2,)}, None)}


@pytest.fixture(scope="module")
def models(tiny_model, tmp_path_factory):
    """A directory with a model of each kind, and inputs of three formats for each model."""
    directory = tmp_path_factory.mktemp("models")
    for kind, (head, labels) in HEADS.items():
        (directory / kind).mkdir()
        model_directories.write(directory / kind / "model", tiny_model, kind, head, labels, task="own data",
                                doc_stride=8, max_query_length=8)
        names = {"questions": ["question", "context"], "tagging": ["text"]}.get(kind, ["text_a"])
        lines = [["the cat sees", "a dog"][:len(names)], ["=1", "a paper"][:len(names)]]
        (directory / kind / "lines.jsonl").write_text(
            "".join(json.dumps(dict(zip(names, line))) + "\n" for line in lines))
        (directory / kind / "lines.csv").write_text(
            "".join(",".join(line) + "\n" for line in [names, *lines]))
        (directory / kind / "lines.txt").write_text("".join(" ||| ".join(line) + "\n" for line in lines))
    return directory


def has_answered(directory, flags, done):
    """Returns whether predict.py has answered both lines."""
    path = directory / flags.get("output_file", "-")
    return "Lines answered: 2." in done.err and bool(path.exists() or done.out)


def has_exported(directory, flags, done):
    """Returns whether export.py has written a version."""
    return bool(list(directory.rglob("exported/*" if "output_dir" in flags else "model/export*/*")))


@pytest.mark.soak(reason="about twenty runs of each command")
@pytest.mark.parametrize("script, is_complete", [("predict.py", has_answered), ("export.py", has_exported)])
def test_all_pairs_of_flags_with_a_trained_model(script, is_complete, models, scripts, tmp_path):
    problems = []
    for number, case in enumerate(flag_values.combinations(script)):
        directory = tmp_path / str(number)
        shutil.copytree(models / case.pop("row"), directory)
        flags = {"model_dir": "model", **case}
        done = scripts.run(script, *tiny.flags(**flags), cwd=directory)
        if done.code or "Traceback" in done.err or not is_complete(directory, flags, done):
            problems.append(f"{directory}: {script} {' '.join(tiny.flags(**flags))}\n{done.err[-1500:]}")
    assert not problems, "\n".join(problems)


@pytest.mark.slow(reason="one refused command line for each pair in the table of refused pairs")
@pytest.mark.parametrize("script", ["predict.py", "export.py"])
def test_refused_pairs_of_flags_with_a_trained_model_are_named(script, models, scripts, tmp_path):
    problems = []
    for case in flag_values.REFUSED[script]:
        flags = {"model_dir": "model", **case}
        directory = models / flags.pop("row", "classification")
        done = scripts.run(script, *tiny.flags(**flags), cwd=directory)
        if not is_refusal(script, done, [*case, "text_column"]):
            problems.append(f"{script} {case}\n{done.err[-1500:]}")
    assert not problems, "\n".join(problems)


@pytest.mark.soak(reason="seven sweeps, each with one or two trainings")
def test_all_pairs_of_flags_of_a_sweep(workspace):
    problems = []
    for number, case in enumerate(flag_values.combinations("sweep.py")):
        work = workspace(case.pop("row"))
        training = training_flags(work.row, {"output_dir": None})
        flags = {"sweep_dir": f"sweep{number}", "grid": "seed=1", "metric": "eval_accuracy", **case}
        done = work.run("sweep.py", *tiny.flags(**flags), "--", "python", work.row.script,
                        *tiny.flags(**{name: value for name, value in training.items()
                                       if name != "output_dir"}))
        sweep = work.directory / flags["sweep_dir"]
        if done.code or "Traceback" in done.err or not has_swept(sweep, flags):
            problems.append(f"sweep.py {' '.join(tiny.flags(**flags))}\n{done.err[-1500:]}")
    assert not problems, "\n".join(problems)


def has_swept(sweep, flags):
    """Returns whether the directory of a sweep contains its tables, and the checkpoints to keep."""
    runs = flags.get("samples", flags["grid"].count(",") + 1)
    kept = {"best": 1, "all": runs, "none": 0}[flags.get("keep_checkpoints", "best")]
    with open(sweep / "sweep.csv", newline="") as table:
        finished = [row["status"] for row in csv.DictReader(table)] == ["finished"] * runs
    return finished and len(list(sweep.glob("runs/*/checkpoint"))) == kept and (sweep / "sweep.html").exists()
