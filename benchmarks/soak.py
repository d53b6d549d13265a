"""Runs commands for thousands of steps, and checks that their memory, threads and files do not grow.

    python benchmarks/soak.py [--steps=5000] [--lines=100000] [--parts=training,predict,…] [--keep] \\
      [--results=NAME]

Each part is a command on a tiny model. While the command runs, the program counts the threads, the open files
and the memory of all its processes, and the temporary files in its directory. The program prints the values
at 20 %, 60 % and 100 % of the samples. The exit code is 1 if a value grows by more than its bound between
20 % and 100 %:

    threads, files          4 each. With several replicas, 4 more for each replica
    temporary files         2
    memory                  20 MB, plus 4 KB for each step or 0.2 KB for each line

The first sample is taken when the log contains the first step, or when the first answer is written. The
values before 20 % are not compared, because TensorFlow starts threads and fills caches only when it first
needs them. The program needs Linux.
"""

import argparse
import dataclasses
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import results  # noqa: E402
import tiny  # noqa: E402  its model and its data

# Seconds between two samples of the measured quantities, such as the memory; and the smallest number of
# samples. With fewer samples, the check fails.
_SECONDS, _FEWEST = 0.5, 20
_MEGABYTE = 2**20
# Three places in the list of samples: after 20 %, 60 % and 100 % of the samples. The value at a place is the
# median of a window of samples that ends at this place. A window contains a tenth (`_WIDTH`) of all samples.
_PLACES = {"start": 0.2, "middle": 0.6, "end": 1.0}
_WIDTH = 0.1
_BEGUN = re.compile(r"step [1-9]\d*/|Extracting")
_TEMPORARY = re.compile(r"\.partial|temp|tmp|\.lock|bert-replicas-")


@dataclasses.dataclass
class Part:
    """A command to run.

    Attributes:
      script: name of its file.
      flags: {name: value}.
      units: number of steps or lines.
      unit_bytes: bytes by which the memory may grow for each step or line.
      replicas: number of its replicas.
    """

    script: str
    flags: dict
    units: int
    unit_bytes: int = 4096
    replicas: int = 1

    @property
    def bounds(self):
        """Returns a dict with the largest allowed growth of each quantity, such as "threads" or "memory"."""
        handles = 4 + 4 * self.replicas * (self.replicas > 1)
        return {"threads": handles, "open files": handles, "temporary files": 2,
                "memory": 20 * _MEGABYTE + self.unit_bytes * self.units}


# --- The parts -------------------------------------------------------------------------------------------


class Parts:
    """Makes the parts of this benchmark (see `Part`), and writes their data into a directory."""

    def __init__(self, directory, steps, lines):
        self._here, self._steps, self._lines = directory, steps, lines
        (directory / "model").mkdir()
        self._model = tiny.Model(directory / "model")
        self._common = dict(self._model.flags, bert_config_file=self._model.shallow)

    def _training(self, **changes):
        """Returns a `Part` that trains a classifier on 64 examples. `changes` are additional flags."""
        data = self._here / "mrpc"
        if not data.exists():
            data.mkdir()
            tiny.write_task(data, "mrpc", train=64, dev=16)
        flags = dict(self._common, task_name="mrpc", data_dir=data, do_train=True, train_batch_size=8,
                     num_train_epochs=self._steps / 8, log_steps=100, save_checkpoints_steps=500, **changes)
        return Part("run_classifier.py", flags, self._steps, replicas=changes.get("num_replicas", 1))

    def training(self):
        """Returns the `Part` for a training in a single process."""
        return self._training()

    def accumulation(self):
        """A training with gradient accumulation."""
        return self._training(gradient_accumulation_steps=4)

    def replicas(self):
        """Returns the `Part` for a training with two replicas."""
        return self._training(num_replicas=2)

    def ner(self):
        """A training for token tagging."""
        data = self._here / "ner"
        data.mkdir()
        chance = random.Random(0)
        for name in ("train", "dev"):
            rows = [[f"{word} {chance.choice(['O', 'B-X', 'B-Y'])}" for word in tiny.sentence(chance).split()]
                    for _ in range(64)]
            (data / f"{name}.txt").write_text("\n\n".join("\n".join(sentence) for sentence in rows) + "\n")
        flags = dict(self._common, data_dir=data, do_train=True, train_batch_size=8,
                     num_train_epochs=self._steps / 8, log_steps=100, save_checkpoints_steps=500)
        return Part("run_ner.py", flags, self._steps)

    def evaluation(self):
        """Pre-training that evaluates each of its checkpoints: fifty evaluations, each of 10 batches."""
        text, records = self._here / "text.txt", self._here / "text.tfrecord"
        chance = random.Random(0)
        text.write_text("\n\n".join("\n".join(tiny.sentence(chance) for _ in range(8)) for _ in range(40)))
        run(["create_pretraining_data.py", *tiny.flags(
            input_file=text, output_file=records, vocab_file=self._model.vocab, max_seq_length=20,
            max_predictions_per_seq=4, dupe_factor=2)], self._here)
        flags = dict(bert_config_file=self._model.shallow, input_file=records, eval_file=records,
                     do_train=True, do_eval=True, eval_each_checkpoint=True, max_seq_length=20,
                     max_predictions_per_seq=4, train_batch_size=8, eval_batch_size=8, max_eval_steps=10,
                     num_train_steps=self._steps, num_warmup_steps=10, log_steps=100,
                     save_checkpoints_steps=max(1, self._steps // 50))
        return Part("run_pretraining.py", flags, self._steps)

    def _text(self):
        """Writes a file of lines for predictions, and returns its path."""
        path = self._here / "lines.txt"
        if not path.exists():
            chance = random.Random(0)
            with path.open("w") as file:
                file.writelines(f"{tiny.sentence(chance)}\n" for _ in range(self._lines))
        return path

    def predict(self):
        """A run of predict.py on many lines of text, with a classifier."""
        data = self._here / "cola"
        data.mkdir()
        tiny.write_task(data, "cola", train=16)
        flags = dict(self._common, task_name="cola", data_dir=data, do_train=True, train_batch_size=8,
                     num_train_epochs=1, output_dir=self._here / "trained")
        run(["run_classifier.py", *tiny.flags(**flags)], self._here)
        flags = dict(model_dir=self._here / "trained", input_file=self._text())
        return Part("predict.py", flags, self._lines, unit_bytes=200)

    def vectors(self):
        """A run of extract_features.py on many lines of text."""
        flags = dict(self._common, input_file=self._text(), layers="-1", pooling="mean", output_format="npz")
        return Part("extract_features.py", flags, self._lines, unit_bytes=200)


NAMES = ("training", "accumulation", "replicas", "ner", "evaluation", "predict", "vectors")


def run(command, directory):
    """Runs a script of this project to its end."""
    with (directory / "preparation.log").open("w") as log:
        done = subprocess.run([sys.executable, str(ROOT / command[0]), *command[1:]], cwd=directory,
                              stdout=log, stderr=log, check=False)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{(directory / 'preparation.log').read_text()[-2000:]}")


# --- What is counted -------------------------------------------------------------------------------------


def family(pid):
    """Returns the process numbers of a process and of all its descendants."""
    try:
        own = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(number for child in own for number in family(int(child)))]


def sample(pid, directory):
    """Returns {counted quantity: number} of a process, its descendants and its directory."""
    found = {"threads": 0, "open files": 0, "memory": 0}
    for number in family(pid):
        try:
            status = pathlib.Path(f"/proc/{number}/status").read_text()
            found["threads"] += int(re.search(r"^Threads:\s*(\d+)", status, re.MULTILINE)[1])
            found["memory"] += int((re.search(r"^VmRSS:\s*(\d+)", status, re.MULTILINE) or "00")[1]) * 1024
            found["open files"] += len(list(pathlib.Path(f"/proc/{number}/fd").iterdir()))
        except (OSError, TypeError):
            pass  # the process has ended
    found["temporary files"] = sum(bool(_TEMPORARY.search(path.name)) for path in directory.rglob("*"))
    return found


def watch(part, directory):
    """Runs a command. Until the command ends, regularly measures its memory, and counts its threads and
    files. Returns (list of the measured samples, exit code, log)."""
    log, temporary = directory / "log", directory / "tmp"
    temporary.mkdir(parents=True)
    output = {"output_dir": directory / "output"} if part.flags.get("do_train") else {
        "output_file": directory / "answers"}
    with log.open("w") as writer:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / part.script), *tiny.flags(**part.flags, **output)], cwd=directory,
            stdin=subprocess.DEVNULL, stdout=writer, stderr=writer,
            env={**os.environ, "TMPDIR": str(temporary)})
    samples, begun = [], False
    while process.poll() is None:
        begun = begun or has_begun(directory)
        if begun:
            samples.append(sample(process.pid, directory))
        time.sleep(_SECONDS)
    return samples, process.returncode, log.read_text(errors="replace")


def has_begun(directory):
    """Returns whether the command that runs in `directory` has logged its first step or has written its first
    answer."""
    return bool(_BEGUN.search((directory / "log").read_text(errors="replace"))) or any(
        path.stat().st_size for path in directory.glob("*answers*"))


def table(samples):
    """Returns {quantity: {place: median of the samples at this place}}. An example of a quantity is
    "threads". The places are the keys of `_PLACES`.

    Samples at the end of the list are left out if they have fewer threads, because the process was ending.
    """
    samples, found = list(samples), {}
    threads = statistics.median(one["threads"] for one in samples)
    while samples[-1]["threads"] < 0.9 * threads:
        samples.pop()
    for name in samples[0]:
        values = [one[name] for one in samples]
        width = max(1, round(_WIDTH * len(values)))
        ends = {place: max(width, round(share * len(values))) for place, share in _PLACES.items()}
        found[name] = {place: statistics.median(values[end - width:end]) for place, end in ends.items()}
    return found


def grown(values, bounds):
    """Returns the names of the quantities that grew by more than their bounds.

    Args:
      values: see `table`.
      bounds: {counted quantity: largest allowed growth}.
    """
    return [name for name, bound in bounds.items()
            if values[name]["end"] - values[name]["start"] > bound]


# --- The program -----------------------------------------------------------------------------------------


def text_of(name, value):
    """Returns the printed form of a number, with its unit."""
    return f"{value / _MEGABYTE:.1f} MB" if name == "memory" else f"{value:g}"


def check(name, part, directory, recorder):
    """Runs the command of a part, and prints the rows of the table for this part. Returns False if the
    command failed, if there are too few samples, or if a quantity, such as the memory, grew too much."""
    begun = time.monotonic()
    samples, code, log = watch(part, directory)
    seconds = time.monotonic() - begun
    if code or len(samples) < _FEWEST:
        print(f"{name}: " + (f"exit code {code}:\n{log[-2000:]}" if code else
                             f"{len(samples)} samples are too few. Pass more --steps or --lines."))
        return False
    values = table(samples)
    wrong = grown(values, part.bounds)
    for counted, bound in part.bounds.items():
        found = [text_of(counted, values[counted][place]) for place in _PLACES]
        recorder.add(part=name, counted=counted, bound=bound, **values[counted])
        mark = "GROWS" if counted in wrong else "flat"
        print(f"{name:13s} {counted:16s} " + "".join(f"{one:>11s}" for one in found)
              + f"{text_of(counted, bound):>12s}  {mark}", flush=True)
    print(f"{name:13s} {part.units} steps or lines, {seconds:.0f} s, {len(samples)} samples", flush=True)
    recorder.add(part=name, units=part.units, seconds=seconds, samples=len(samples))
    return not wrong


def main():
    """Runs the parts, and prints a table. The exit code is 1 if a quantity grew too much."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--parts", default=",".join(NAMES),
                        help="names of parts, separated by commas; default: all parts")
    parser.add_argument("--keep", action="store_true", help="do not delete the files of the commands")
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(arguments.results, {**dict.fromkeys(_PLACES, "number, or bytes of memory"),
                                                    "seconds": "s"})
    names = arguments.parts.split(",")
    if unknown := set(names) - set(NAMES):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(NAMES)}")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    parts = Parts(directory, arguments.steps, arguments.lines)
    print(f"{'part':13s} {'counted':16s} " + "".join(f"{place:>11s}" for place in _PLACES)
          + f"{'may grow by':>12s}", flush=True)
    flat = [check(name, getattr(parts, name)(), directory / "parts" / name, recorder)
            for name in names]
    recorder.write()
    if arguments.keep:
        print(f"The files are in {directory}.")
    else:
        shutil.rmtree(directory)
    sys.exit(not all(flat))


if __name__ == "__main__":
    main()
