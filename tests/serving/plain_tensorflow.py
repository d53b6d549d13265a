"""Runs SavedModels with TensorFlow alone, without this project.

    python plain_tensorflow.py CALLS RESULTS

CALLS is a JSON file with a list of [SavedModel, signature, {input: nested lists}]. RESULTS is the JSON file
to write: for each call, {output: nested lists}, or the message of an error. JSON cannot contain bytes, so the
bytes of "examples" are encoded as Latin-1 characters.
"""

import json
import sys

import numpy as np
import tensorflow as tf


def of_json(name, values):
    return [value.encode("latin-1") for value in values] if name == "examples" else values


def for_json(array):
    texts = np.vectorize(bytes.decode, otypes=[object])
    return (texts(array) if array.dtype == object else array).tolist()


def called(function, inputs):
    given = {name: tf.constant(of_json(name, inputs[name]), spec.dtype)
             for name, spec in function.structured_input_signature[1].items()}
    try:
        return {name: for_json(value.numpy()) for name, value in function(**given).items()}
    except tf.errors.InvalidArgumentError as error:
        return error.message


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        calls = json.load(file)
    loaded = {path: tf.saved_model.load(path) for path in dict.fromkeys(path for path, _, _ in calls)}
    assert not {"bertlib", "modeling", "tf1"} & set(sys.modules)
    results = [called(loaded[path].signatures[name], inputs) for path, name, inputs in calls]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(results, file)
