"""benchmarks/gpu.py runs to its end on a CPU, its checks find differences, and failures do not stop it."""

import json
import os
import pathlib
import re
import signal
import sys

import numpy as np
import pytest
from scripts import ROOT, run_fresh
import tensorflow.compat.v1 as tf
import tiny

sys.path.append(str(ROOT / "benchmarks"))
import gpu  # noqa: E402
import gpu_page  # noqa: E402
import gpu_steps  # noqa: E402


class Recorder:
    """Stores the rounds that a session adds."""

    def __init__(self):
        self.rounds = []

    def add(self, **values):
        self.rounds.append(values)


@pytest.fixture
def session():
    arguments = type("Arguments", (), {"models": ["tiny"]})
    return gpu.Session(arguments, Recorder(), [], None)


# --- Processes -------------------------------------------------------------------------------------------


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def run_out_of_memory():
    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")


@pytest.mark.parametrize("function, message", [
    (crash, "the process ended with exit code -9"),
    (run_out_of_memory, "ResourceExhaustedError: OOM when allocating tensor")])
def test_a_failed_measurement_is_recorded_and_the_next_one_runs(session, function, message):
    session.measure("speed", {"model": "tiny"}, gpu.in_process, function)
    session.measure("speed", {"model": "base"}, gpu.in_process, lambda: {"ok": True})
    first, second = session._recorder.rounds
    assert message in first["error"] and first["model"] == "tiny"
    assert "error" not in second and second["ok"]
    assert session.failed == ["speed"]


def test_a_failed_check_counts_as_a_failure(session):
    session.measure("losses", {}, lambda: {"ok": False})
    assert session.failed == ["losses"]


def test_a_process_gets_its_environment():
    assert gpu.in_process(os.getenv, "CUDA_VISIBLE_DEVICES", environment=gpu.NO_GPU) == ""
    assert os.getenv("CUDA_VISIBLE_DEVICES") != ""


def test_the_end_of_a_failed_commands_log_is_in_the_error():
    with pytest.raises(RuntimeError, match="run_classifier.py ended with exit code 1:\n.*no_such_flag"):
        gpu.run_script(gpu.command("run_classifier.py", no_such_flag=True))


# --- Checks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("difference, ok", [(0.015, True), (0.017, False)])
def test_losses_beyond_the_noise_are_a_failure(difference, ok):
    reference = [2.0, 1.0]
    noisy = [[2.0, 1.0005], [2.001, 1.0]]
    found = gpu.judge_losses([2.0, 1.0 + difference], reference, noisy)
    assert found["ok"] == ok and found["bound"] == pytest.approx(gpu.BOUND_FACTOR * 0.001)


@pytest.mark.slow(reason="several runs of ten steps; the test of the parts runs the check of the losses")
def test_losses_of_other_weights_or_without_dropout_are_beyond_the_bound(tmp_path):
    def run(config, **variants):
        return gpu_steps.losses("classifier", config, variants, str(tmp_path / "start.npz"), None, 8, 32, 3)

    exact = {"precision": "fp32"}
    found = run(gpu.TINY, reference=exact, bf16={"precision": "bf16"},
                **{f"noise {seed}": {**exact, "noise": 2.0**-8, "seed": seed} for seed in range(2)})
    noisy = [found["noise 0"], found["noise 1"]]
    assert gpu.judge_losses(found["bf16"], found["reference"], noisy)["ok"]
    no_dropout = run({**gpu.TINY, "hidden_dropout_prob": 0.0}, other=exact)["other"]
    assert not gpu.judge_losses(no_dropout, found["reference"], noisy)["ok"]


@pytest.mark.parametrize("weights, found", [
    ([1.0, 1.0, 1.0], (True, 0, 0)), ([1.0, 1.5, 1.0], (False, 1, 0)), ([1.0, 1.0, 1.5], (False, 0, 1))])
def test_a_repetition_with_other_weights_is_a_failure(weights, found, monkeypatch):
    ends = dict(zip(("whole", "again", "killed"), weights))

    def train(words, wait=None):
        output_dir = pathlib.Path(words[-1].removeprefix("--output_dir="))
        if not wait:
            tiny.write_tensorflow(output_dir / "model.ckpt-9", {"weight": np.float32(ends[output_dir.name])})
        return f"Resuming from {output_dir}/model.ckpt-5: step 5"

    monkeypatch.setattr(gpu, "run_script", train)
    values = gpu.compare_repetitions("run_ner.py", {})
    assert (values["ok"], values["different"], values["different_after_kill"]) == found
    assert values["tensors"] == 1 and values["resumed_from"] == 5


@pytest.mark.parametrize("batch, ok, ratio", [(464, True, 1.5), (470, True, 1.5), (463, False, None)])
def test_a_planned_batch_that_does_not_fit_is_a_failure(batch, ok, ratio, monkeypatch):
    plan = {"planned_batch": 464, "planned_bytes": 2**20}
    measured = {"batch": batch, "peak_bytes": 2**21, "planned_batch_peak": ok * 1.5 * 2**20, "trials": []}
    monkeypatch.setattr(gpu, "in_process", lambda function, *arguments: measured)
    values = gpu.compare_memory((gpu.TINY, 32, "layers", "fp32"), [plan], 0, None)
    assert values["ok"] == ok and values.get("peak_ratio") == ratio


@pytest.mark.parametrize("guess", [1, 90, 100, 101, 130, 1000])
@pytest.mark.parametrize("largest", [0, 1, 100])
def test_the_largest_batch_is_found(guess, largest):
    found, trials = gpu_steps.search(lambda size: size <= largest, guess, tolerance=0)
    assert found == largest
    assert trials[0] == [guess, guess <= largest] and len(trials) < 24
    assert len(trials) == len({size for size, _ in trials})


def test_bytes_of_a_step_are_those_of_its_tensors():
    with tf.Graph().as_default(), tf.Session() as session:
        left, right = (tf.placeholder(tf.float32, [64, 64]) for _ in range(2))
        product = tf.matmul(left, right)
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
        session.run(tf.exp(product), {left: np.ones([64, 64]), right: np.ones([64, 64])}, options, metadata)
    found = gpu_steps.traffic(metadata)
    matrix = 64 * 64 * 4
    assert found["bytes"]["other ops"] == 2 * matrix and found["on_cpu"] == {}
    assert found["bytes"]["matrix products"] == 3 * matrix


# --- The whole program -----------------------------------------------------------------------------------


def test_the_page_has_failures():
    rounds = [{"part": "devices", "gpus": [{"name": "T4", "memory": 2**30}]},
              {"part": "repeat", "head": "ner", "precision": "fp32", "tensors": 7, "different": 1,
               "different_after_kill": 0, "resumed_from": 5, "ok": False},
              {"part": "scaling", "model": "base", "replicas": 1, "batch": 32, "examples_per_second": 10.0},
              {"part": "scaling", "model": "base", "replicas": 2, "batch": 64, "examples_per_second": 15.0},
              {"part": "scaling", "model": "base", "replicas": 4, "error": "NCCL\nfailed"}]
    page = gpu_page.page({"rounds": rounds, "command": "python benchmarks/gpu.py", "commit": "0" * 40,
                          "date": "2026-11-23", "versions": {"tensorflow": "2.21.0"},
                          "machine": {"cpu": "a CPU", "instructions": [], "cores": 4}})
    assert page.startswith("# Training on T4 (1,024 MiB usable)\n")
    assert "4 measurements, 2 of them failed." in page
    assert "| ner | fp32 | 7 | 1 | 0 | 5 | **failed** |" in page
    assert "| base | 2 | 64 | 15.0 | 75% |" in page
    assert "- **Failed**, base, 4: NCCL failed" in page


def run_gpu(directory, *flags):
    """Runs benchmarks/gpu.py, with its results in a directory. Returns (`Finished`, result, page)."""
    script = directory / "gpu_here.py"
    script.write_text(f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "benchmarks")!r}]
import results
results.DIRECTORY = {str(directory)!r}
import gpu
sys.exit(gpu.main())
""")
    done = run_fresh(script, *flags, "--results=try", cwd=directory)
    return done, json.loads((directory / "try.json").read_text()), (directory / "try.md").read_text()


@pytest.mark.slow(reason="runs four parts of the benchmark")
def test_the_parts_without_commands_run_on_a_cpu(tmp_path):
    peer = tmp_path / "python"  # a program that prints its versions, or the seconds of a step
    peer.write_text("""#!/bin/sh
case $1 in -c) echo '{"torch": "2.9"}' ;; *) echo '{"wall": 0.5}' ;; esac
""")
    peer.chmod(0o700)
    done, result, page = run_gpu(tmp_path, "--parts=losses,memory,speed,ops", "--steps=2",
                                 "--precisions=bf16", "--tokens=128", f"--peer_python={peer}")
    assert done.code == 0, done.out
    assert done.out.startswith("No GPU was found: all parts measure a tiny model on the CPU.")
    assert result["versions"]["torch"] == "2.9"
    speeds = {(row["program"], row.get("use_xla"), row["precision"]): row["examples_per_second"]
              for row in result["rounds"] if row["part"] == "speed"}
    assert len(speeds) == 3 and speeds["PyTorch", None, "bf16"] == 8
    assert {row["head"] for row in result["rounds"] if row["part"] == "losses"} == set(gpu_steps.HEADS)
    for title in ("Losses", "Memory", "Speed", "Ops"):
        assert f"\n## {title}\n" in page


@pytest.mark.soak(reason="runs six commands; the test above runs the other parts")
def test_the_parts_with_commands_run_on_a_cpu(tmp_path):
    done, result, page = run_gpu(tmp_path, "--parts=repeat,scaling", "--steps=2", "--precisions=bf16")
    assert done.code == 0, done.out
    repeat, = (row for row in result["rounds"] if row["part"] == "repeat")
    assert repeat["ok"] and repeat["tensors"] > 50 and repeat["resumed_from"] >= gpu.SAVE_EVERY
    assert [row["replicas"] for row in result["rounds"] if row["part"] == "scaling"] == [1, 2]
    assert re.search(r"\| tiny \| 2 \| 64 \| [\d.]+ \| \d+% \|", page)
