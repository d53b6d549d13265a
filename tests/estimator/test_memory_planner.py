"""`memory_planner` on graphs whose memory can be computed by hand, and `plan_memory.py` as a user runs it."""

import dataclasses
import functools
import re
import resource
import types

from bertlib.commands import plan_memory

import pytest
import tensorflow.compat.v1 as tf
from test_step_config import FLAGS, Simulation
import tiny

from bertlib.estimator import memory_planner
from bertlib.estimator.step_config import GB, StepConfig
from bertlib.runs.settings import Settings
from bertlib.tasks import training_plan
import modeling
import optimization

MB = 1024 * 1024
pytestmark = pytest.mark.usefixtures("graph")


def chain(batch_size, variable=256):
    """Builds a step of three products with a variable. Each product, [B, 256] floats, needs the previous one.
    """
    tf.train.get_or_create_global_step()
    weights = tf.get_variable("weights", [variable, variable])
    x = tf.placeholder(tf.float32, [batch_size, variable])
    for _ in range(3):
        x = tf.tanh(tf.matmul(x, weights))
    return tf.assign_add(tf.train.get_global_step(), tf.cast(tf.reduce_sum(x), tf.int64)).op


def trained(**options):
    """Builds a step of the optimizer of BERT on 620 weights. All of them have a gradient."""
    tf.train.get_or_create_global_step()
    outputs = (tf.placeholder(tf.float32, [2, 30]) @ tf.get_variable("kernel", [30, 20])
               + tf.get_variable("bias", [20]))
    return optimization.create_optimizer(tf.reduce_mean(tf.square(outputs)), 1e-3, 10, 1, False,
                                         StepConfig(**options))


@pytest.mark.parametrize("options, times",
                         [({}, 3), (dict(optimizer="sgdm"), 2), (dict(gradient_accumulation_steps=2), 4)],
                         ids=str)
def test_variables_count_with_their_slots_and_accumulators(options, times):
    found = memory_planner.predict_memory(lambda: trained(**options)).variables
    # The tolerance is for the global step and a few sums over the micro-batches.
    assert found == pytest.approx(times * 620 * 4, abs=100)


@pytest.mark.parametrize("build, complaint", [
    (lambda: tf.reduce_sum(tf.placeholder(tf.float32, [None, 4])).op,
     "shape of its output is .*static shapes"),
    (lambda: tf.function(lambda x: x * 2)(tf.ones([4])), "memory of its function .* would not be counted"),
    (lambda: tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0.0)]),
     "only one iteration of this loop would be counted")], ids=["shape", "function", "loop"])
def test_what_would_be_predicted_too_small_is_refused(build, complaint):
    with pytest.raises(ValueError, match=complaint):
        memory_planner.predict_memory(build)


def needs_of_chain(batch_size):
    return memory_planner.predict_memory(chain, batch_size)


def test_the_largest_batch_fits_and_the_next_one_does_not():
    usable = 7 * MB
    found = memory_planner.largest_batch(needs_of_chain, usable)
    assert needs_of_chain(found.batch_size).total <= usable < needs_of_chain(found.batch_size + 1).total
    assert found.need.total <= usable < found.one_more.total


# A larger width needs more memory and more time.
WIDTHS = {"none": 256, "attention": 128, "layers": 2048}


def needs_of_step(step):
    return memory_planner.predict_memory(chain, step.batch.micro_batch_size, WIDTHS[step.recompute])


def test_advice_names_the_flags_that_would_fit():
    step = StepConfig(train_batch_size=1000, gradient_accumulation_steps=2, recompute="attention")
    alternatives = {"as it is": step, "wider": dataclasses.replace(step, recompute="none"),
                    "widest": dataclasses.replace(step, recompute="layers")}
    usable = memory_planner.predict_memory(chain, 300, WIDTHS["attention"]).total
    first, _, *rows = memory_planner.advice(alternatives, needs_of_step, usable).splitlines()
    assert first.startswith("By simulation a micro-batch of 500 needs")
    # 4 micro-batches of 250 examples are needed, because 500 do not fit and 250 divides 1000.
    assert rows[0].split() == ["as", "it", "is", "300", "--gradient_accumulation_steps=4"]
    assert int(rows[1].split()[1]) < 300
    assert rows[2].startswith("  widest    none; a single example needs")
    # This step ran out of memory, although it fits according to the simulation.
    smaller = {"as it is": dataclasses.replace(step, gradient_accumulation_steps=4)}
    assert "other programs use memory too" in memory_planner.advice(smaller, needs_of_step, usable)


@pytest.mark.parametrize("error, sufficed", [(None, True), (MemoryError, False)])
def test_a_step_is_tried(error, sufficed):
    def fail(x):
        if error:
            raise error
        return x

    def build(batch_size):
        x = tf.numpy_function(fail, [tf.placeholder(tf.float32, [batch_size])], tf.float32)
        return tf.assign(tf.get_variable("x", [batch_size]), x).op

    assert memory_planner.trial_step_fits(build, 3) is sufficed


@pytest.fixture
def plan(run_script, tiny_model):
    """A function that plans the memory of a model with one layer by plan_memory.py."""
    return functools.partial(run_script, "plan_memory.py", bert_config_file=tiny_model.shallow)


@pytest.mark.slow(reason="simulates a dozen training steps; the search is shown above without a script")
def test_the_script_prints_a_table_and_draws_a_chart(plan, tmp_path):
    done = plan(max_seq_length="16,32", gpu_memory_gb=2.002, recompute="layers", output_file="chart.svg")
    done.assert_success()
    rows = {int(length): int(size) for length, size in re.findall(
        r"^ +(\d+) +layers +(\d+) ", done.out, re.MULTILINE)}
    assert set(rows) == {16, 32} and rows[16] > rows[32] > 0
    assert "can use 2.000 MB (without the 2 GB of --reserve_gb)" in done.out
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")


def test_the_script_says_whether_a_batch_fits(plan):
    done = plan(max_seq_length="16", card="T4", phase="prediction", batch_size=3)
    done.assert_success()
    assert "The table has 1 row. Each row needs one simulation, and a simulation takes" in done.err
    assert "Length 16, --recompute=none: 3 examples need" in done.err
    assert "Tesla T4, 16 GB: TensorFlow can use 14.24 GB (logs: 13,584 to 13,942 MiB)" in done.out
    needed, variables, activations = map(float, re.search(
        r"^ +16 +none +3 +([\d.]+) MB = 1.07 × .* \(([\d.]+) MB variables, ([\d.]+) MB activations\); fits$",
        done.out, re.MULTILINE).groups())
    assert needed == pytest.approx(1.07 * (variables + activations), abs=0.002)
    # At least one hidden state of 3 × 16 × hidden_size floats is in memory.
    assert activations >= 3 * 16 * tiny.CONFIG["hidden_size"] * 4 / 1e6


def test_a_plan_leaves_room_for_fragmentation():
    usable = 1.07 * needs_of_chain(100).total
    assert plan_memory.plan_row(usable, needs_of_chain)[0] == 100
    assert plan_memory.plan_row(usable - 1, needs_of_chain)[0] == 99
    assert plan_memory.plan_row(usable, needs_of_chain, 100)[1].endswith("; fits")
    assert plan_memory.plan_row(usable - 1, needs_of_chain, 100)[1].endswith("; does not fit")


@pytest.mark.parametrize("usable, largest, advice", [
    (7.49, 5, "For a batch of 32, choose --gradient_accumulation_steps=8: 6.42 GB."),
    (6.43, 4, "For a batch of 32, choose --gradient_accumulation_steps=16: 4.28 GB."),
    (3.22, 1, "No micro-batch leaves a safe margin.")])
def test_the_advised_micro_batch_divides_the_batch_and_leaves_a_margin(usable, largest, advice):
    assert plan_memory.advise(StepConfig(), largest, usable * GB, Simulation()) == advice


@pytest.fixture
def plan_training(scripts, tiny_model, tmp_path):
    """A function that plans the memory of a training command of the tiny model, some of whose flags are in a
    flag file."""
    (tmp_path / "recipe.flags").write_text(
        f"--do_train\n--bert_config_file={tiny_model.shallow}\n--vocab_file={tiny_model.vocab}\n"
        "--max_seq_length=16\n--train_batch_size=12\n")
    return lambda script, *flags, plan=(): scripts.run(
        "plan_memory.py", "--card=t4", *plan, "--", "python", script, "--flagfile=recipe.flags", *flags,
        cwd=tmp_path)


def test_a_training_that_does_not_fit_gets_advice(plan_training):
    done = plan_training("run_ner.py", "--train_batch_size=10000000", "--use_xla")
    done.assert_success()
    assert "; does not fit\n" in done.out
    assert " Pass --gradient_accumulation_steps=0 --recompute=auto, which choose a step" in done.out
    assert "\n--use_xla is not simulated" in done.out


@pytest.mark.parametrize("script, plan, complaint", [
    ("run_pretraining.py", [], "The memory of run_pretraining.py cannot be planned."),
    ("run_ner.py", ["--recompute=layers"], "--recompute cannot be combined with a training command."),
    ("train.py", [], "python train.py is not a training command of this project.")])
def test_the_script_refuses_a_training_command(plan_training, script, plan, complaint):
    plan_training(script, plan=plan).assert_refused(complaint)


def test_a_step_on_a_gpu_leaves_room_for_fragmentation(monkeypatch):
    devices = [types.SimpleNamespace(device_type="CPU", memory_limit_bytes=268435456),
               types.SimpleNamespace(device_type="GPU", memory_limit_bytes=10 * GB)]
    monkeypatch.setattr(tf.Session, "list_devices", lambda session: devices)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: devices[1:])
    assert memory_planner.usable_memory() == (
        10 * GB / 1.07, "9.35 GB: 10.00 GB of GPU memory minus the margin for fragmentation")


def test_a_step_on_a_cpu_may_use_the_free_memory_but_half_a_gigabyte(monkeypatch):
    monkeypatch.setattr(memory_planner, "available_ram", lambda: 8 * GB)
    assert memory_planner.usable_memory() == (
        7.5 * GB, "7.50 GB: free RAM minus 0.50 GB for workspaces and fragmentation")


def test_a_limit_of_the_address_space_limits_the_free_memory(monkeypatch):
    with open("/proc/self/statm", encoding="utf-8") as reader:
        used = int(reader.read().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used + GB // 100, resource.RLIM_INFINITY))
    assert memory_planner.available_ram() <= GB // 100


@pytest.mark.parametrize("changes, complaint", [
    (dict(card="t4", gpu_memory_gb=12), "Leave one of"),
    (dict(max_seq_length="64"), "max_position_embeddings"),
    (dict(do_train=True), "the separator -- is missing")], ids=str)
def test_the_script_refuses(plan, changes, complaint):
    plan(**{"max_seq_length": "16", **changes}).assert_refused(complaint)


@pytest.fixture
def model_that_fits():
    """A `TrainableModel` whose step is never simulated, because it certainly fits."""
    head = types.SimpleNamespace(padding_is_removable=False, sequences_per_example=1)
    return types.SimpleNamespace(head=head, bert_config=modeling.BertConfig(9), build=None,
                                 memory_need=Simulation(), upper_bound=lambda step: 1)


@pytest.mark.parametrize("gpus", [[], ["GPU"]], ids=str)
def test_xla_without_a_gpu_causes_a_warning(model_that_fits, gpus, monkeypatch, caplog):
    monkeypatch.setattr(training_plan.tf.config, "list_physical_devices", lambda kind: gpus)
    settings = Settings({**FLAGS, "do_train": True, "memory_limit_gb": 1000, "use_xla": True,
                         "compile_kernels": None})
    assert training_plan.create_step_config(settings, model_that_fits, False).use_xla
    assert ("--use_xla=true without a GPU" in caplog.text) == (not gpus)


def test_on_a_gpu_a_step_that_does_not_run_gets_the_next_number_of_micro_batches(
        model_that_fits, monkeypatch, caplog):
    monkeypatch.setattr(training_plan.tf.config, "list_physical_devices", lambda kind: [kind])
    monkeypatch.setattr(memory_planner, "trial_step_fits",
                        lambda build, step: step.gradient_accumulation_steps >= 4)
    settings = Settings({**FLAGS, "do_train": True, "memory_limit_gb": 1000,
                         "gradient_accumulation_steps": 0})
    planned = training_plan.create_step_config(settings, model_that_fits, False)
    assert planned.gradient_accumulation_steps == 4
    found = re.findall("ran out of memory: using --gradient_accumulation_steps=(.*)\\.", caplog.text)
    assert found == ["2 instead of 1", "4 instead of 2"]
