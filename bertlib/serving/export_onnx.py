"""Writes the ONNX file of a model.

The graph of the model and its head is built in the same way as for a prediction with TensorFlow. The package
tf2onnx converts this graph. During the conversion, the weights are placeholders. After the conversion, they
become constants of the ONNX graph. The reason is memory: when the weights were constants of TensorFlow's
graph, tf2onnx needed 21 GB for BERT-Base.
"""

import contextlib
import logging

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.estimator.step_config import StepConfig
from bertlib.serving.onnx_model import import_package
from bertlib.tasks import loaded_model

OPSET = 17
# Largest number of bytes of the weights. Protobuf can write at most 2 GiB into an ONNX file, and 16 MiB of
# this limit are reserved for the graph.
_MAX_BYTES = 2**31 - 2**24
_PACKAGES = ("onnx", "tf2onnx", "onnxruntime")
# If all inputs of one of these ops are constants, the op is computed during the conversion, and its result
# becomes a constant. This is necessary because quantization needs the weights as constants.
_FOLDED_OPS = ("Cast", "Concat", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def write(model, task, quantize, path):
    """Writes a trained model as an ONNX file.

    The inputs are those of `loaded_model.LoadedModel`, int32 [batch, length]. The batch size and the length
    may change between calls. The outputs are the predictions of the head.

    Args:
      model: a `trained_model.TrainedModel`.
      task: the `answers.Answers` of the model.
      quantize: see `export_portable.export`.
      path: the new file.

    Raises:
      ValueError, OSError: the weights are damaged or too large for an ONNX file, or tf2onnx cannot convert
        the graph.
      ImportError: a package is not installed.
    """
    for name in _PACKAGES:
        import_package(name)
    checkpoint = loaded_model.check_weights(task.head, model.bert_config, model.checkpoint)
    weights = {}
    with tf.Graph().as_default() as graph:
        inputs = loaded_model.create_inputs((*loaded_model.ENCODER_INPUTS, *task.extra_inputs))
        with tf.variable_scope(tf.get_variable_scope(), custom_getter=_placeholder_getter(weights)):
            predictions = loaded_model.build(task.head, model.bert_config, inputs,
                                             StepConfig(portable_ops=True))
        outputs = {name: tf.identity(tensor, f"{name}_output") for name, tensor in predictions.items()}
    num_bytes = 4 * sum(tensor.shape.num_elements() for tensor in weights.values())
    if num_bytes > _MAX_BYTES:
        raise ValueError(f"The weights of this model have {num_bytes / 1e9:.1f} GB, but an ONNX file can "
                         "have only 2.1 GB. Export the model with --format=saved_model.")
    names = {**{tensor.name: name for name, tensor in [*inputs.items(), *outputs.items()]},
             **{tensor.name: name for name, tensor in weights.items()}}
    proto = _convert_graph(graph, [tensor.name for tensor in [*inputs.values(), *weights.values()]],
                           [tensor.name for tensor in outputs.values()])
    _rename(proto, names)
    _set_weights(proto, {name: checkpoint.read(name) for name in weights})
    (_save_int8 if quantize else import_package("onnx").save_model)(proto, path)


@contextlib.contextmanager
def _hidden_messages(logger, level):
    """Returns a context manager in which a logger hides messages below a level."""
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


def _placeholder_getter(weights):
    """Returns a custom getter for `tf.variable_scope`. For each variable, the getter returns a placeholder
    and adds the placeholder to the dict `weights`."""
    def get(getter, name, shape=None, dtype=tf.float32, **arguments):
        if name not in weights:
            weights[name] = tf.placeholder(dtype, shape, name.replace("/", "."))
        return weights[name]
    return get


def _convert_graph(graph, inputs, outputs):
    """Converts a graph of TensorFlow to a ModelProto of ONNX. `inputs` and `outputs` are names of tensors."""
    tfonnx, optimizer = import_package("tf2onnx.tfonnx"), import_package("tf2onnx.optimizer")
    try:
        # tf2onnx writes several messages about one problem.
        with (_hidden_messages(logging.getLogger("tf2onnx"), logging.CRITICAL),
              tf.Graph().as_default() as copy, tf.Session(graph=copy)):
            tf.import_graph_def(graph.as_graph_def(), name="")
            onnx_graph = tfonnx.process_tf_graph(copy, opset=OPSET, input_names=inputs, output_names=outputs)
            return optimizer.optimize_graph(onnx_graph).make_model("BERT")
    except ValueError as error:
        reason = str(error).removeprefix("make_sure failure: ").rstrip(".")
        raise ValueError(f"ONNX cannot represent the graph of this model: {reason}. Export the model with "
                         "--format=saved_model.") from error


def _all_nodes(nodes):
    """Yields the given nodes, and the nodes of nested graphs. (A node can have a graph as an attribute.)"""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g.node)


def _rename(proto, names):
    """Renames tensors. `names` is {old name: new name}."""
    graph = proto.graph
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
        for axis, name in zip(value.type.tensor_type.shape.dim, ("batch", "length")):
            if axis.dim_param or not axis.dim_value:
                axis.dim_param = name
    for node in _all_nodes(graph.node):
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
    del graph.value_info[:]


def _set_weights(proto, weights):
    """Turns the weights, which are inputs of the graph, into constants. Then replaces each op in
    `_FOLDED_OPS` by its result if all inputs of the op are constants. Inputs that no op uses are removed.

    Args:
      proto: a ModelProto of ONNX, in which the weights are inputs.
      weights: {name of an input: array}.
    """
    onnx, reference = import_package("onnx"), import_package("onnx.reference")
    graph = proto.graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    constants.update(weights)
    nodes = []
    for node in graph.node:
        if node.op_type in _FOLDED_OPS and all(name in constants for name in node.input):
            results = reference.ReferenceEvaluator(node).run(None, {name: constants[name]
                                                                    for name in node.input})
            constants.update(zip(node.output, results))
        else:
            nodes.append(node)
    input_names = {name for node in _all_nodes(nodes) for name in node.input}
    inputs = [value for value in graph.input if value.name in input_names and value.name not in weights]
    initializers = [onnx.numpy_helper.from_array(np.asarray(array), name)
                    for name, array in constants.items() if name in input_names]
    for field, values in ((graph.input, inputs), (graph.node, nodes), (graph.initializer, initializers)):
        del field[:]
        field.extend(values)


def _save_int8(proto, path):
    """Quantizes the weights of a model to int8, and writes the model into a file.

    Matrix products with weights are computed in int8. The other inputs of these products are quantized when
    the model runs (dynamic quantization), with one scale for each tensor. The weights have one scale for each
    column. The weights use only 7 of the 8 bits: with 8 bits, sums of products overflow on CPUs without
    instructions for int8 (VNNI).

    Args:
      proto: a ModelProto of ONNX.
      path: the new file.
    """
    quantization = import_package("onnxruntime.quantization")
    # A warning recommends a preprocessing for image models.
    with _hidden_messages(logging.getLogger(), logging.ERROR):
        quantization.quantize_dynamic(
            proto, path, op_types_to_quantize=["MatMul"], per_channel=True, reduce_range=True,
            weight_type=quantization.QuantType.QInt8)
