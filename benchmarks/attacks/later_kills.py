"""Kills commands with SIGKILL at random moments: commands that do not train, trainings of taggers, and
replicas.

After each kill, the files that already have their final names must be equal to the files of an undisturbed
run. Then the same command is started again. It must write the same bytes as the undisturbed run, and must
leave no unfinished file.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import time

from attacks import kills, world
from attacks.files_and_servers import _SQUAD_PATHS, _squad
from attacks.trial import Bad, contents_of, unfinished_in
from file_server import Server

# TensorFlow writes a random number into this file, so the file is not compared.
_RANDOM_FILES = ("fingerprint.pb",)
_TRAINING = dict(world.STEPS, num_train_epochs=4, save_checkpoints_steps=2)
_NER = dict(world.MODEL, **_TRAINING, train_file="data/tags.conll", dev_file="data/tags.conll",
            test_file="data/tags.conll", do_train=True, do_eval=True, do_predict=True, token_column=2,
            tag_column=3, output_dir="out")
_REPLICAS = dict(world.MODEL, **_TRAINING, train_file="data/single.csv", dev_file="data/single.csv",
                 output_dir="out", num_replicas=2)
_ASKED = dict(model_dir="single", input_file="asked.jsonl", batch_size=4)
# {name: (script, flags, model that the script reads, kind of the output)}. The kinds are "files" (a file or a
# directory of files), "versions" (exports), "versions with text" (exports that take text), and "training"
# (the output directory of a training).
SETTINGS = {
    "predict": ("predict.py", dict(_ASKED, output_file="out/answers.jsonl"), "single", "files"),
    "predict, .gz": ("predict.py", dict(_ASKED, output_file="out/answers.jsonl.gz"), "single", "files"),
    "vectors": ("extract_features.py", dict(init_checkpoint="single", input_file="lines.txt", layers="-1",
                                            max_seq_length=20, output_file="out/vectors.jsonl"),
                "single", "files"),
    "export": ("export.py", dict(model_dir="single", output_dir="out", warmup_requests=1), "single",
               "versions"),
    "export with text": ("export.py", dict(model_dir="single", output_dir="out", warmup_requests=0,
                                           text=True), "single", "versions with text"),
    "convert": ("convert_checkpoint.py", dict(input="single", output="out"), "single", "files"),
    "convert, weights only": ("convert_checkpoint.py", dict(input="tags", output="out", weights_only=True),
                              "tags", "files"),
    "download": ("download.py", dict(data="squad1.1", output_dir="out"), "single", "files"),
    "run_ner": ("run_ner.py", _NER, "tags", "training"),
    "replicas": ("run_classifier.py", _REPLICAS, "single", "training"),
    "replicas predict": ("predict.py", dict(_ASKED, num_replicas=2, output_file="out/answers.jsonl"),
                         "single", "files"),
}
_WEIGHTS = {"run_ner": 2, "replicas": 1, "replicas predict": 1, "download": 2}


def kill(trial):
    """Chooses one of the commands in `SETTINGS` at random, and starts and kills it one to three times. Then
    the same command runs to its end, and its output must be the output of an undisturbed run."""
    chance = trial.chance
    setting = chance.choices(sorted(SETTINGS), [_WEIGHTS.get(name, 3) for name in sorted(SETTINGS)])[0]
    script, flags, model, written = SETTINGS[setting]
    trial.note(setting)
    _inputs(trial, model)
    with _server(setting) as address:
        flags = {**flags, "base_url": address}
        environment = {"no_proxy": "*"}
        if setting not in trial.memory:
            began = time.time()
            trial.expect(trial.run(script, environment=environment, **flags), "right")
            trial.memory[setting] = time.time() - began, _state(trial.here / "out", written)
            shutil.rmtree(trial.here / "out")
            trial.commands.append("rm -r out")
        seconds, expected = trial.memory[setting]
        for _ in range(chance.randint(1, 3)):
            moment = chance.uniform(0.02, 1.05) * seconds
            code = trial.kill(trial.start(script, environment=environment, **flags), moment)
            _wait_for_the_rest(trial.here)
            if code not in (0, -9) and not _is_there(trial, script, written, expected):
                raise Bad("killed, fails", f"the command ended with exit code {code} before it was killed")
            if written != "training" and (trial.here / "out").exists():
                _check_whole(_state(trial.here / "out", written), expected)
        finished = trial.run(script, environment=environment, **flags)
    if finished.code and not _is_there(trial, script, written, expected):
        raise Bad("killed, fails", finished.err[-700:])
    found = _state(trial.here / "out", written)
    if wrong := sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name)):
        raise Bad("killed, other bits", f"these files or tensors differ from those of the undisturbed run: "
                  f"{wrong[:5]}")
    if left := unfinished_in(trial.here):
        raise Bad("left behind", ", ".join(os.path.relpath(path, trial.here) for path in left))


def _is_there(trial, script, written, expected):
    """Returns whether the complete output of a conversion exists.

    A conversion may be killed after its output is complete. If it is then started again, it has to fail,
    because a conversion never overwrites files.
    """
    return script == "convert_checkpoint.py" and _state(trial.here / "out", written) == expected


def _inputs(trial, model):
    """Writes the inputs of the commands.

    The inputs are the same in each case, so all cases of a worker can share the output of one undisturbed
    run.
    """
    trial.world.take(trial.here, model)
    chance = random.Random(5)
    (trial.here / "asked.jsonl").write_text("".join(json.dumps({"text": world.words(chance)}) + "\n"
                                                    for _ in range(600)))
    (trial.here / "lines.txt").write_text("".join(world.words(chance) + "\n" for _ in range(300)))


@contextlib.contextmanager
def _server(setting):
    """For the setting "download", starts a server with files of SQuAD and yields its address. For all other
    settings, yields None."""
    if setting != "download":
        yield None
        return
    chance = random.Random(5)
    files = {path: _squad(chance)[:-1] + b" " * (8 << 20) + b"}" for path in _SQUAD_PATHS}
    with Server(files) as server:
        server._server.handle_error = lambda *_: None  # if the client was killed, print no traceback
        yield server.address


def _wait_for_the_rest(here):
    """Waits until no process has the working directory `here`.

    If a launcher was killed, its replicas end by themselves, but a little later.
    """
    end = time.time() + 60
    while time.time() < end and any(_works_in(path, here) for path in pathlib.Path("/proc").glob("[0-9]*")):
        time.sleep(0.1)


def _works_in(process, here):
    with contextlib.suppress(OSError):
        return os.readlink(process / "cwd") == str(here)
    return False


def _state(directory, written):
    """Returns the output of a command as a dict: {name of a file or tensor: its content}."""
    if written == "training":
        name, tensors = kills.tensors_of(directory)
        results = {path.name: path.read_bytes() for pattern in ("*results.txt", "*.conll")
                   for path in directory.glob(pattern)}
        return {"checkpoint": name, **tensors, **results}
    if written.startswith("versions"):
        versions = sorted(path for path in directory.iterdir() if path.name.isdigit())
        found = {} if not versions else {name: content for name, content in contents_of(versions[-1]).items()
                                         if os.path.basename(name) not in _RANDOM_FILES}
        # If the exported model takes text, its saved_model.pb contains random names of tables. The names
        # have a fixed length, so only the size of the file is compared.
        if found and "text" in written:
            found["saved_model.pb"] = (versions[-1] / "saved_model.pb").stat().st_size
        return found
    return {name: content for name, content in contents_of(directory).items()
            if not any(map(_is_unfinished, pathlib.Path(name).parts))}


def _is_unfinished(part):
    return ".partial" in part or part.endswith(".tempstate") or part.startswith((".", "temp-", "tmp"))


def _check_whole(found, expected):
    """Raises `Bad` if a file has its final name but not its final content."""
    if wrong := sorted(name for name, content in found.items() if expected.get(name) != content):
        raise Bad("half written", f"after the kill, these files have their final names, but not their final "
                  f"content: {wrong[:5]}")
