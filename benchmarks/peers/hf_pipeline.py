"""Measures how much time Hugging Face's pipeline needs for predictions. benchmarks/serving.py runs this
script.

    python benchmarks/peers/hf_pipeline.py MODEL_DIR PAIRS CALLS
"""

from clock import measure
import transformers


def load(path):
    """Returns a pipeline whose answers contain the probabilities of all labels."""
    return transformers.pipeline("text-classification", path, top_k=None, device="cpu")


def as_input(pair):
    """Returns a pair in the input format of the pipeline."""
    return {"text": pair[0], "text_pair": pair[1]}


def second(pipeline, answer):
    """Returns the probability of the second label."""
    label = pipeline.model.config.id2label[1]
    return next(row["score"] for row in answer if row["label"] == label)


def answer_all(pipeline, pairs):
    """Returns the probabilities of all pairs, in the order of the pairs.

    The pipeline gets the pairs sorted by length, so that a batch contains pairs of similar length.
    """
    order = sorted(range(len(pairs)), key=lambda index: sum(map(len, pairs[index])))
    found = pipeline([as_input(pairs[index]) for index in order], batch_size=32, truncation=True,
                     max_length=128)
    by_place = dict(zip(order, found))
    return [second(pipeline, by_place[index]) for index in range(len(pairs))]


transformers.logging.set_verbosity_error()
measure(load, lambda pipeline, pair: second(pipeline, pipeline(as_input(pair), truncation=True,
                                                                max_length=128)), answer_all)
