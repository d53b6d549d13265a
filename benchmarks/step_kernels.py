"""Counts the kernels that a training step starts on a GPU, and the bytes that they move. No GPU is needed.

    python benchmarks/step_kernels.py [--model=large] [--batch=8] [--length=384] [--results=NAME]

The graph of a step is built as on a machine with a GPU. Grappler rewrites the graph, as it would in a
session. Each op that makes a tensor of numbers counts as one kernel, which reads its inputs once and writes
its outputs once. Matrix products are counted separately. Two kinds of ops do not count: ops that return their
input, and ops on integers that describe a shape.

With --use_xla, the kernels of a compiled function are those that XLA compiles for this machine's CPU. On a
GPU, XLA combines the ops in another way, so these figures are estimates. The figures without XLA follow
directly from the graph.
"""

import argparse
import collections
import functools
import os
import re
import sys
import unittest.mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bertlib.commands import plan_memory

import results
import tensorflow.compat.v1 as tf

from bertlib.estimator import memory_planner
from bertlib.estimator.step_config import GB, StepConfig
from bertlib.graph import formulas
import modeling

PRODUCTS = {"MatMul", "BatchMatMulV2", "_FusedMatMul", "Conv2D"}
FREE = {"Const", "Placeholder", "NoOp", "VarHandleOp", "ReadVariableOp", "Identity", "IdentityN", "Reshape",
        "ExpandDims", "Squeeze", "Shape", "Bitcast", "PreventGradient", "StopGradient"}
FREE_IN_XLA = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
BYTES_IN_XLA = {"bf16": 2, "f16": 2, "f32": 4, "s32": 4, "s64": 8, "pred": 1, "u32": 4}

Count = collections.namedtuple("Count", ["kernels", "bytes"])


def size(tensor):
    """Returns the size of a tensor in bytes. Returns 0 for resources, variants and strings. Also returns 0
    for scalars and vectors of integers, because they usually describe shapes."""
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0
    if tensor.dtype.is_integer and tensor.shape.ndims in (0, 1):
        return 0
    return tensor.shape.num_elements() * tensor.dtype.size


class CompiledCalls:
    """Records the calls of compiled functions while a graph is built. Counts the kernels of each function."""

    def __init__(self):
        # {name of an op: the compiled function that the op calls, and the arguments of this call}
        self.functions = {}
        self.counts = {}

    def record(self, kernels):
        """Records the calls of the compiled functions of a `formulas.XlaFormulas`."""
        for name, compiled in vars(kernels).items():
            setattr(kernels, name, functools.partial(self._call, getattr(formulas, name), compiled))

    def _call(self, function, compiled, *args, **kwargs):
        found = compiled(*args, **kwargs)
        op = (found[0] if isinstance(found, (list, tuple)) else found).op
        self.functions[op.name] = (function, args, kwargs)
        return found

    def count(self, name):
        """Returns the `Count` of the compiled function that the op with this name calls."""
        function, args, kwargs = self.functions[name]
        key = (function.__name__, *(
            (value.dtype, tuple(value.shape.as_list())) if isinstance(value, tf.Tensor) else value
            for value in [*args, *kwargs.values()]))
        if key not in self.counts:
            self.counts[key] = self._count(function, args, kwargs)
        return self.counts[key]

    @staticmethod
    def _count(function, args, kwargs):
        values = [*args, *kwargs.values()]
        tensors = [value for value in values if isinstance(value, tf.Tensor)]

        def of_tensors(*given):
            rest = iter(given)
            filled = [next(rest) if isinstance(value, tf.Tensor) else value for value in values]
            return function(*filled[:len(args)], **dict(zip(kwargs, filled[len(args):])))

        with tf.init_scope():
            specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
            program = tf.compat.v2.function(of_tensors, jit_compile=True, autograph=False
                                            ).experimental_get_compiler_ir(*specs)(stage="optimized_hlo")
        sizes, kernels, moved = {}, 0, 0
        for line in program[program.index("\nENTRY"):].splitlines()[1:]:
            match = re.match(r"\s+(?:ROOT )?(%\S+) = (.*?) ([a-z-]+)\((.*?)\)(,|$)", line)
            if not match:
                continue
            name, made, kind, operands, _ = match.groups()
            sizes[name] = sum(BYTES_IN_XLA[dtype] * product(shape)
                              for dtype, shape in re.findall(r"([a-z]+[0-9]*)\[([0-9,]*)\]", made))
            if kind not in FREE_IN_XLA:
                kernels += 1
                moved += sizes[name] + sum(sizes[operand] for operand in re.findall(r"%[^\s,)]+", operands))
        return Count(kernels, moved)


def product(shape):
    """Returns the number of elements of a tensor. `shape` is its shape as a text, such as "8,16"."""
    number = 1
    for length in filter(None, shape.split(",")):
        number *= int(length)
    return number


def count(model, settings, precision, use_xla):
    """Counts the kernels of a training step, and the bytes that they read and write. Returns {type of op:
    `Count`}. For a compiled function, the key is the name of the function."""
    step = StepConfig(max_seq_length=settings.length, precision=precision, train_batch_size=settings.batch,
                      recompute=settings.recompute, use_xla=use_xla)
    calls = CompiledCalls()
    create = formulas.XlaFormulas.__init__

    def create_recorded(kernels):
        create(kernels)
        calls.record(kernels)

    patch = unittest.mock.patch.object(formulas.XlaFormulas, "__init__", create_recorded)
    with tf.Graph().as_default(), patch:
        rewritten = memory_planner.rewrite(model.build(step))
    found = collections.defaultdict(lambda: Count(0, 0))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(rewritten.graph_def, name="")
        for op in graph.get_operations():
            moved = sum(map(size, op.outputs))
            kind = op.type
            if op.name in calls.functions:
                kind, one = calls.functions[op.name][0].__name__, calls.count(op.name)
            elif op.type in FREE or not (moved or op.type.startswith("Resource")):
                continue
            else:
                one = Count(1, moved + sum(map(size, op.inputs)))
            found[kind] = Count(*map(sum, zip(found[kind], one)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="large", choices=sorted(plan_memory.MODELS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--precisions", default="fp32,bf16,fp16")
    parser.add_argument("--top", type=int, default=0,
                        help="number of op types to print; the types with the most bytes come first")
    parser.add_argument("--recompute", default="none", choices=modeling.RECOMPUTE)
    results.add_flag(parser)
    settings = parser.parse_args()
    tf.disable_control_flow_v2()
    recorder = results.Recorder(settings.results, {"bytes": "GB", "bytes_of_products": "GB"})
    config = modeling.BertConfig(**plan_memory.MODELS[settings.model])
    model = plan_memory.task_model(config, "squad")
    for precision in settings.precisions.split(","):
        for use_xla in (False, True):
            found = count(model, settings, precision, use_xla)
            products, other = (
                Count(*map(sum, zip(*[one for kind, one in found.items() if (kind in PRODUCTS) == wanted])))
                for wanted in (True, False))
            print(f"{precision}{', --use_xla' if use_xla else ''}: {products.kernels} matrix products with "
                  f"{products.bytes / GB:.1f} GB; {other.kernels} other kernels with "
                  f"{other.bytes / GB:.1f} GB")
            for kind, one in sorted(found.items(), key=lambda item: -item[1].bytes)[:settings.top]:
                print(f"    {kind:24} {one.kernels:5} {one.bytes / GB:8.1f} GB")
            recorder.add(precision=precision, use_xla=use_xla, kernels=other.kernels,
                         bytes=round(other.bytes / GB, 1), products=products.kernels,
                         bytes_of_products=round(products.bytes / GB, 1))
    recorder.write()


if __name__ == "__main__":
    main()
