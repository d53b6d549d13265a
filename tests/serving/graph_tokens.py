"""Compares the tokens of `export_text.GraphTokenizer` with the tokens of the tokenizer in Python."""

import tensorflow.compat.v1 as tf

from bertlib.serving import export_text


def differing_tokens(tokenizer, texts):
    """Returns [(text, tokens of the tokenizer, tokens of the graph)] of the texts whose tokens differ."""
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.string, [None])
        ids = export_text.GraphTokenizer(tokenizer)(inputs)
        session.run(tf.tables_initializer())
        found = session.run(ids, {inputs: [text.encode("utf-8", "replace") for text in texts]}).to_list()
    tokens = [(text, tokenizer.tokenize(text), tokenizer.convert_ids_to_tokens(row))
              for text, row in zip(texts, found)]
    return [(text, expected, actual) for text, expected, actual in tokens if expected != actual]
