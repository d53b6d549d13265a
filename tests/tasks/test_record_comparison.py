"""What a run may do in a directory, decided from the stored record and the record of the run."""

import copy

import model_directories
import pytest

from bertlib.runs.record_comparison import compare

DATA, OTHER = ({"examples": 8, "fingerprint": "abcdef0123"}, {"examples": 9, "fingerprint": "0123456789"})
RECORD = model_directories.record(["0", "1"], task="mrpc",
                                  settings={"learning_rate": 1e-3, "keep_best": None},
                                  dev_data=DATA, train_data=DATA, bert_config={"hidden_size": 4})


def changed(**fields):
    given = fields.pop("settings", {})
    return {**RECORD, "settings": {**RECORD["settings"], **given}, **fields}


def test_a_run_in_an_empty_directory_is_new():
    assert compare(None, RECORD, None, 8, do_train=True).record == RECORD
    assert compare(None, RECORD, None, 8, do_train=False).record is None


def test_checkpoints_without_a_record_get_one_that_starts_at_their_step():
    assert compare(None, RECORD, 3, 8, do_train=True).record == {**RECORD, "from_step": 3}
    finished = compare(None, RECORD, 8, 8, do_train=True)
    assert not finished.has_steps_left and finished.record == {**RECORD, "from_step": 8}
    assert compare(None, RECORD, 8, 8, do_train=False).record is None


def test_an_evaluation_may_have_another_task_with_the_same_labels():
    decision = compare(RECORD, changed(task="cola", dev_data=OTHER), 8, 8, do_train=False)
    assert not decision.refused and decision.changed == {"task": ["mrpc", "cola"]}


@pytest.mark.parametrize("step, fields", [
    (3, dict(settings={"learning_rate": 2e-3}, code="cd")), (3, dict(train_data=OTHER)),
    (3, dict(dev_data=OTHER)), (3, dict(init_checkpoint={"path": "b", "fingerprint": "ab" * 5})),
    (3, dict(environment={"git": None, "variables": {"OMP_X": "1"}})),
    (8, dict(settings={"keep_best": "eval_loss"}))], ids=str)
def test_a_change_is_found_once(step, fields):
    now = changed(started="later", **fields)
    before = copy.deepcopy((RECORD, now))
    decision = compare(RECORD, now, step, 8, do_train=True)
    assert (RECORD, now) == before and decision.record not in (None, RECORD)
    again = compare(decision.record, now, step, 8, do_train=True)
    assert not again.refused and not again.changed and not again.evaluations and again.record is None


def test_changed_settings_are_recorded_and_the_first_session_stays():
    now = changed(settings={"learning_rate": 2e-3}, started="later", code="cd")
    decision = compare(RECORD, now, 3, 8, do_train=True)
    assert decision.changed == {"learning_rate": [1e-3, 2e-3]}
    assert decision.record["started"] == RECORD["started"] and decision.record["code"] == RECORD["code"]
    assert decision.record["changes"] == [
        {"step": 3, "at": "later", "changed": {"learning_rate": [1e-3, 2e-3]}}]
    assert decision.record["sessions"] == [
        {"step": 3, "at": "later", "changed": {"fingerprint of the code": ["ab", "cd"]}}]
    ended = compare(RECORD, now, 8, 8, do_train=True)
    assert ended.changed == decision.changed and ended.record is None


def test_each_division_into_micro_batches_is_a_change_because_sums_are_rounded_differently():
    before = changed(settings={"gradient_accumulation_steps": 2, "num_replicas": 1})
    now = changed(settings={"gradient_accumulation_steps": 1, "num_replicas": 2})
    assert compare(before, now, 3, 8, do_train=True).changed == {
        "gradient_accumulation_steps": [2, 1], "num_replicas": [1, 2]}
    default = changed(settings={"gradient_accumulation_steps": None, "num_replicas": 2})
    assert compare(now, default, 3, 8, do_train=True).changed == {}
