"""Uses `bertlib.keras` like a user's program, and prints a JSON object.

Arguments: the directory of a model, a directory for output, and a part of the program. The parts are "train",
"more" (slow tests) and "load" (loads the models that "more" saved).
"""

import json
import os
import shutil
import sys

import numpy as np
import tensorflow as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.keras import BertEncoder

MODEL, OUTPUT, PART = sys.argv[1:]
IDS = np.random.RandomState(0).randint(5, 40, (6, 12))
MASK = np.ones_like(IDS)
MASK[:, 9:] = 0
SEGMENTS = np.arange(12)[np.newaxis, :].repeat(6, 0) // 6
INPUTS = {"input_ids": IDS, "input_mask": MASK, "segment_ids": SEGMENTS}
LABELS = np.array([0, 1, 0, 1, 0, 1])


@tf.keras.utils.register_keras_serializable("tests")
class Classifier(tf.keras.Model):
    """A subclassed model."""

    def __init__(self, encoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.head = encoder, tf.keras.layers.Dense(2)

    def call(self, inputs, training=False):
        return self.head(self.encoder(inputs, training=training)["pooled_output"])


def functional(encoder):
    inputs = {name: tf.keras.Input((None,), dtype="int32", name=name) for name in INPUTS}
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(encoder(inputs)["pooled_output"]))


def fit(model, epochs=1, inputs=INPUTS):
    tf.keras.utils.set_random_seed(0)  # the order of the examples
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3),
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model.fit(inputs, LABELS, epochs=epochs, verbose=0).history["loss"]


def moved(layer, before):
    """Returns the indices of the weights of a layer that differ from `before`."""
    return [index for index, (old, new) in enumerate(zip(before, layer.get_weights()))
            if not np.array_equal(old, new)]


def largest(first, second):
    return float(np.abs(np.asarray(first) - np.asarray(second)).max())


def outputs_and_gradients(encoder, training):
    """Calls the encoder. Returns {name: array}: outputs, and the gradient of their sum for each weight."""
    weights = {name: tensor if isinstance(tensor := getattr(encoder, name), tf.Variable) else tensor.value
               for name in vars(encoder) if name.startswith("bert/")}
    with tf.GradientTape() as tape:
        outputs = encoder(INPUTS, training=training)
        loss = tf.reduce_sum(outputs["pooled_output"]) + tf.reduce_sum(outputs["sequence_output"][..., 0])
    gradients = tape.gradient(loss, weights)
    return {**{name: tensor.numpy() for name, tensor in outputs.items()},
            **{name: tf.convert_to_tensor(tensor).numpy() for name, tensor in gradients.items()}}


def errors_of(calls):
    """Returns the error of each call, as text."""
    found = []
    for call in calls:
        try:
            call()
            found.append("no error")
        except Exception as error:  # noqa: BLE001 (the test checks the type)
            found.append(f"{type(error).__name__}: {error}")
    return found


def run_bad_inputs(encoder):
    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def unknown_rank(ids):
        return encoder(ids)["pooled_output"]

    whole = {"input_ids": IDS}
    return errors_of([
        lambda: encoder({**whole, "mask": MASK}), lambda: encoder(IDS[0]), lambda: encoder(IDS.repeat(4, 1)),
        lambda: encoder({**whole, "segment_ids": MASK * 2}),
        lambda: encoder({**whole, "input_mask": MASK[:, :5]}), lambda: encoder(IDS + 0.5),
        lambda: unknown_rank(IDS + 1000),
        lambda: encoder(tf.keras.Input((41,), dtype="int32")),
        lambda: fit(functional(encoder), inputs={**INPUTS, "input_ids": IDS + 1000})])


def run_bad_settings(encoder):
    config = encoder.get_config()["config"]
    return errors_of([
        lambda: BertEncoder.from_checkpoint(OUTPUT), lambda: BertEncoder({}), lambda: BertEncoder(None),
        lambda: BertEncoder(config, dtype="mixed_float16")])


def run_mixed_precision():
    """Returns the largest difference between the outputs in bfloat16 and in float32, and dtypes."""
    encoder = BertEncoder.from_checkpoint(MODEL)
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    mixed = BertEncoder.from_checkpoint(MODEL)
    outputs = mixed(INPUTS)
    before = mixed.get_weights()
    losses = fit(Classifier(mixed))
    tf.keras.mixed_precision.set_global_policy("float32")
    return {"difference": largest(outputs["pooled_output"], encoder(INPUTS)["pooled_output"]),
            "dtypes": sorted({tensor.dtype.name for tensor in outputs.values()}),
            "weights": sorted({str(weight.dtype) for weight in before}), "moved": len(moved(mixed, before)),
            "finite": bool(np.isfinite(losses).all()),
            "restored": BertEncoder.from_config(mixed.get_config()).compute_dtype}


def run_replicas():
    """Trains on two logical CPUs, and on one, and compares the results."""
    results = {}
    for name in ("two", "one"):
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"] if name == "two" else ["CPU:0"])
        with strategy.scope():
            encoder = BertEncoder.from_checkpoint(MODEL)
            model = functional(encoder)
            model.layers[-1].set_weights([np.ones((16, 2)) * [0.1, -0.1], np.zeros(2)])
            model.compile(optimizer=tf.keras.optimizers.SGD(0.1),
                          loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        before = encoder.get_weights()
        model.fit(INPUTS, LABELS, epochs=2, shuffle=False, verbose=0)
        results[name] = encoder.get_weights()
        moved_weights = len(moved(encoder, before))
    return {"moved": moved_weights, "step": int(results["two"][-1]),
            "difference": max(largest(*pair) for pair in zip(results["two"], results["one"]))}


def save_models():
    """Saves a model in several ways, and its answers."""
    model = functional(BertEncoder.from_checkpoint(MODEL))
    fit(model)
    answers = model.predict(INPUTS, verbose=0)
    np.savez(f"{OUTPUT}/answers.npz", answers=answers)
    model.save(f"{OUTPUT}/model.keras")
    model.export(f"{OUTPUT}/exported")  # TensorFlow's default is to save custom gradients
    tf.saved_model.save(model, f"{OUTPUT}/saved",
                        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False))


def load():
    """Loads the saved models in this new process."""
    answers = np.load(f"{OUTPUT}/answers.npz")["answers"]
    model = tf.keras.models.load_model(f"{OUTPUT}/model.keras")
    differences = {"keras": largest(model.predict(INPUTS, verbose=0), answers)}
    for name in ("saved", "exported"):
        signature = tf.saved_model.load(f"{OUTPUT}/{name}").signatures["serving_default"]
        order = sorted(signature.structured_input_signature[1])  # the names of Keras have this order
        tensors = [tf.constant(value, tf.int32) for value in INPUTS.values()]
        outputs = signature(**dict(zip(order, tensors)))
        differences[name] = largest(next(iter(outputs.values())), answers)
    before = model.get_weights()
    fit(model)
    return {"differences": differences, "weights": len(before), "moved": len(moved(model, before))}


def more():
    save_models()
    return {"mixed": run_mixed_precision(), "replicas": run_replicas()}


def save_beside(encoder, name, vocab_file=None):
    """Saves a checkpoint in a directory that contains the file `name`. Returns the error and the files."""
    directory = f"{OUTPUT}/{name}_and_more"
    os.mkdir(directory)
    open(f"{directory}/{name}", "x").close()
    try:
        encoder.save_checkpoint(directory, vocab_file=vocab_file)
    except FileExistsError as error:
        return str(error), os.listdir(directory)


def load_without_pooler(encoder):
    """Returns the largest differences of the outputs after the saved weights are loaded without a pooler."""
    saved = checkpoint_formats.open_checkpoint(f"{OUTPUT}/checkpoint")
    os.mkdir(f"{OUTPUT}/no_pooler")
    shutil.copy(f"{OUTPUT}/checkpoint/bert_config.json", f"{OUTPUT}/no_pooler")
    checkpoint_formats.write_tensorflow(f"{OUTPUT}/no_pooler/bert_model.ckpt", saved,
                                        [name for name in saved.shapes if "/pooler/" not in name])
    outputs, loaded = encoder(INPUTS), BertEncoder.from_checkpoint(f"{OUTPUT}/no_pooler")(INPUTS)
    return {name: largest(outputs[name], loaded[name]) for name in outputs}


def train():
    found = {"keras": tf.keras.__name__, "eager": tf.executing_eagerly()}
    encoder = BertEncoder.from_checkpoint(MODEL)
    found["weights"], found["trainable"] = len(encoder.weights), len(encoder.trainable_weights)
    np.savez(f"{OUTPUT}/inputs.npz", **INPUTS)
    for training in (False, True):
        np.savez(f"{OUTPUT}/outputs_{training}.npz", **outputs_and_gradients(encoder, training))
    found["dropout"] = largest(*(encoder(INPUTS, training=True)["pooled_output"] for _ in range(2)))
    found["inference"] = largest(*(encoder(INPUTS)["pooled_output"] for _ in range(2)))

    model, before = functional(encoder), encoder.get_weights()
    found["losses"] = fit(model, epochs=12)
    found["moved"] = len(moved(encoder, before))
    words = shutil.copy(f"{MODEL}/vocab.txt", os.path.join(OUTPUT, "vocab.txt"))
    with open(f"{OUTPUT}/tokenizer_config.json", "w") as file:
        json.dump({"do_lower_case": True, "strip_accents": False}, file)
    encoder.save_checkpoint(f"{OUTPUT}/checkpoint", vocab_file=words)
    np.savez(f"{OUTPUT}/trained.npz", **outputs_and_gradients(encoder, False))
    found["without pooler"] = load_without_pooler(encoder)
    os.mkdir(f"{OUTPUT}/words_alone")
    alone = shutil.copy(words, f"{OUTPUT}/words_alone/vocab.txt")
    found["beside"] = {name: save_beside(encoder, name, vocab_file) for name, vocab_file in (
        ("model.safetensors", None), ("ckpt-3.index", None), ("tokenizer_config.json", alone),
        ("added_tokens.json", words))}

    two = BertEncoder.from_checkpoint(f"{OUTPUT}/checkpoint"), BertEncoder.from_checkpoint(MODEL)
    found["again"] = largest(two[0](INPUTS)["pooled_output"], encoder(INPUTS)["pooled_output"])
    found["second layer"] = largest(two[0](INPUTS)["pooled_output"], two[1](INPUTS)["pooled_output"])
    encoder.trainable = False
    frozen = encoder.get_weights()
    fit(model)
    found["moved_frozen"], found["trainable_frozen"] = moved(encoder, frozen), len(encoder.trainable_weights)
    found["inputs"], found["settings"] = run_bad_inputs(encoder), run_bad_settings(encoder)
    found["eager_at_the_end"] = tf.executing_eagerly()
    return found


if __name__ == "__main__":
    if PART == "more":
        cpu, = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    print(json.dumps({"train": train, "load": load, "more": more}[PART]()))
