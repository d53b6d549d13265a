"""A mode that a head does not have is refused. The conformance tests train all heads."""

import pytest

from bertlib.tasks import head


def test_a_mode_that_a_head_does_not_have_is_refused(graph):
    model_fn = head.model_fn_builder(head.Head(), None, None, 0.01, 1, 0, False, False)
    with pytest.raises(ValueError, match="The mode is 'other', but this model has only the modes 'train', "
                                         "'infer'"):
        model_fn({}, None, "other", {})
