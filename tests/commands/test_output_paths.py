"""Commands that write one file: to a device, to a FIFO, and to a directory, which is refused."""

import os
import threading

from devices import device, is_device
import pytest
import tiny

from bertlib.tasks.classification import glue_submission_files


def _also(*names):
    return [pytest.param(name, marks=pytest.mark.slow(reason="the other commands show the check"))
            for name in names]


@pytest.fixture(scope="module")
def commands(tmp_path_factory, tiny_model):
    """{command: its arguments without --output_file}, of all commands that write one file."""
    folder = tmp_path_factory.mktemp("inputs")
    test_set = glue_submission_files.test_sets()["CoLA.tsv"]
    rows = "".join(f"{index}\t{test_set.labels[0]}\n" for index in range(test_set.size))
    (folder / "CoLA.tsv").write_text(f"index\tprediction\n{rows}")
    (folder / "text.txt").write_text("the cat sees a bird\na dog\n")
    text = f"--input_file={folder / 'text.txt'}"
    return {"glue_submission.py": [str(folder), "--partial"],
            "build_vocab.py": [text, "--vocab_size=50"],
            "extract_features.py": [text, *tiny.flags(**tiny_model.flags)],
            "plan_memory.py": tiny.flags(bert_config_file=tiny_model.config),
            "predict.py": [text, f"--model_dir={folder}"],
            "create_pretraining_data.py": [text, f"--vocab_file={tiny_model.vocab}"]}


@pytest.mark.parametrize("command", ["glue_submission.py", *_also("build_vocab.py")])
def test_a_device_and_a_fifo_get_the_bytes_of_the_file(command, commands, run_script, tmp_path):
    def run(output_file):
        done = run_script(command, *commands[command], f"--output_file={output_file}")
        done.assert_success()

    null, fifo, read = device(tmp_path, "null"), tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
    reader.start()
    for path in (null, fifo, tmp_path / "file"):
        run(path)
    reader.join(60)
    assert is_device(null) and read == [(tmp_path / "file").read_bytes()]


@pytest.mark.parametrize("command", ["build_vocab.py", "plan_memory.py", *_also(
    "glue_submission.py", "extract_features.py", "predict.py", "create_pretraining_data.py")])
def test_a_directory_is_refused_before_the_work(command, commands, run_script, tmp_path):
    path = tmp_path / "directory.svg"
    path.mkdir()
    done = run_script(command, *commands[command], f"--output_file={path}")
    done.assert_refused(f"{path} is a directory")
    assert "Traceback" not in done.err and not list(path.iterdir())


def test_records_are_not_written_to_a_device(commands, run_script, tmp_path):
    null = device(tmp_path, "null")
    refused = run_script("create_pretraining_data.py", *commands["create_pretraining_data.py"],
                         output_file=null)
    refused.assert_refused(f"{null} is a device or a FIFO. Name a regular file")
    assert is_device(null)
