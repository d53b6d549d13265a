"""--deterministic: a repeated run has the same result. On a CPU, the flag does not change the numbers."""

import numpy as np
import pytest
from test_replicas_train import classifier, ner, pretraining, squad, trained

_ONE_MORE = pytest.mark.soak(reason="three trainings; a head whose graph has the ops of another head")


@pytest.mark.slow(reason="three trainings for each head; test_deterministic_ops.py has the ops of all graphs")
@pytest.mark.parametrize("build, tolerance", [
    pytest.param(classifier, 0, marks=_ONE_MORE), (ner, 0), pytest.param(squad, 0, marks=_ONE_MORE),
    (pretraining, 1e-6)])  # with the flag, TensorFlow computes this loss with other ops
def test_a_training_repeats_and_has_the_numbers_of_a_training_without_the_flag(
        build, tolerance, scripts, tiny_model, tmp_path):
    (tmp_path / "data").mkdir()
    command = build(tmp_path / "data")
    (weights, results), (again, same_results), (usual, _) = (
        trained(scripts, tiny_model, tmp_path, tmp_path / name, command, **flags)
        for name, flags in (("first", dict(deterministic=True)), ("again", dict(deterministic=True)),
                            ("usual", {})))
    assert weights.keys() == again.keys() == usual.keys() and results == same_results
    for name, values in weights.items():
        np.testing.assert_array_equal(values, again[name], err_msg=name)
        np.testing.assert_allclose(values, usual[name], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.slow(reason="two replicas in fresh interpreters; test_collectives.py has the op of the time")
def test_replicas_measure_times_by_no_op_that_is_refused(scripts, tiny_model, tmp_path):
    (tmp_path / "data").mkdir()
    weights, _ = trained(scripts, tiny_model, tmp_path, tmp_path / "output", pretraining(tmp_path / "data"),
                         deterministic=True, num_replicas=2)
    assert weights["global_step"] == 3
