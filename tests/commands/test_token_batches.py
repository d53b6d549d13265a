"""Micro-batches that are cut by the number of tokens.

They are as small as possible, and their losses are weighted. Together they give the step of the whole batch.
"""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as some
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.data import input_pipeline
from bertlib.data.batches import Batch
from bertlib.data.example_encoding import TRIMMED_FIELDS
from bertlib.graph import randomness

# --- Where to cut ----------------------------------------------------------------------------------------


def sizes(lengths, bounds):
    """Returns the number of tokens of each part, with padding."""
    return [(end - start) * max(lengths[start:end]) for start, end in zip(bounds, bounds[1:])]


@settings(max_examples=300, derandomize=True, deadline=None)
@given(some.lists(some.integers(1, 12), min_size=1, max_size=9), some.data())
def test_no_cut_has_a_smaller_largest_part(lengths, data):
    lengths.sort(reverse=True)
    parts = data.draw(some.integers(1, len(lengths)))
    found = input_pipeline.token_balanced_bounds(lengths, parts)
    assert found.dtype == np.int64 and found[0] == 0 and found[-1] == len(lengths)
    assert len(found) == parts + 1 and (np.diff(found) > 0).all()
    all_cuts = ([0, *inner, len(lengths)] for inner in itertools.combinations(
        range(1, len(lengths)), parts - 1))
    assert max(sizes(lengths, found)) == min(max(sizes(lengths, cut)) for cut in all_cuts)


# --- The dataset -----------------------------------------------------------------------------------------

LENGTH, BATCH, PARTS = 33, 10, 3  # chosen so that nothing divides evenly


def examples(count=25):
    """Returns the features of examples with different lengths. Each example has a different label_ids."""
    chance = np.random.RandomState(4)
    mask = (np.arange(LENGTH) < chance.randint(1, LENGTH + 1, [count, 1])).astype(np.int32)
    return {"input_ids": mask * chance.randint(1, 30, [count, LENGTH]).astype(np.int32), "input_mask": mask,
            "segment_ids": mask * (np.arange(LENGTH) > 3).astype(np.int32),
            "label_ids": np.arange(count, dtype=np.int32)}


def make_dataset(micro_batches=PARTS, is_unequal=True, arrays=None, **options):
    batch = Batch(BATCH, micro_batches, is_unequal=is_unequal)
    return input_pipeline.training_dataset(input_pipeline.array_examples(arrays or examples()), batch,
                                           **{"trimmed_fields": TRIMMED_FIELDS, **options})


def run_batches(fetches, iterator, count, step=0):
    """Returns the fetches of `count` batches. The input starts at the step `step`."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.get_global_step().load(step, session)
        session.run(iterator.initializer)
        return [session.run(fetches) for _ in range(count)]


def take(count, step=0, **options):
    with tf.Graph().as_default():
        tf.train.create_global_step()
        iterator = tf.data.make_initializable_iterator(make_dataset(**options))
        return run_batches(iterator.get_next(), iterator, count, step)


def test_micro_batches_are_the_step_cut_where_it_is_best_each_with_its_weight():
    whole = take(4, is_unequal=False, micro_batches=1)
    found = take(4 * PARTS, batch_totals=["label_ids"])
    lengths = examples()["input_mask"].sum(axis=1)
    for step, batch in enumerate(whole):
        parts = found[step * PARTS:(step + 1) * PARTS]
        order = np.concatenate([part["label_ids"] for part in parts])
        np.testing.assert_array_equal(order, batch["label_ids"])
        padded = np.minimum(-(-lengths[order] // 8) * 8, LENGTH)
        counts = [len(part["label_ids"]) for part in parts]
        assert counts == np.diff(input_pipeline.token_balanced_bounds(padded, PARTS)).tolist()
        assert [part["input_ids"].size for part in parts] == sizes(padded, np.cumsum([0, *counts]))
        assert {part["label_ids_total"] for part in parts} == {order.sum()}
        np.testing.assert_allclose([part["micro_batch_weight"] for part in parts],
                                   np.array(counts) * PARTS / BATCH)
    assert len({tuple(len(part["label_ids"]) for part in found[step * PARTS:][:PARTS])
                for step in range(4)}) > 1


def test_lengths_are_rounded_up_to_the_length_of_the_features_at_most():
    mask = (np.arange(LENGTH) < np.where(np.arange(BATCH) == 3, 33, 32)[:, None]).astype(np.int32)
    found = take(2, arrays=dict.fromkeys(TRIMMED_FIELDS, mask), micro_batches=2)
    # If the length were rounded up to 40, the parts would have 4 and 6 examples.
    assert [part["input_ids"].shape for part in found] == [(5, 33), (5, 32)]


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize("changes, expected", [
    (dict(trimmed_fields=()), "need trimmed_fields"),
    (dict(micro_batches=BATCH + 1), "10 examples cannot be cut into 11")])
def test_what_cannot_be_cut_is_refused(changes, expected):
    with pytest.raises(ValueError, match=expected):
        make_dataset(**changes)


def test_dropout_of_parts_of_different_sizes_has_no_number_in_common(graph):
    part, shape = tf.placeholder(tf.int64, []), tf.placeholder(tf.int32, [2])
    tf.train.create_global_step()
    make_dataset()
    randomness.set_micro_batch(part)
    numbers = randomness.uniform(shape, "here#0")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        drawn = [session.run(numbers, {part: index, shape: [size, length]})
                 for index, (size, length) in enumerate([(3, 40), (9, 24), (4, 8)])]
    assert len(set(np.concatenate([values.ravel() for values in drawn]))) > (
        0.999 * sum(values.size for values in drawn))
