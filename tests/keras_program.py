"""Uses `bertlib.keras` as a user's program does; prints a JSON object. Arguments: directory of a model, a
directory for output."""

import json
import sys

import numpy as np
import tensorflow as tf

from bertlib.keras import BertEncoder

MODEL, OUTPUT = sys.argv[1:]
IDS = np.random.RandomState(0).randint(5, 40, (6, 12))
MASK = np.ones_like(IDS)
MASK[:, 9:] = 0
SEGMENTS = np.arange(12)[np.newaxis, :].repeat(6, 0) // 6
INPUTS = {"input_ids": IDS, "input_mask": MASK, "segment_ids": SEGMENTS}


def values(layer):
    return {weight.path if hasattr(weight, "path") else weight.name: tf.keras.backend.get_value(weight)
            for weight in layer.weights}


def variables(layer):
    return [weight if isinstance(weight, tf.Variable) else weight.value for weight in layer.trainable_weights]


def largest(first, second):
    return float(np.abs(np.asarray(first) - np.asarray(second)).max())


found = {"keras": tf.keras.__name__, "eager": tf.executing_eagerly()}
encoder = BertEncoder.from_checkpoint(MODEL)
outputs = encoder(INPUTS)
np.savez(f"{OUTPUT}/outputs.npz", **{name: tensor.numpy() for name, tensor in outputs.items()}, **INPUTS)
found["weights"], found["trainable"] = len(encoder.weights), len(encoder.trainable_weights)
with tf.GradientTape() as tape:
    outputs = encoder(INPUTS, training=True)
    loss = tf.reduce_sum(outputs["pooled_output"]) + tf.reduce_sum(outputs["sequence_output"][..., 0])
found["gradients"] = sum(gradient is not None for gradient in tape.gradient(loss, variables(encoder)))
found["dropout"] = [encoder(INPUTS, training=True)["pooled_output"].numpy().tolist() for _ in range(2)]
found["inference"] = largest(*(encoder(INPUTS)["pooled_output"] for _ in range(2)))

inputs = {name: tf.keras.Input((None,), dtype="int32", name=name) for name in INPUTS}
logits = tf.keras.layers.Dense(2)(encoder(inputs)["pooled_output"])
model = tf.keras.Model(inputs, logits)
model.compile(optimizer=tf.keras.optimizers.Adam(1e-3),
              loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
before = values(encoder)
found["losses"] = model.fit(INPUTS, np.array([0, 1, 0, 1, 0, 1]), epochs=12, verbose=0).history["loss"]
after = values(encoder)
found["moved"] = sum(not np.array_equal(before[name], after[name]) for name in before)
answers = model.predict(INPUTS, verbose=0)

model.save(f"{OUTPUT}/model.keras")
loaded = tf.keras.models.load_model(f"{OUTPUT}/model.keras")
found["loaded"] = largest(loaded.predict(INPUTS, verbose=0), answers)
tf.saved_model.save(model, f"{OUTPUT}/saved",
                    options=tf.saved_model.SaveOptions(experimental_custom_gradients=False))
signature = tf.saved_model.load(f"{OUTPUT}/saved").signatures["serving_default"]
found["signature"] = sorted(signature.structured_input_signature[1])
encoder.save_checkpoint(f"{OUTPUT}/checkpoint", vocab_file=f"{MODEL}/vocab.txt")
found["again"] = largest(BertEncoder.from_checkpoint(f"{OUTPUT}/checkpoint")(INPUTS)["pooled_output"],
                         encoder(INPUTS)["pooled_output"])

encoder.trainable = False
frozen = values(encoder)
model.compile(optimizer=tf.keras.optimizers.Adam(1e-3), loss=model.loss)
model.fit(INPUTS, np.array([0, 1, 0, 1, 0, 1]), epochs=1, verbose=0)
found["moved_frozen"] = [name for name, value in values(encoder).items()
                         if not np.array_equal(value, frozen[name])]
found["errors"] = []
for wrong in (lambda: encoder({"input_ids": IDS, "mask": MASK}), lambda: BertEncoder.from_checkpoint(OUTPUT),
              lambda: BertEncoder({}, precision="fp8")):
    try:
        wrong()
    except Exception as error:  # noqa: BLE001 (the type is checked by the test)
        found["errors"].append(f"{type(error).__name__}: {error}")
found["eager_at_the_end"] = tf.executing_eagerly()
print(json.dumps(found))
