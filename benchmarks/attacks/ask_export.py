"""ask_export.py REQUEST ANSWERS: loads the newest version of an exported model, and answers rows of texts.

REQUEST is a JSON file: {"directory": …, "text": true if the model takes text, "rows": [[text, …], …]}.
ANSWERS is the JSON file to write: a list with the probabilities, or the score, of each row. The script loads
the model into a separate graph, so it also works if TensorFlow is already in graph mode.
"""

import json
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent),
                str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests")]

from attacks import oracle  # noqa: E402  after the path
import tensorflow.compat.v1 as tf  # noqa: E402

asked = json.loads(pathlib.Path(sys.argv[1]).read_text())
if asked["text"]:
    import tensorflow_text  # noqa: F401  its ops

newest = max(path for path in pathlib.Path(asked["directory"]).iterdir() if path.name.isdigit())
found = []
with tf.Graph().as_default(), tf.Session() as session:
    signatures = tf.saved_model.loader.load(session, ["serve"], str(newest)).signature_def
    signature = signatures["serving_default" if asked["text"] else "ids"]
    output = signature.outputs["probabilities" if "probabilities" in signature.outputs else "score"]
    # Each row is a separate batch. So there is no padding, and no row can change the result of another row.
    for row in asked["rows"]:
        given = {"text_a": [row[0]], "text_b": [row[1] if len(row) > 1 else ""]} if asked["text"] else {
            "input_ids": [oracle.ids_of(*row)]}
        values = session.run(output.name, {signature.inputs[name].name: value
                                           for name, value in given.items()})
        found.append([float(value) for value in values.reshape(-1)])
pathlib.Path(sys.argv[2]).write_text(json.dumps(found))
