"""Commands refuse numbers that are too large. The message contains the flag."""

import pytest
import tiny


@pytest.mark.parametrize("script, flag, value, most", [
    ("run_classifier.py", "eval_batch_size", 10**18, 2**31 - 1),
    ("run_squad.py", "n_best_size", 2**31, 2**31 - 1),
    ("run_squad.py", "max_answer_length", 2**63, 2**31 - 1),
    ("run_pretraining.py", "save_checkpoints_steps", 10**30, 2**31 - 1),
    ("run_pretraining.py", "num_train_steps", 10**100, 2**31 - 1),
    ("create_pretraining_data.py", "max_predictions_per_seq", 10**30, 1 << 16),
    ("create_pretraining_data.py", "dupe_factor", 2**31, 2**31 - 1),
    ("create_pretraining_data.py", "num_workers", 1025, 1024),
    ("extract_features.py", "batch_size", 2**63, 2**31 - 1),
    ("build_vocab.py", "vocab_size", 10**20, 1 << 24),
    ("plan_memory.py", "gpu_memory_gb", "inf", "1e+06"),
    ("run_squad.py", "memory_limit_gb", 1e308, "1e+06"),
    ("build_vocab.py", "min_frequency", 2**31, 2**31 - 1)])
def test_a_number_that_is_too_large_is_refused(script, flag, value, most, scripts, tmp_path):
    finished = scripts.run(script, *tiny.flags(**{flag: value}), cwd=tmp_path)
    assert finished.code == 1 and "Traceback" not in finished.err
    assert f"--{flag}={value}: " in finished.err and str(most) in finished.err
    assert not list(tmp_path.iterdir())
