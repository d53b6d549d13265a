"""Predicts the memory of a training step, and the largest batch that fits, without running the step.

`step_config.choose` uses the predictions to choose the settings of a step. Exception: `trial_step_fits` runs
a step.

The graph is built with static shapes and rewritten as TensorFlow's runtime would rewrite it. Then
TensorFlow's optimizer Grappler simulates the graph on a virtual GPU. The result is a timeline: the order and
the time of the ops, and the sizes of their outputs. The timeline shows which tensors exist at each moment.
One GB is 10⁹ bytes.

Three things are not simulated: the memory of CUDA and its libraries, the workspaces of kernels, and the
fragmentation of the memory. For these things, the constants `CARD_OVERHEAD`, `ALLOCATOR_MARGIN` and
`WORKSPACE` reduce the memory that counts as usable.
"""

import collections
import dataclasses
import functools
import itertools
import os
import resource

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.estimator.step_config import GB, divisors, gb
from bertlib.graph import tensorflow_internals
from bertlib.system import replica_group

# Bytes of a card's nominal memory that TensorFlow's allocator cannot use. The driver and the CUDA context use
# one part of them, and another part is reserved for CUDA's libraries. `gpu_cards.CARDS` contains a more exact
# number for each known card.
CARD_OVERHEAD = 2.0 * GB
# The memory that TensorFlow's GPU allocator takes, divided by the simulated peak. This ratio is above 1,
# because the memory is fragmented. benchmarks/allocator.py, which follows the allocator's rules, finds 1.05
# for a step of BERT-Large. An earlier calculation found 1.067. The value below has not been checked on a GPU.
ALLOCATOR_MARGIN = 1.07
# Bytes of the free RAM that are set aside for two things that the simulation does not count: the workspaces
# of kernels, and fragmentation.
WORKSPACE = 0.5 * GB
# Seconds that are added for each op that makes a tensor. They are the time that a real GPU needs to start a
# kernel. The simulation ignores this time, so its times of small ops are too short.
SECONDS_PER_OP = 1e-5

_DEVICE = "/job:localhost/replica:0/task:0/device:GPU:0"
_VARIABLES = {"VarHandleOp", "VariableV2", "Variable"}
# Types of ops that return their input without allocating memory. IdentityN returns several inputs.
_ALIASES = {"Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient",
            "Snapshot", "DestroyTemporaryVariable", "Switch", "Bitcast"}
_LOOPS = {"Enter", "RefEnter", "NextIteration", "RefNextIteration"}


class MemoryNeed(collections.namedtuple("MemoryNeed", ["variables", "activations", "seconds"])):
    """The memory and the time that a micro-batch of a training step needs.

    Attributes:
      variables: bytes of all variables of the graph: weights, the optimizer's state, accumulators.
      activations: peak bytes of everything that is not a variable: activations, gradients and temporaries.
      seconds: time of one micro-batch on a virtual GPU. Use it only to compare graphs with each other.
    """

    @property
    def total(self):
        """Returns the peak memory in bytes, including the variables."""
        return self.variables + self.activations

    def __str__(self):
        return f"{gb(self.total)} ({gb(self.variables)} variables, {gb(self.activations)} activations)"


LargestBatch = collections.namedtuple("LargestBatch", ["batch_size", "need", "one_more"])
LargestBatch.__doc__ = \
    """The result of `largest_batch`.

Attributes:
  batch_size: number of examples; 0 if a single example does not fit.
  need: the `MemoryNeed` of this batch; None if batch_size is 0.
  one_more: the `MemoryNeed` of a batch with one more example; None if the search ended at its limit.
"""


# --- The memory of one graph -----------------------------------------------------------------------------


def predict_memory(build, *arguments):
    """Builds a training step in a new graph and simulates it.

    Args:
      build: function that builds the training step and returns its train op.
      *arguments: the arguments of `build`.

    Returns:
      see `simulate`.
    """
    with tf.Graph().as_default():
        return simulate(build(*arguments))


def simulate(train_op):
    """Simulates one training step.

    Args:
      train_op: the op or tensor that runs one step, in a graph with static shapes.

    Returns:
      a `MemoryNeed`.

    Raises:
      ValueError: the graph cannot be simulated, because it has an unknown shape, a loop or a function.
    """
    allocations, seconds = trace_allocations(train_op)
    peak = max(itertools.accumulate(change for _, change in allocations), default=0)
    return MemoryNeed(_variable_bytes(train_op.graph), peak, seconds)


def trace_allocations(train_op):
    """Simulates one training step. Returns the order in which its tensors are allocated and freed.

    Args:
      train_op: see `simulate`.

    Raises:
      ValueError: see `simulate`.

    Returns:
      (allocations, seconds of the step). The allocations are a list of pairs (tensor, change), in the order
      of time. A tensor is a pair (name of the node, index of the output). The change is +n when a tensor of n
      bytes is allocated, and −n when the tensor is freed. Variables are left out.
    """
    op = getattr(train_op, "op", train_op)
    for needed_op in _with_ancestors(op).values():
        _check(needed_op)
    meta_graph = rewrite(op)
    _, seconds, timeline = _virtual_gpu().MeasureCosts(tensorflow_internals.Item(meta_graph))
    allocations, number_of_tensors = _allocations(meta_graph.graph_def, timeline)
    return allocations, seconds + SECONDS_PER_OP * number_of_tensors


def rewrite(train_op):
    """Returns a tf.MetaGraphDef: the graph of a training step, after the changes that TensorFlow's runtime
    would make for a GPU. `train_op` is the op or tensor that runs one step."""
    op = getattr(train_op, "op", train_op)
    ancestors = _with_ancestors(op)
    meta_graph = tf.MetaGraphDef(graph_def=op.graph.as_graph_def())
    meta_graph.collection_def["train_op"].node_list.value.append(op.name)
    nodes = [node for node in meta_graph.graph_def.node if node.name in ancestors]
    for node in nodes:
        node.device = _DEVICE
    del meta_graph.graph_def.node[:]
    meta_graph.graph_def.node.extend(nodes)
    # The rewritten graph is used, because it can need more memory than the original graph: for example,
    # TensorFlow can move a matrix product of the backward pass into the forward pass.
    rewritten = tensorflow_internals.optimize_graph(tf.ConfigProto(), meta_graph, verbose=False,
                                                    cluster=_virtual_gpu())
    meta_graph.graph_def.CopyFrom(rewritten)
    return meta_graph


def _virtual_gpu():
    # The virtual GPU has so much memory that Grappler, TensorFlow's optimizer of graphs, never plans to move
    # tensors from the GPU to the host's memory. The clock, the cores and the bandwidth are those of a GTX
    # Titan X (Pascal).
    device = tensorflow_internals.NamedDevice(name=_DEVICE, properties=tensorflow_internals.DeviceProperties(
        type="GPU", vendor="NVIDIA", frequency=1417, num_cores=28, bandwidth=480000000, memory_size=1 << 60,
        environment={"architecture": "6"}))
    return tensorflow_internals.Cluster(devices=[device], disable_timeline=False)


def _with_ancestors(op):
    """Returns {name: op} for the op and for all ops on which it depends."""
    ancestors, stack = {}, [op]
    while stack:
        op = stack.pop()
        if op.name not in ancestors:
            ancestors[op.name] = op
            stack += [tensor.op for tensor in op.inputs] + op.control_inputs
    return ancestors


def _check(op):
    """Raises a ValueError if the simulation would not count the memory of an op, or would count only a part
    of it."""
    problem = None
    for name, value in op.node_def.attr.items():
        if value.HasField("func") or value.list.func:
            problem = (f"the memory of its function ({name}) would not be counted. Build the graph without "
                       "tf.function. If this is a tf.cond or a tf.while_loop, call "
                       "tf.disable_control_flow_v2() first")
    if op.type in _LOOPS:
        problem = "only one iteration of this loop would be counted. Build the graph without a loop"
    for tensor in op.outputs:
        # Scalars and vectors of integers (for example the shape of a tensor) may have unknown sizes. They are
        # small and in the host's memory, so the prediction can ignore them.
        small = tensor.dtype.is_integer and tensor.shape.ndims in (0, 1)
        if (tensor.dtype not in (tf.resource, tf.variant, tf.string) and not small
                and not tensor.shape.is_fully_defined()):
            problem = (f"the shape of its output is {tensor.shape}. Build the graph with static shapes: a "
                       "number for the batch size, and inputs with all dimensions given")
    if problem:
        raise ValueError(f"The memory of this graph cannot be predicted. {op.name} ({op.type}): {problem}.")


def _variable_bytes(graph):
    """Returns the bytes of all variables of a graph, including variables that the step does not use."""
    total = 0
    for op in graph.get_operations():
        if op.type in _VARIABLES:
            shape = tf.TensorShape(op.get_attr("shape"))
            if not shape.is_fully_defined():
                raise ValueError("The memory of this graph cannot be predicted. "
                                 f"Variable {op.name} has the shape {shape}: all of its dimensions must be "
                                 "known.")
            total += shape.num_elements() * op.get_attr("dtype").size
    return total


def _allocations(graph_def, timeline):
    """Returns (allocations, number of tensors). For the form of the allocations, see `trace_allocations`.

    The function walks along the timeline, allocates the outputs of each op, and frees each tensor after its
    last use.

    Args:
      graph_def: the graph.
      timeline: a StepStats, which contains the nodes in the order in which they ran, and the sizes of their
        outputs.
    """
    nodes = {node.name: node for node in graph_def.node}

    @functools.cache
    def owner(tensor):
        """Returns the tensor whose memory `tensor` uses. For most tensors, this is `tensor` itself. If the op
        of `tensor` returns its input (see `_ALIASES` and `_returns_reference`), the result is the owner of
        this input. Returns None if `tensor` uses the memory of a variable. A tensor is a pair (name of the
        node, index of the output)."""
        node = nodes[tensor[0]]
        if node.op in _VARIABLES or node.op == "ReadVariableOp":
            return None
        if node.op in _ALIASES or (node.input and _returns_reference(node.op)):
            return owner(_parse(node.input[tensor[1] if node.op == "IdentityN" else 0]))
        return tensor

    ran = [stats for device in timeline.dev_stats for stats in device.node_stats if stats.node_name in nodes]
    size, last_use = {}, {}
    for position, stats in enumerate(ran):
        outputs = [(stats.node_name, index) for index in range(len(stats.output))]
        for tensor, described in zip(outputs, stats.output):
            if owner(tensor) == tensor:
                size[tensor] = described.tensor_description.allocation_description.allocated_bytes
        inputs = [_parse(text) for text in nodes[stats.node_name].input if not text.startswith("^")]
        # A tensor is freed only after the last use of its aliases. Example: MatMul → Reshape → Add. The
        # Reshape allocates no memory, so the output of MatMul is freed after Add. For a variable, `owner`
        # returns None, so `last_use` may contain the key None. This key has no effect, because only tensors
        # in `size` are freed. Variables are not in `size`: `_variable_bytes` counts their memory.
        last_use.update((owner(tensor), position) for tensor in inputs + outputs)

    freed = collections.defaultdict(list)
    for tensor, position in last_use.items():
        if tensor in size:
            freed[position].append(tensor)
    allocations = []
    for position, stats in enumerate(ran):
        # The memory of an op's outputs is added first, because it is allocated before the inputs are freed.
        outputs = [(stats.node_name, index) for index in range(len(stats.output))]
        allocations += [(tensor, size[tensor]) for tensor in outputs if tensor in size]
        allocations += [(tensor, -size[tensor]) for tensor in freed[position]]
    return allocations, len(size)


@functools.cache
def _returns_reference(op_type):
    """Returns whether ops of a type return a reference to their input variable, as Assign does. Such an op
    allocates no memory for its output."""
    definition = tensorflow_internals.op_definition(op_type)
    return definition is not None and any(output.is_ref for output in definition.output_arg)


def _parse(text):
    """Parses the input of a node, "name" or "name:output"; returns (name, output)."""
    name, _, output = text.partition(":")
    return name, int(output or 0)


# --- The largest batch that fits -------------------------------------------------------------------------


def largest_batch(need_of_size, usable_bytes, limit=1 << 16):
    """Finds the largest batch size that fits into memory.

    Memory is nearly linear in the batch size. The search draws a line through the two simulated sizes whose
    memory is nearest to `usable_bytes`, and simulates the size at which this line crosses `usable_bytes`. The
    search ends when it has simulated a size n that fits and the size n + 1, which does not fit. Most searches
    take four simulations.

    Args:
      need_of_size: function that takes a batch size and returns the `MemoryNeed` of a step.
      usable_bytes: the memory that the step may use.
      limit: the largest batch size to try.

    Returns:
      a `LargestBatch`.
    """
    predictions = {}
    fits, too_large = 0, limit + 1
    # The first size is large, because a line through a large size predicts other sizes better than a line
    # through a small size. This choice costs no time: the simulation takes the same time for all sizes.
    guess = min(256, limit)
    while too_large - fits > 1:
        predictions[guess] = need_of_size(guess)
        if predictions[guess].total <= usable_bytes:
            fits = guess
        else:
            too_large = guess
        # `_crossing` assumes that the memory is a linear function of the batch size. If this is far from
        # true, each of its guesses may exclude only one size, and the search would take very long. So after
        # eight simulated sizes, the next size is the middle between the largest size that fits and the
        # smallest size that does not fit.
        guess = _crossing(predictions, usable_bytes) if len(predictions) < 8 else (fits + too_large) // 2
        guess = min(max(guess, fits + 1), too_large - 1)
    return LargestBatch(fits, predictions.get(fits), predictions.get(too_large))


def _crossing(predictions, usable_bytes):
    """Estimates and returns the largest batch size at which a step fits into `usable_bytes`.

    The memory is assumed to be a linear function of the batch size. The two simulated sizes whose memory is
    nearest to `usable_bytes` determine this function. If only one size was simulated, the activations are
    assumed to be proportional to the batch size.
    """
    room = {size: usable_bytes - prediction.total for size, prediction in predictions.items()}
    if len(room) == 1:
        (size, prediction), = predictions.items()
        return int(size + size * room[size] / prediction.activations)
    first, second = sorted(sorted(room, key=lambda size: abs(room[size]))[:2])
    fall = (room[first] - room[second]) / (second - first)
    return int(first + room[first] / fall) if fall > 0 else 2 * second


def trial_step_fits(build, *arguments):
    """Runs a training step, with zeros in all placeholders, and returns whether it fits into memory.

    Args:
      build: function that builds the step in the current graph and returns the train op. All placeholders of
        the step must have static shapes.
      *arguments: the arguments of `build`.
    """
    with tf.Graph().as_default() as graph, tf.Session() as session:
        train_op = build(*arguments)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        inputs = [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]
        try:
            session.run(train_op,
                        {tensor: np.zeros(tensor.shape, tensor.dtype.as_numpy_dtype) for tensor in inputs})
        except tf.errors.ResourceExhaustedError:
            return False
    return True


def advice(alternatives, memory_need, usable_bytes):
    """Returns advice for a run that is out of memory: the sizes of micro-batches that fit, and the flags for
    each size.

    Args:
      alternatives: {flags to change, such as "--recompute=layers": the `StepConfig` after this change}. The
        first entry is the unchanged step of the run.
      memory_need: function that takes a `StepConfig` and returns the `MemoryNeed` of one of its
        micro-batches.
      usable_bytes: the memory that a step may use.

    Returns:
      str, several lines.
    """
    current = next(iter(alternatives.values()))
    need = memory_need(current)
    lines = [f"By simulation a micro-batch of {current.batch.micro_batch_size} needs {need}, and "
             f"{gb(usable_bytes)} are usable."]
    if need.total <= usable_bytes:
        usable_bytes = int(0.8 * need.total)
        lines.append("According to the simulation, this micro-batch fits. Probably other programs use memory "
                     "too, or the memory is fragmented. For this reason, the table below assumes that only "
                     f"{gb(usable_bytes)} are usable.")
    lines.append("The largest micro-batch that fits, and the flags for it:")
    widest = max(map(len, alternatives))
    for change, step_config in alternatives.items():
        def of_size(size, step_config=step_config):
            # A step with a single micro-batch needs no accumulators. A step with two or more micro-batches
            # needs memory for them. So a micro-batch that is smaller than the training batch is simulated as
            # one of two micro-batches.
            whole = size >= step_config.train_batch_size
            return memory_need(dataclasses.replace(step_config, train_batch_size=size if whole else 2 * size,
                                                   gradient_accumulation_steps=1 if whole else 2))

        largest = largest_batch(of_size, usable_bytes, limit=step_config.train_batch_size)
        if largest.batch_size:
            count = next(count for count in divisors(step_config.train_batch_size)
                         if step_config.train_batch_size // count <= largest.batch_size)
            lines.append(f"  {change:{widest}}  {largest.batch_size:4}  "
                         f"--gradient_accumulation_steps={count}")
        else:
            lines.append(f"  {change:{widest}}  none; a single example needs {gb(largest.one_more.total)}")
    return "\n".join(lines)


# --- The usable memory -----------------------------------------------------------------------------------


def usable_memory(limit_gb=None):
    """Returns the memory that a step may use: memory of the smallest GPU, or RAM if there is no GPU. A step
    is expected to fit if its simulated peak is at most this memory.

    With replicas, all replicas have to call this function, and the smallest number of all replicas is
    returned. So all of them choose the same settings.

    Args:
      limit_gb: the memory in GB that a step may use instead, from --memory_limit_gb; None for all memory.

    Returns:
      (number of bytes, description such as "7.50 GB: free RAM minus 0.50 GB for workspaces and
      fragmentation").
    """
    group, gpus = replica_group.current(), tf.config.list_physical_devices("GPU")
    if limit_gb is not None:
        usable, source = limit_gb * GB, "--memory_limit_gb"
    elif gpus:
        with tf.Graph().as_default(), tf.Session() as session:
            usable = min(device.memory_limit_bytes for device in session.list_devices()
                         if device.device_type == "GPU")
        source = f"{gb(usable)} of GPU memory"
    else:
        usable = available_ram() - WORKSPACE
        source = f"free RAM minus {gb(WORKSPACE)} for workspaces and fragmentation"
        if group:
            usable, source = usable / group.local_count, f"{source}, for each of {group.local_count} replicas"
    if gpus:
        usable, source = usable / ALLOCATOR_MARGIN, f"{source} minus the margin for fragmentation"
    if group and limit_gb is None:
        usable = min(group.all_gather(usable))
    return usable, f"{gb(usable)}: {source}"


def available_ram():
    """Returns the bytes of RAM that this process may use: the free RAM, or less if its cgroup or `ulimit -v`
    has a lower limit."""
    with open("/proc/meminfo", encoding="utf-8") as lines:
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit >= 0:  # -1 means that there is no limit
        with open("/proc/self/statm", encoding="utf-8") as reader:
            free = min(free, limit - int(reader.read().split()[0]) * resource.getpagesize())
    for directory, limit, used, reclaimable in (
            ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
             "total_inactive_file")):
        def read(name, directory=directory):
            with open(os.path.join(directory, name), encoding="utf-8") as reader:
                return reader.read()

        try:
            statistics = dict(line.split() for line in read("memory.stat").splitlines())
            free = min(free, int(read(limit)) - int(read(used)) + int(statistics[reclaimable]))
        except (OSError, KeyError, ValueError):  # there is no such cgroup, or its limit is the word "max"
            continue
    return free
