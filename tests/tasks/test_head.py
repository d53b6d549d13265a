"""The model_fn of all heads, and the arguments of the published builders. The conformance tests train all
heads."""

import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.tasks import head
from bertlib.tasks.classification import classification_head
from bertlib.tasks.pretraining import pretraining_head
from bertlib.tasks.squad import squad_head
import modeling
import run_classifier_with_tfhub

# {name: function that takes use_tpu and use_one_hot_embeddings}
BUILDERS = {
    "classifier": lambda *last: classification_head.model_fn_builder(_config(), 2, None, 0.1, 8, 0, *last),
    "questions": lambda *last: squad_head.model_fn_builder(_config(), None, 0.1, 8, 0, *last),
    "pre-training": lambda *last: pretraining_head.model_fn_builder(_config(), None, 0.1, 8, 0, *last),
    "hub": lambda use_tpu, _: run_classifier_with_tfhub.model_fn_builder(2, 0.1, 8, 0, use_tpu, "module")}


def _config():
    return modeling.BertConfig.from_dict(tiny.CONFIG)


def test_a_mode_that_a_head_does_not_have_is_refused(graph):
    model_fn = head.model_fn_builder(head.Head(), _config(), None, 0.01, 1, 0)
    with pytest.raises(ValueError, match="The mode is 'other', but this model has only the modes 'train', "
                                         "'infer'"):
        model_fn({}, None, "other", {})


@pytest.mark.parametrize("name", BUILDERS)
def test_a_published_builder_refuses_tpus(name):
    with pytest.raises(ValueError, match="TPUs are not supported. Pass use_tpu=False"):
        BUILDERS[name](True, False)


@pytest.mark.parametrize("name", ["classifier", "questions"])
def test_a_published_builder_looks_words_up_by_a_matrix_product(name):
    gathers = []
    for use_one_hot_embeddings in (False, True):
        with tf.Graph().as_default() as graph:
            features = {"unique_ids": tf.zeros([1], tf.int32), **dict.fromkeys(
                ("input_ids", "input_mask", "segment_ids"), tf.zeros([1, 8], tf.int32))}
            BUILDERS[name](False, use_one_hot_embeddings)(features, None, "infer", {})
            gathers.append(sum("Gather" in op.type for op in graph.get_operations()))
    assert gathers[0] == gathers[1] + 1
