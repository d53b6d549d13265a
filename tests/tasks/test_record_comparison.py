"""What a run may do in a directory, decided from the stored record and the record of the run."""

import copy

from hypothesis import given
from hypothesis import strategies as st
import model_directories

from bertlib.runs.record_comparison import compare

STARTS = [None, *({"path": path, "fingerprint": fingerprint} for path, fingerprint in (
    ("a", None), ("b", None), ("a", "12345678ab"), ("b", "12345678ab"), ("b", "87654321ab")))]
DATA = [None, {"examples": 8, "fingerprint": "abcdef0123"}, {"examples": 9, "fingerprint": "0123456789"}]
MODULES = [None, *({"name": "m.py", "fingerprint": letter * 10, "texts": 1} for letter in "ab")]
CHOICES = {
    "task": ["mrpc", "cola"], "labels": [None, ["0", "1"], ["1", "0"]], "do_lower_case": [None, True, False],
    "task_type": ["classification", "regression"], "vocabulary": [None, "aaaaaaaaaa", "bbbbbbbbbb"],
    "train_data": DATA, "dev_data": DATA, "init_checkpoint": STARTS, "task_module": MODULES,
    "files": [{}, {"dev_file": "a", "vocab_file": "v"}, {"dev_file": "b"}, {"input_file": "i"}],
    "versions": [{"numpy": "1"}, {"numpy": "2"}, {"numpy": "1", "protobuf": "6"}],
    "started": ["now", "later"], "code": ["ab", "cd"], "command": ["run_classifier.py", "run_ner.py"],
    "bert_config": [{"hidden_size": 4}, {"hidden_size": 8}, {"hidden_size": 4, "hidden_dropout_prob": 0.1},
                    {"hidden_size": 4, "hidden_dropout_prob": 0.2, "other": 1}],
    "environment": [{"git": None, "variables": {}}, {"git": {"commit": "c", "clean": True}, "variables": {}},
                    {"git": None, "variables": {"OMP_X": "1"}, "threads": 2}]}
SETTINGS = {
    "learning_rate": [1e-3, 2e-3], "keep_best": [None, "eval_loss"], "eval_every_steps": [None, 3],
    "early_stopping_evals": [None, 2], "gradient_accumulation_steps": [None, 0, 1, 2],
    "num_replicas": [1, 2], "tokens_per_micro_batch": [0, 64], "seed": [1, 2]}
SESSIONS = [None, [{"step": 1, "changed": {"threads": [1, 2]}}]]


@st.composite
def records(draw):
    """A record; about half of its fields have the first value of `CHOICES`."""
    def pick(values):
        return draw(st.sampled_from(values)) if draw(st.booleans()) else values[0]

    fields = {name: pick(values) for name, values in CHOICES.items()}
    chosen = {name: pick(values) for name, values in SETTINGS.items() if draw(st.integers(0, 9))}
    sessions = pick(SESSIONS)
    if sessions is not None:
        fields["sessions"] = sessions
    return model_directories.record(fields.pop("labels"), fields.pop("task_type"), settings=chosen, **fields)


@given(records(), records(), st.booleans(), st.sampled_from([None, 0, 3, 8]), st.booleans())
def test_a_decision_changes_no_record_and_its_own_record_continues(stored, now, has_record, step, trains):
    stored = stored if has_record and step is not None else None
    now.pop("sessions", None)  # only a stored record has sessions
    before = copy.deepcopy((stored, now))
    decision = compare(stored, now, step, 8, trains)
    assert (stored, now) == before
    if decision.record is not None and not decision.refused:
        # The same run, started again with the new record, finds nothing that has changed.
        again = compare(decision.record, now, step or 0, 8, trains)
        assert not again.refused and not again.changed and not again.evaluations and again.dev_data is None


# --- Cases -----------------------------------------------------------------------------------------------

RECORD = model_directories.record(["0", "1"], task="mrpc",
                                  settings={"learning_rate": 1e-3, "keep_best": None},
                                  dev_data=DATA[1], train_data=DATA[1], bert_config={"hidden_size": 4})


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
    decision = compare(RECORD, changed(task="cola", dev_data=DATA[2]), 8, 8, do_train=False)
    assert not decision.refused and decision.changed == {"task": ["mrpc", "cola"]}


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
