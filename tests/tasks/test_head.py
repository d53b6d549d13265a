"""The model_fn of all heads, and the arguments of the published builders. The conformance tests train all
heads."""

import pytest
import tiny

from bertlib.tasks import head
from bertlib.tasks.classification import classification_head
from bertlib.tasks.pretraining import pretraining_head
from bertlib.tasks.squad import squad_head
import modeling
import run_classifier_with_tfhub

CONFIG = modeling.BertConfig.from_dict(tiny.CONFIG)


def test_a_mode_that_a_head_does_not_have_is_refused(graph):
    model_fn = head.model_fn_builder(head.Head(), CONFIG, None, 0.01, 1, 0)
    with pytest.raises(ValueError, match="The mode is 'other', but this model has only the modes 'train', "
                                         "'infer'"):
        model_fn({}, None, "other", {})


@pytest.mark.parametrize("builder, arguments", [
    (classification_head, [CONFIG, 2, None, 0.1, 8, 0, True, False]),
    (squad_head, [CONFIG, None, 0.1, 8, 0, True, False]),
    (pretraining_head, [CONFIG, None, 0.1, 8, 0, True, False]),
    (run_classifier_with_tfhub, [2, 0.1, 8, 0, True, "module"])])
def test_a_published_builder_refuses_tpus(builder, arguments):
    with pytest.raises(ValueError, match="TPUs are not supported. Pass use_tpu=False"):
        builder.model_fn_builder(*arguments)
