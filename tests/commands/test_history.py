"""metrics.jsonl, --max_steps and disk space, in whole runs of the commands."""

import re

from helpers import largest_file
import numpy as np
import outputs

from bertlib.checkpoints import metrics_history
from bertlib.runs import model_files, record_format

# --- The history of a run --------------------------------------------------------------------------------


def test_a_training_with_few_steps_says_which_flags_help(untrained):
    advice = "fewer than 100 steps. For a few hundred examples, --train_batch_size=8 --num_train_epochs=8 "
    done = untrained.train(train_batch_size=16, max_steps=1, do_eval=False, do_predict=False)
    done.assert_success()
    assert done.err.count(advice) == 1


def test_a_run_that_stops_early_records_the_planned_steps(untrained):
    output = untrained.output
    early = untrained.train(max_steps=4, do_eval=False, do_predict=False, warmup_proportion=0.25)
    early.assert_success("--max_steps=4: the training ends at step 4 of 8. ")
    assert re.search(r" Disk: this training needs about [\d.]+ MB in .*: at most 3 checkpoints", early.err)
    assert early.err.count("tensorboard --logdir output\n") == 1
    rate = next(row for row in outputs.history(output) if row["step"] == 3)["learning_rate"]
    assert " toward --learning_rate=0.0002 in 2 steps of warm-up.\n" in early.err
    assert f" After warm-up, the learning rate is {rate:.4g} and decays to 0, because" in early.err
    assert "step 4/4  loss" in early.err and "step 5" not in early.err
    record = record_format.read_record(output)
    assert (record["planned_steps"], record["finished_step"]) == (8, 4)
    model_files.check_trained_weights(record, str(output / "model.ckpt-4"))
    assert "max_steps" not in record["settings"]
    of_step = next(row for row in outputs.history(output) if row["step"] == 4)
    assert set(of_step) == {"step", "loss", "learning_rate", "gradient_norm", "time", "steps_per_second",
                            "examples_per_second", "peak_memory_gb"}
    assert "step 4/4  loss {loss:.5g}  learning_rate {learning_rate:.5g}  ".format(**of_step) in early.err


# --- The file --------------------------------------------------------------------------------------------


def test_lines_that_are_damaged_or_too_late_are_removed(tmp_path):
    path, history = tmp_path / "metrics.jsonl", metrics_history.MetricsHistory(str(tmp_path))
    history.cut(3)
    assert not path.exists()
    kept = '{"step": 1}\n{"step": 3, "evaluation": "dev"}\n{"step": 2}\n'
    path.write_bytes(b'\xff\n{"step": 4}\n[1]\n' + kept.encode() + b'{"step": "1"}\n\n{"step": 3, "lo')
    history.cut(3)
    assert path.read_text() == kept
    path.write_text(kept.rstrip("\n"))  # an editor may write the file without a line feed
    history.add_evaluation(3, "test", {"global_step": np.int64(3), "a": np.float32(0.1),
                                       "b": np.float64("nan"), "matrix": np.array([[1, 2], [3, 4]])})
    history.add_evaluation(3, "dev", {"a": 2})
    first, second, third, fourth = outputs.history(tmp_path)
    assert (first, second) == ({"step": 1}, {"step": 2})
    assert {**third, "time": 0} == {"step": 3, "evaluation": "test", "a": 0.1, "b": None,
                                    "matrix": [[1, 2], [3, 4]], "time": 0}
    assert {**fourth, "time": 0} == {"step": 3, "evaluation": "dev", "a": 2, "time": 0}
    history.cut(None)
    assert path.read_text() == ""


def test_a_line_that_only_fits_in_part_is_removed(tmp_path):
    path, history = tmp_path / "metrics.jsonl", metrics_history.MetricsHistory(str(tmp_path))
    path.write_text('{"step": 1}\n')
    with largest_file(path.stat().st_size + 9):
        history.add_evaluation(2, "dev", {"a": 2})
    assert path.read_text() == '{"step": 1}\n'


def test_a_history_that_cannot_be_written_is_warned_of_once(tmp_path, caplog):
    history = metrics_history.MetricsHistory(str(tmp_path))
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    history.cut(None)
    history.add(1, {"loss": 0.5})
    history.add_evaluation(1, "dev", {"a": 2})
    message, = (record.getMessage() for record in caplog.records)
    assert message.startswith(f"{history.path} could not be written: No space left on device. ")


# --- The disk --------------------------------------------------------------------------------------------


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(untrained):
    refused = untrained.train(keep_checkpoint_max=0, save_checkpoints_steps=1, num_train_epochs=1e8)
    refused.assert_refused()
    assert re.search(r"error: --output_dir=output: this training needs about \d{4,}\.\d\d GB for its "
                     r"checkpoints \(at most \d{8,} checkpoints of [\d.]+ MB at the same time\), but only "
                     r"[\d.]+ [GM]B are free on this disk\. Make room on the disk, pass a lower "
                     r"--keep_checkpoint_max, or pass an --output_dir on another disk\.", refused.err)
    assert not untrained.output.exists()
