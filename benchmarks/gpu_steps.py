"""Measures training steps on this machine's GPU for benchmarks/gpu.py: losses, memory, speed and ops.

benchmarks/gpu.py runs each measurement in a separate process, so that TensorFlow initializes the GPU again.
On a machine without a GPU, the functions measure the CPU.
"""

import functools
import tempfile
import time

import bertlib.commands  # noqa: F401  graph mode

import capped
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.data import input_pipeline
from bertlib.estimator import estimator_spec, memory_planner, profiling
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import tensorflow_internals
from bertlib.system import gpu_libraries
from bertlib.tasks import head, training_plan
from bertlib.tasks.classification import classification_head, classifier_data
from bertlib.tasks.pretraining import pretraining_data, pretraining_head
from bertlib.tasks.squad import squad_data, squad_head
from bertlib.tasks.tagging import tagging_head, tagging_windows
import modeling

GPU = "GPU:0"
NUM_TAGS = 9
MASKED_WORDS = 4
# Maps each task to three values: its head; a function that returns the fields of an example for a sequence
# length; and the names of some fields. The sums of these fields over the batch are also inputs of the model.
HEADS = {
    "classifier": (classification_head.Classifier(2), classifier_data.feature_fields, ()),
    "squad": (squad_head.Span(), functools.partial(squad_data.feature_fields, is_training=True), ()),
    "ner": (tagging_head.Tagger(NUM_TAGS, use_crf=True), tagging_windows.feature_fields,
            tagging_head.BATCH_TOTALS),
    "pretraining": (pretraining_head.PretrainingHead(), functools.partial(
        pretraining_data.feature_fields, max_predictions_per_seq=MASKED_WORDS),
        pretraining_head.BATCH_TOTALS)}
# Types of ops that return their input without moving bytes.
_MOVE_NOTHING = {"Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "Switch",
                 "Merge", "VarHandleOp", "ReadVariableOp", "NoOp", "Const", "Shape", "_Arg", "_Retval",
                 "_Recv", "_Send", "_HostRecv", "_HostSend"}


# --- A step ----------------------------------------------------------------------------------------------


def trainable_model(task, config, init_checkpoint=None):
    """Returns the `training_plan.TrainableModel` of a task.

    Args:
      task: str, a key of `HEADS`.
      config: dict, the model's bert_config.json.
      init_checkpoint: checkpoint or None.
    """
    task_head, fields, _ = HEADS[task]
    bert_config = modeling.BertConfig.from_dict(config)
    return training_plan.TrainableModel(bert_config, task_head, fields, lambda built: head.model_fn_builder(
        built, bert_config, init_checkpoint, 2e-5, 1000, 1))


def random_batch(fields, totals, size, config, full=True):
    """Returns a batch of random examples: {name: array}. The batch depends only on the arguments.

    Args:
      fields: list of `example_encoding.Field`.
      totals: names of fields. The batch also contains the sum of each of these fields, as `NAME_total`.
      size: B, number of examples.
      config: dict, the model's bert_config.json.
      full: whether all examples have the full length. Otherwise, the lengths differ.
    """
    random = np.random.RandomState(0)
    length, = next(field.shape for field in fields if field.name == "input_ids")
    lengths = np.full(size, length) if full else random.randint(length // 2, length + 1, size)
    mask = np.arange(length) < lengths[:, None]
    bounds = {"input_ids": config["vocab_size"], "masked_lm_ids": config["vocab_size"], "tag_ids": NUM_TAGS,
              "segment_ids": 2, "label_ids": 2, "next_sentence_labels": 2, "is_impossible": 1}
    batch = {}
    for field in fields:
        shape = [size, *field.shape]
        if field.name.endswith("mask"):
            batch[field.name] = mask
        elif field.name in ("is_real_example", "masked_lm_weights"):
            batch[field.name] = np.ones(shape)
        elif field.name.endswith("positions"):
            batch[field.name] = random.randint(0, length // 2, shape)
        elif field.name == "unique_ids":
            batch[field.name] = np.arange(size)
        else:
            values = random.randint(0, bounds[field.name], shape)
            batch[field.name] = values * mask if field.shape == (length,) else values
    return {**batch, **{f"{name}_total": batch[name].sum() for name in totals}}


def _step(length, precision, size, **changes):
    """Returns the `StepConfig` of a step with one micro-batch."""
    return StepConfig(max_seq_length=length, precision=precision, train_batch_size=size, **changes)


class Step:
    """A training step on one random batch, in the current graph.

    Attributes:
      spec: the `EstimatorSpec` of the training.
      fetches: ops and tensors of a step; the last one is the loss.
      feed: the batch, as a feed_dict.
    """

    def __init__(self, task, config, step, init_checkpoint=None, full=True):
        tf.set_random_seed(1)
        tf.train.get_or_create_global_step()
        model = trainable_model(task, config, init_checkpoint)
        fields, size = model.feature_fields(step.max_seq_length), step.train_batch_size
        features = input_pipeline.placeholders(fields, size, model.head.batch_totals)
        self.spec = model.build_spec(features, estimator_spec.ModeKeys.TRAIN, step)
        self.fetches = [self.spec.train_op, self.spec.loss]
        batch = random_batch(fields, model.head.batch_totals, size, config, full)
        self.feed = {features[name]: batch[name] for name in features}
        self._initializer = tf.global_variables_initializer()

    def initialize(self, session):
        """Gives all variables their initial values."""
        session.run(self._initializer)
        if self.spec.scaffold and self.spec.scaffold.init_fn:
            self.spec.scaffold.init_fn(session)

    def run(self, session, **options):
        """Runs a step, waits until it has ended, and returns the loss."""
        return float(session.run(self.fetches, self.feed, **options)[-1])


def sees_gpu():
    """Returns whether TensorFlow uses a GPU in this process."""
    return bool(tf.config.list_physical_devices("GPU"))


def devices():
    """Returns {"gpus": [{name, compute_capability, memory in bytes}], "problem": text or None}."""
    found = []
    with tf.Session() as session:
        limits = [device.memory_limit_bytes for device in session.list_devices()
                  if device.device_type == "GPU"]
    for gpu, memory in zip(tf.config.list_physical_devices("GPU"), limits):
        detail = tf.config.experimental.get_device_details(gpu)
        found.append({"name": detail.get("device_name", gpu.name), "memory": memory,
                      "compute_capability": ".".join(map(str, detail.get("compute_capability", ())))})
    return {"gpus": found, "problem": None if found else gpu_libraries.explain_unused_card()}


# --- Losses ----------------------------------------------------------------------------------------------


def losses(task, config, variants, start, init_checkpoint, size, length, count):
    """Returns the losses of the first steps: {name of a variant: list}.

    Each variant trains on the same batch, from the same weights, with the same dropout masks.

    Args:
      task, config, init_checkpoint: see `trainable_model`.
      variants: {name: {"precision", "tf32", "noise", "seed"}}. `noise` is the relative size of a random
        change of each initial weight.
      start: .npz file of the initial weights. The file is written if it does not exist.
      size, length: B and F.
      count: number of steps.
    """
    found = {}
    for precision in dict.fromkeys(variant["precision"] for variant in variants.values()):
        with tf.Graph().as_default():
            step = Step(task, config, _step(length, precision, size), init_checkpoint, full=False)
            for name, variant in variants.items():
                if variant["precision"] == precision:
                    tf.config.experimental.enable_tensor_float_32_execution(variant.get("tf32", False))
                    # Each variant gets a new session, in which the states of the optimizer and of the loss
                    # scale start again.
                    with tf.Session() as session:
                        step.initialize(session)
                        _set_weights(session, start, variant.get("noise", 0), variant.get("seed", 0))
                        found[name] = [step.run(session) for _ in range(count)]
    return found


def _set_weights(session, start, noise, seed):
    """Sets the trainable variables to the arrays of the file `start`, with noise.

    Each number of an array is multiplied by 1 + `noise` or 1 - `noise`, chosen at random. If the file does
    not exist, the present values of the variables are first written to it.
    """
    variables = {variable.op.name: variable for variable in tf.trainable_variables()}
    if not tf.gfile.Exists(start):
        np.savez(start, **session.run(variables))
    random, arrays = np.random.RandomState(seed), np.load(start)
    values = {name: arrays[name] * (1 + noise * random.choice([-1, 1], arrays[name].shape))
              for name in sorted(variables)}
    session.run([variable.initializer for variable in variables.values()],
                {variable.initializer.inputs[1]: values[name] for name, variable in variables.items()})


# --- Memory ----------------------------------------------------------------------------------------------


def _memory_need(model, length, recompute, precision, size):
    return model.memory_need(_step(length, precision, size, recompute=recompute))


def planned_batches(config, length, recompute, precision, limits):
    """Returns the planner's largest batch for each limit: [{"planned_batch", "planned_bytes"}].

    Args:
      config: dict, the model's bert_config.json. The head is a classifier.
      length, recompute, precision: settings of the step.
      limits: list of bytes that a step may use.
    """
    need = functools.cache(functools.partial(_memory_need, trainable_model("classifier", config), length,
                                             recompute, precision))
    largest = [memory_planner.largest_batch(need, limit) for limit in limits]
    return [{"planned_batch": one.batch_size, "planned_bytes": one.need.total if one.need else 0}
            for one in largest]


def largest_batch(config, length, recompute, precision, guess, cap):
    """Finds the largest batch that fits on the GPU.

    Args:
      config, length, recompute, precision: see `planned_batches`.
      guess: the planner's batch, which is the first size to try.
      cap: bytes of the GPU that TensorFlow may use; None for all. The memory of a CPU cannot be limited in
        this way. On a CPU, a batch size is too large if its simulated memory is above the cap.

    Returns:
      {"batch", "peak_bytes", "planned_batch_peak", "trials"}: the largest batch, its peak, the peak of
      `guess`, and the sizes that were tried; see `search`.
    """
    is_gpu, peaks = sees_gpu(), {}
    if cap:
        capped.limit_gpu(cap)
    model = trainable_model("classifier", config)

    def fits(size):
        if is_gpu:
            tf.config.experimental.reset_memory_stats(GPU)
        try:
            if not is_gpu and cap and _memory_need(model, length, recompute, precision, size).total > cap:
                raise tf.errors.ResourceExhaustedError(None, None, "the simulated memory is above the limit")
            take_steps(config, _step(length, precision, size, recompute=recompute), 2)
        except tf.errors.ResourceExhaustedError:
            return False
        peaks[size] = tf.config.experimental.get_memory_info(GPU)["peak"] if is_gpu else 0
        return True

    batch, trials = search(fits, max(guess, 1))
    return {"batch": batch, "peak_bytes": peaks.get(batch, 0), "planned_batch_peak": peaks.get(guess, 0),
            "trials": trials}


def search(fits, guess, tolerance=0.02):
    """Finds the largest size that fits. At first, the distance from one tried size to the next doubles each
    time. When a size that fits and a size that does not fit are known, a bisection narrows the range.

    Args:
      fits: function of a size that returns whether the size fits.
      guess: the first size to try.
      tolerance: the search ends when the smallest size that does not fit is at most this fraction larger than
        the largest size that fits.

    Returns:
      (largest size that fits, [[size, whether it fits]] of all sizes that were tried).
    """
    trials, smallest_failure, largest_fit = [], None, 0
    size, stride = guess, max(1, guess // 16)
    while smallest_failure is None or smallest_failure - largest_fit > max(1, tolerance * largest_fit):
        trials.append([size, fits(size)])
        if trials[-1][1]:
            largest_fit = size
            size += stride
        else:
            smallest_failure = size
            size -= stride
        stride *= 2
        if smallest_failure is not None and (largest_fit or size < 1):
            size = (largest_fit + smallest_failure) // 2
    return largest_fit, trials


def take_steps(config, step_config, count, warm_up=0):
    """Returns the mean seconds of `count` training steps of a classifier, after `warm_up` other steps."""
    with tf.Graph().as_default(), tf.Session() as session:
        step = Step("classifier", config, step_config)
        step.initialize(session)
        for _ in range(warm_up):
            step.run(session)
        began = time.perf_counter()
        for _ in range(count):
            step.run(session)
        return (time.perf_counter() - began) / count


# --- Speed and ops ---------------------------------------------------------------------------------------


def speed(config, length, precision, tf32, use_xla, size, count):
    """Returns the speed of training: {"batch", "examples_per_second"}.

    If a batch does not fit in the memory, half of this batch is tried next.

    Args:
      config, length, precision: see `planned_batches`.
      tf32, use_xla: bool, like the flags of the training commands.
      size: the first batch size to try.
      count: number of steps to measure.
    """
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    while True:
        try:
            seconds = take_steps(config, _step(length, precision, size, use_xla=use_xla), count, warm_up=3)
            return {"batch": size, "examples_per_second": size / seconds}
        except tf.errors.ResourceExhaustedError:
            if size == 1:
                raise
            size //= 2


def answers(config, length, precision, size, count):
    """Returns the speed of predictions with a classifier: {"batch", "examples_per_second"}.

    Args:
      config, length, precision: see `planned_batches`.
      size: number of examples in a batch.
      count: number of batches to measure.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        model = trainable_model("classifier", config)
        fields = model.feature_fields(length)
        features = input_pipeline.placeholders(fields, size, ())
        spec = model.build_spec(features, estimator_spec.ModeKeys.PREDICT, _step(length, precision, size))
        session.run(tf.global_variables_initializer())
        arrays = random_batch(fields, (), size, config)
        feed = {tensor: arrays[name] for name, tensor in features.items()}
        for _ in range(3):
            session.run(spec.predictions, feed)
        began = time.perf_counter()
        for _ in range(count):
            session.run(spec.predictions, feed)
        return {"batch": size, "examples_per_second": count * size / (time.perf_counter() - began)}


def ops(config, length, precision, tf32, use_xla, size, rows=10):
    """Measures the kernels and bytes of a training step, and finds its op types with the most device time.

    Returns:
      {"top": [[op type, seconds, calls]], "kernels", "device_seconds", "bytes": {"matrix products",
      "other ops"}, "on_cpu": {op type: calls}}. `top` has at most `rows` op types. `kernels` is the number of
      kernels and copies on the GPU or, on a CPU, the number of ops. `bytes` are the sizes of all inputs and
      outputs. `on_cpu` contains the ops that ran on the CPU although the step uses a GPU.
    """
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as directory:
        step = Step("classifier", config, _step(length, precision, size, use_xla=use_xla))
        with tf.Session() as session:
            step.initialize(session)
            for _ in range(3):
                step.run(session)
            tf.compat.v2.profiler.experimental.start(directory)
            step.run(session)
            tf.compat.v2.profiler.experimental.stop()
            metadata = tf.RunMetadata()
            step.run(session, run_metadata=metadata, options=tf.RunOptions(
                trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True))
        space = _read_trace(directory)
    times = profiling.op_times(space)
    top = sorted(((kind, *value) for kind, value in times.items()), key=lambda row: -row[1])[:rows]
    return {"top": top, "device_seconds": sum(seconds for seconds, _ in times.values()),
            "kernels": _gpu_kernels(space) or sum(calls for _, calls in times.values()),
            **traffic(metadata)}


def _read_trace(directory):
    """Returns the trace that the profiler wrote to a directory, as an XSpace."""
    folder = f"{directory}/plugins/profile"
    newest = f"{folder}/{max(tf.gfile.ListDirectory(folder))}"
    with tf.gfile.Open(max(checkpoint_files.list_by_ending(newest, ".xplane.pb")), "rb") as reader:
        return tensorflow_internals.parse_profile(reader.read())


def _gpu_kernels(space):
    """Returns how many kernels and copies ran on all GPUs, according to a trace."""
    return sum(len(line.events) for plane in space.planes if plane.name.startswith("/device:GPU")
               for line in plane.lines if line.name.startswith("Stream"))


def traffic(metadata):
    """Counts the bytes of the inputs and outputs of all ops in a step.

    Args:
      metadata: a tf.RunMetadata with a full trace and the partition graphs.

    Returns:
      a dict with two entries; see `ops`. "bytes" is {"matrix products": number, "other ops": number}.
      "on_cpu" is {op type: number of calls}.
    """
    nodes = {node.name: node for graph in metadata.partition_graphs for node in graph.node}
    sizes, ran = {}, {}
    for device in metadata.step_stats.dev_stats:
        for stats in device.node_stats:
            if stats.node_name in nodes:
                ran[stats.node_name] = device.device
                sizes.update({(stats.node_name, output.slot):
                              output.tensor_description.allocation_description.requested_bytes
                              for output in stats.output})
    written, total = {}, {"matrix products": 0, "other ops": 0}
    for (name, _), size in sizes.items():
        written[name] = written.get(name, 0) + size
    on_cpu, has_gpu = {}, any("GPU" in device for device in ran.values())
    for name, device in ran.items():
        node = nodes[name]
        if node.op in _MOVE_NOTHING:
            continue
        read = 0
        for text in node.input:
            source, _, slot = text.partition(":")
            read += sizes.get((source, int(slot or 0)), 0)
        total["matrix products" if "MatMul" in node.op else "other ops"] += read + written.get(name, 0)
        if has_gpu and "CPU" in device:
            on_cpu[node.op] = on_cpu.get(node.op, 0) + 1
    return {"bytes": total, "on_cpu": on_cpu}
