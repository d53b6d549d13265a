"""Tests commands whose output is, for example, a link or a device, and commands with nonsense in TF_CONFIG.

Also tests exports, and runs with several replicas or machines.
"""

import json
import os
import socket
import stat
import threading

from attacks import world
from attacks.bad_inputs import DEEP
from attacks.classifying import check_answers, read_answers
from attacks.trial import Bad, contents_of

# --- Output ----------------------------------------------------------------------------------------------

# Commands that write a file: (script, flag that names the file, extension of the file, other flags).
_WRITERS = [
    ("predict.py", "output_file", ".jsonl", dict(model_dir="single", input_file="asked.jsonl")),
    ("extract_features.py", "output_file", ".jsonl", dict(init_checkpoint="single", input_file="lines.txt",
                                                          layers="-1", max_seq_length=20)),
    ("build_vocab.py", "output_file", ".txt", dict(input_file="lines.txt", vocab_size=60)),
    ("create_pretraining_data.py", "output_file", ".tfrecord", dict(
        input_file="lines.txt", vocab_file="model/vocab.txt", max_seq_length=20, max_predictions_per_seq=3)),
]
_PLACES = ["device", "fifo", "link", "link to a device", "dangling link", "link in a directory", "directory",
           "nowhere/deep", "hard link", "full", ".gz"]


def _inputs(trial):
    trial.world.take(trial.here, "single")
    rows = world.rows(trial.chance, "single", 8)
    trial.write("asked.jsonl", "".join(json.dumps({"text": text}) + "\n" for (text,), _ in rows))
    trial.write("lines.txt", "\n\n".join("\n".join(world.words(trial.chance) for _ in range(4))
                                         for _ in range(4)) + "\n")


def outputs(trial):
    """Runs a command whose output path is not a plain file, but for example a device or a link.

    The command must write to the device or through the link, or refuse the output. It must not replace a link
    or a device by a file.
    """
    script, flag, ending, flags = trial.chance.choice(_WRITERS)
    place = trial.chance.choice(_PLACES)
    trial.note(place)
    _inputs(trial)
    first = trial.run(script, **flags, **{flag: f"plain{ending}"})
    trial.expect(first, "right")
    expected = (trial.here / f"plain{ending}").read_bytes()
    target = trial.here / f"target{ending}"
    name = f"out{ending}"
    path = trial.here / name
    must, read = "either", None
    if place in ("device", "link to a device", "full"):
        if os.geteuid():
            target.symlink_to("/dev/full" if place == "full" else "/dev/null")
        else:
            os.mknod(target, stat.S_IFCHR | 0o666, os.makedev(1, 7 if place == "full" else 3))
        path.symlink_to(target.name) if place == "link to a device" else target.rename(path)
        must = "refused" if place == "full" else "either"
    elif place == "fifo":
        os.mkfifo(path)
        read = _Reader(path)
    elif place in ("link", "hard link"):
        target.write_bytes(b"old")
        path.symlink_to(target.name) if place == "link" else os.link(target, path)
        must = "right"
    elif place == "dangling link":
        path.symlink_to(target.name)
        must = "right"
    elif place == "link in a directory":
        (trial.here / "folder").mkdir()
        path = trial.here / "folder" / name
        path.symlink_to(f"../{target.name}")
        name, must = f"folder/{name}", "right"
    elif place == "directory":
        path.mkdir()
        must = "refused"
    elif place == ".gz":
        name = f"{name}.gz"
        path = trial.here / name
    else:
        name, must = f"nowhere/deep/{name}", "right"
        path = trial.here / name
    if script == "build_vocab.py" and place in ("link", "hard link"):
        must = "refused"  # build_vocab.py never overwrites a vocabulary
    kind_before = os.lstat(path).st_mode if os.path.lexists(path) else None
    try:
        finished = trial.run(script, **flags, **{flag: name})
    finally:
        received = read.end() if read else None
    if kind_before is not None and stat.S_IFMT(os.lstat(path).st_mode) != stat.S_IFMT(kind_before):
        raise Bad("output replaced", f"{name} had the type {stat.filemode(kind_before)} before "
                  f"the run, and has {stat.filemode(os.lstat(path).st_mode)} now; exit code {finished.code}")
    if not trial.expect(finished, must):
        return
    if received is None and place not in ("device", "link to a device"):
        received = path.read_bytes()
    if place == ".gz":
        if received[:2] != b"\x1f\x8b" and script in ("predict.py", "extract_features.py"):
            raise Bad("wrong result", f"{name} is not compressed")
        return
    # Each of these commands writes the same bytes in every run, to every kind of output. `expected` contains
    # the bytes that the command wrote to a plain file.
    if received is not None and received != expected:
        raise Bad("wrong result", f"{place}: the output of {len(received)} bytes differs from the output "
                  f"of {len(expected)} bytes that the command writes to a plain file")


class _Reader:
    """Reads a FIFO until a command has ended."""

    def __init__(self, path):
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._found, self._ended = [], threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while True:
            last = self._ended.is_set()
            try:
                data = os.read(self._file, 65536)
            except BlockingIOError:
                data = b""
            if data:
                self._found.append(data)
            elif last:
                return
            else:
                self._ended.wait(0.02)

    def end(self):
        """Reads the remaining bytes, closes the FIFO, and returns all bytes that were read."""
        self._ended.set()
        self._thread.join()
        os.close(self._file)
        return b"".join(self._found)


def closed_outputs(trial):
    """If the answers cannot be written, the command must fail."""
    _inputs(trial)
    how = trial.chance.choice(["none", "full", "closed"])
    many = trial.chance.random() < 0.5
    trial.note(f"stdout {how}")
    if many:
        trial.write("asked.jsonl", '{"text": "the cat sees a dog"}\n' * 3000)
    finished = trial.run("predict.py", model_dir="single", input_file="asked.jsonl", stdout=how)
    trial.expect(finished, "refused")


# --- TF_CONFIG -------------------------------------------------------------------------------------------

_ALONE = {"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}
_TF_CONFIGS = [
    "", " ", "{", "[]", "null", "17", '"message"', "1e400", "NaN", DEEP, "{}", '{"cluster": null}',
    '{"cluster": {}}', '{"cluster": {"worker": []}}', '{"cluster": {"worker": null}}',
    '{"cluster": {"worker": "127.0.0.1:1"}}', '{"cluster": {"worker": [1, 2]}}', '{"task": 3}',
    '{"cluster": {"ps": ["127.0.0.1:1"]}}', '{"cluster": {"message": ["127.0.0.1:1"]}}',
    '{"cluster": {"worker": ["\\u001b[31m:1", "b:2"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["[::1"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["a:b", "c:d"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["a:99999999", "c:1"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["a:1e400", "c:1"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:1"]}, "task": {"type": "worker", "index": 1}}',
    json.dumps(_ALONE)]
_TASKS = [None, "x", -1, 1, 5, 10**30, 0.5, True, [], {}, float("nan"), "0", "1e400", "\x1b[31m"]


def tf_configs(trial):
    """Writes nonsense into TF_CONFIG. The command must refuse it, or run in one process."""
    chance = trial.chance
    if chance.random() < 0.5:
        config = chance.choice(_TF_CONFIGS)
    else:
        changed = json.loads(json.dumps(_ALONE))
        if chance.random() < 0.5:
            changed["cluster"]["worker"].append("127.0.0.1:2")
        key = chance.choice(["index", "type"])
        value = chance.choice(_TASKS)
        if key == "index" and value in (1, True):
            value = 7  # the index must be invalid: with 1, the command would wait for another machine
        changed["task"][key] = value
        if len(changed["cluster"]["worker"]) > 1 and key == "type" and value is None:
            changed["task"][key] = "x"
        config = json.dumps(changed)
    trial.note(config[:80])
    trial.world.take(trial.here, "single")
    rows = world.rows(chance, "single", 5)
    trial.write("asked.jsonl", "".join(json.dumps({"text": text}) + "\n" for (text,), _ in rows))
    if chance.random() < 0.7:
        finished = trial.run("predict.py", model_dir="single", input_file="asked.jsonl",
                             output_file="answers.jsonl", environment={"TF_CONFIG": config})
        if trial.expect(finished, "either"):
            found = read_answers(trial.here / "answers.jsonl")
            check_answers(trial, "single", [texts for texts, _ in rows],
                          [list(answer["probabilities"].values()) for answer in found])
    else:
        finished = trial.run("run_classifier.py", output_dir="single", test_file="asked.jsonl",
                             results_dir="results", environment={"TF_CONFIG": config})
        trial.expect(finished, "either")


# --- Replicas --------------------------------------------------------------------------------------------


def replicas(trial):
    """Runs predict.py with two replicas. Their answers must equal the answers of one process, even if a bad
    line is skipped."""
    chance = trial.chance
    name = chance.choice(["single", "pair"])
    kind = chance.choice(["plain", "bad line", "bad line skipped", "fewer lines than replicas", "empty"])
    trial.note(f"{name}: {kind}")
    trial.world.take(trial.here, name)
    count = {"fewer lines than replicas": 1, "empty": 0}.get(kind, 20)
    rows = world.rows(chance, name, count)
    texts = world.LAYOUTS[name][0]
    lines = [json.dumps(dict(zip(texts, row))) for row, _ in rows]
    if "bad" in kind:
        lines.insert(chance.randrange(len(lines)), chance.choice(['{"a": 1}', "nonsense", '{"text": ""}']))
    trial.write("asked.jsonl", "".join(f"{line}\n" for line in lines))
    finished = trial.run("predict.py", model_dir=name, input_file="asked.jsonl", batch_size=3, num_replicas=2,
                         output_file="answers.jsonl", skip_bad_lines="skipped" in kind or None)
    must = {"bad line": "refused", "empty": "either"}.get(kind, "right")
    if trial.expect(finished, must):
        found = [list(answer["probabilities"].values()) for answer in
                 read_answers(trial.here / "answers.jsonl") if "error" not in answer]
        check_answers(trial, name, [row for row, _ in rows], found)


def _free_ports(count):
    """Returns free ports of 127.0.0.1."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


_DISAGREEMENTS = ["nothing", "lines", "same number of other lines", "configuration", "vocabulary", "weights",
                  "run.json", "flags"]


def machines(trial):
    """Runs a command on two simulated machines, each with its own copy of the files. If the copies differ,
    the command must end with an error."""
    kind = trial.chance.choice(_DISAGREEMENTS)
    command = trial.chance.choice(["predict.py", "extract_features.py"])
    trial.note(kind)
    _inputs(trial)
    other = trial.here / "other"
    other.mkdir()
    for name in ("single", "model", "asked.jsonl", "lines.txt"):
        world.copy_of(trial.here / name, other / name)
    _disagree(trial, kind, other)
    ports = _free_ports(2)
    started = []
    # Server 1 needs time to start. It gets its command first, so that the chief (server 0) does not have to
    # wait for it.
    for index in (1, 0):
        at = "" if index == 0 else "other/"
        environment = {"TF_CONFIG": json.dumps({
            "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
            "task": {"type": "worker", "index": index}})}
        if command == "predict.py":
            flags = dict(model_dir=f"{at}single", input_file=f"{at}asked.jsonl", batch_size=2)
            if kind == "flags" and index:
                flags["batch_size"] = 3
        else:
            flags = dict(init_checkpoint=f"{at}single", input_file=f"{at}lines.txt", layers="-1",
                         batch_size=2, max_seq_length=20)
            if kind == "flags" and index:
                flags["layers"] = "0"
        started.append(trial.start(command, server=index, output_file=f"{at}out.jsonl",
                                   environment=environment, replica_timeout=30, **flags))
    ended = trial.finish_all(started[::-1])
    codes = [one.code for one in ended]
    if command == "predict.py" and "lines" in kind and codes == [0, 0]:
        # Only machine 0 reads the input lines and writes the answers. So it is no error if the lines on the
        # other machine are different.
        rows = [json.loads(line)["text"] for line in (trial.here / "asked.jsonl").read_text().splitlines()]
        answers = read_answers(trial.here / "out.jsonl")
        check_answers(trial, "single", [(text,) for text in rows],
                      [list(answer["probabilities"].values()) for answer in answers])
        return
    if kind not in ("nothing", "run.json") and 0 in codes:
        raise Bad("accepted", f"the two machines differ ({kind}), but the exit codes are {codes}: "
                  f"{ended[0].err[-500:]}")
    if kind == "nothing" and codes != [0, 0]:
        raise Bad("refused though valid", f"exit codes {codes}: {ended[0].err[-300:]}{ended[1].err[-300:]}")
    trial.refused |= 0 not in codes


def _disagree(trial, kind, other):
    """Changes files of the second machine, so that they differ from the files of the first machine.

    Args:
      trial: the `Trial`.
      kind: one of `_DISAGREEMENTS`, the files to change. For "nothing" and "flags", no file is changed.
      other: pathlib.Path of the directory that represents the second machine.
    """
    if "lines" in kind:
        for name in ("asked.jsonl", "lines.txt"):
            text = (other / name).read_text()
            changed = text.replace("the", "a") if kind == "same number of other lines" else text + text
            if changed == text:
                changed = text.replace(" ", " the ", 1)
            (other / name).write_text(changed)
    elif kind == "configuration":
        path = other / "single/bert_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_act": "relu"}))
    elif kind == "vocabulary":
        words = (other / "single/vocab.txt").read_text().splitlines()
        (other / "single/vocab.txt").write_text("".join(f"{word}\n" for word in [*words[:5], *words[:4:-1]]))
    elif kind == "weights":
        trial.world.take(other, "unfinished")
        for path in (other / "unfinished").glob("model.ckpt-*"):
            world.copy_of(path, other / "single" / path.name.replace("ckpt-2", "ckpt-6"))
    elif kind == "run.json":
        path = other / "single/run.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "started": "2020-01-01 00:00:00+00:00"}))


# --- Exports ---------------------------------------------------------------------------------------------

_LOCALES = ["C", "tr_TR.UTF-8", "az_AZ.UTF-8", "lt_LT.UTF-8", "tr", "C.UTF-8", "en_US.UTF-8"]


def exports(trial):
    """Exports a model. The exported model must answer like predict.py, in any locale."""
    chance = trial.chance
    name = chance.choice(["single", "pair", "scores", "several"])
    locale, is_text = chance.choice(_LOCALES), chance.random() < 0.7
    trial.note(f"{name}: {'text' if is_text else 'ids'}, LC_ALL={locale}")
    trial.world.take(trial.here, name)
    rows = [tuple(text.upper() if chance.random() < 0.5 else text for text in texts)
            for texts, _ in world.rows(chance, name, 8)]
    finished = trial.run("export.py", model_dir=name, warmup_requests=0, text=is_text or None,
                         environment={"LC_ALL": locale})
    if not trial.expect(finished, "right"):
        return
    asked = {"directory": f"{name}/{'export_text' if is_text else 'export'}", "text": is_text, "rows": rows}
    trial.write("asked.json", json.dumps(asked))
    trial.expect(trial.run("benchmarks/attacks/ask_export.py", "asked.json", "answers.json",
                           environment={"LC_ALL": locale}), "right")
    trial.command = "export.py"
    found = json.loads((trial.here / "answers.json").read_text())
    check_answers(trial, name, rows, found)


def two_exports(trial):
    """Runs two exports at the same time. The result must be two complete versions, or one complete version
    if the other export was refused."""
    trial.world.take(trial.here, "single")
    trial.note("two at the same time")
    started = [trial.start("export.py", model_dir="single", warmup_requests=0, server=server)
               for server in range(2)]
    codes = [one.code for one in trial.finish_all(started)]
    versions = sorted((trial.here / "single/export").iterdir())
    whole = [version for version in versions if version.name.isdigit() and (
        version / "saved_model.pb").exists() and list((version / "variables").glob("*.data-*"))]
    if len(whole) != codes.count(0) or not whole:
        raise Bad("wrong result", f"the two commands ended with the exit codes {codes}, and the directory "
                  f"contains the exports {[version.name for version in versions]}")
    if len({len(contents_of(version)) for version in whole}) > 1:
        raise Bad("wrong result", "the exported versions contain different numbers of files: "
                  f"{[contents_of(one) for one in whole]}")
