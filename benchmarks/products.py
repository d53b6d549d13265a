"""Measures the speed of the matrix products of an encoder in TensorFlow, in GFLOP per CPU second.

    python benchmarks/products.py [--rows=4096] [--width=768] [--precision=bf16] [--results=NAME]

The products of the forward pass and of the gradients are measured. Each product is computed in two forms: as
a matrix product, and as a 1 × 1 convolution over images of `--pixels` rows. The gradient of the weights has a
third form: the product of each block of `--pixels` rows is computed, and the products are added.
`bertlib/kernels` uses the form that is fastest in a whole step. This may not be the form that is fastest
here.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import results
import tensorflow.compat.v1 as tf

from bertlib.command_line import launch

import modeling


def forms(rows, width, units, pixels):
    """Returns the forms in which the matrix products of a dense layer can be computed.

    Returns:
      {name of the product: {name of the form: function}}. Each function takes three matrices: the inputs, the
      weights and the gradient of the outputs.
    """
    images = [rows // pixels, 1, pixels]
    convolution = {"strides": [1] * 4, "padding": "VALID"}

    def pixels_of(matrix):
        return tf.reshape(matrix, [*images, -1])

    def filters_of(weights):
        return tf.reshape(weights, [1, 1, width, units])

    return {
        "outputs": {
            "product": lambda inputs, weights, _: tf.matmul(inputs, weights),
            "convolution": lambda inputs, weights,
            _: tf.nn.conv2d(pixels_of(inputs), filters_of(weights), **convolution)},
        "gradient of inputs": {
            "product": lambda _, weights, gradient: tf.matmul(gradient, weights, transpose_b=True),
            "convolution": lambda _, weights, gradient: tf.nn.conv2d_backprop_input(
                [*images, width], filters_of(weights), pixels_of(gradient), **convolution)},
        "gradient of weights": {
            "product": lambda inputs, _, gradient: tf.matmul(inputs, gradient, transpose_a=True),
            "convolution": lambda inputs, _, gradient: tf.nn.conv2d_backprop_filter(
                pixels_of(inputs), [1, 1, width, units], pixels_of(gradient), **convolution),
            "blocks": lambda inputs, _, gradient: tf.reduce_sum(tf.cast(tf.matmul(
                pixels_of(inputs), pixels_of(gradient), transpose_a=True), tf.float32), axis=[0, 1])}}


def cpu_seconds(run, times=10, rounds=4):
    """Returns the CPU seconds of one call, from the fastest round."""
    run()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            run()
        found.append((time.process_time() - start) / times)
    return min(found)


def main():
    """Prints a line for each matrix product, with the speed of each way to compute it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096,
                        help="rows of the input matrix: number of examples times their length in tokens")
    parser.add_argument("--width", type=int, default=768, help="hidden size of the model")
    parser.add_argument("--pixels", type=int, default=512,
                        help="number of rows in an image or a block; must divide --rows")
    parser.add_argument("--precision", choices=modeling.PRECISIONS, default="bf16")
    results.add_flag(parser)
    arguments = parser.parse_args()
    if arguments.rows % arguments.pixels:
        parser.error(f"--pixels={arguments.pixels} does not divide --rows={arguments.rows}.")
    recorder = results.Recorder(arguments.results, {"speed": "GFLOP per CPU s"})
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    rows, one = arguments.rows, arguments.width
    for width, units in ((one, 3 * one), (one, one), (one, 4 * one), (4 * one, one)):
        with tf.Graph().as_default(), tf.Session() as session:
            matrices = [tf.Variable(tf.cast(tf.random.normal(shape),
                                            modeling.PRECISIONS[arguments.precision])).read_value()
                        for shape in ([rows, width], [width, units], [rows, units])]
            session.run(tf.global_variables_initializer())
            for what, functions in forms(rows, width, units, arguments.pixels).items():
                speeds = {form: 2e-9 * rows * width * units
                          / cpu_seconds(session.make_callable(function(*matrices).op))
                          for form, function in functions.items()}
                print(f"{rows} × {width} · {units}  {what:20s}",
                      *(f"  {form} {speed:5.0f}" for form, speed in speeds.items()), flush=True)
                for form, speed in speeds.items():
                    recorder.add(rows=rows, width=width, units=units, product=what, form=form, speed=speed)
    recorder.write()


if __name__ == "__main__":
    launch.keep_freed_memory()
    main()
