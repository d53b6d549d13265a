"""predict.py as a user runs it: it reads lines, and writes answers in the same order, or errors."""

import csv
import gzip
import json
import os
import subprocess
import sys

import model_directories
from outputs import table
import pytest
import scripts as runs
import tiny


@pytest.fixture
def predict(classifier_dir, run_script, tmp_path):
    """A function that runs predict.py on lines in a file. It returns (`scripts.Finished`, the answers)."""
    def run(lines, name="lines.txt", **flags):
        (tmp_path / name).write_bytes(lines if isinstance(lines, bytes) else lines.encode())
        done = run_script("predict.py", **{"model_dir": classifier_dir, "input_file": name, **flags})
        return done, [json.loads(line) for line in done.out.splitlines()]
    return run


def test_json_lines_into_a_file(predict, tmp_path):
    lines = [{"id": 7, "text_a": "the cat", "text_b": "a dog", "label": "gold"}, {"id": 8, "text_a": "a"}]
    done, answers = predict("".join(json.dumps(line) + "\n" for line in lines), "lines.jsonl",
                            output_file="answers.jsonl")
    assert (done.code, answers) == (0, []), done.err
    found = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [answer["id"] for answer in found] == [7, 8]
    assert found[0]["input_label"] == "gold" and found[0]["label"] == found[0]["prediction"]
    assert found[0]["prediction"] in ("no", "yes")


def test_truncated_inputs_are_counted(predict):
    done, answers = predict("a cat\n" + 30 * "dog " + "\n" + 99 * "cat " + "\n")
    assert len(answers) == 3
    assert "WARNING: 2 of 3 inputs were truncated, because they have more tokens than" in done.err, done.err
    done, _ = predict("a cat\n")
    assert "truncated" not in done.err


def test_a_bad_line_stops_it_after_the_answers_before_it(predict):
    lines = "text_a\tid\nthe cat\t1\na dog\t2\n\t3\na bird\t4\n"
    done, answers = predict(lines, "lines.tsv")
    done.assert_refused("predict.py: error: lines.tsv:4: the text is empty; complete the row or remove it. "
                        "The lines before this line are answered. To write an error instead of the answer")
    assert [answer["id"] for answer in answers] == ["1", "2"]
    done, to_device = predict(lines, "lines.tsv", output_file="/dev/stdout")
    assert done.code == 1 and to_device == answers and "The lines before this line" in done.err


def test_a_bad_line_leaves_an_older_file_of_answers_unchanged(predict, tmp_path):
    (tmp_path / "answers.jsonl").write_text("complete")
    done, _ = predict("the cat\n\na dog\n", output_file="answers.jsonl")
    done.assert_refused(" Nothing was written to answers.jsonl. ")
    assert (tmp_path / "answers.jsonl").read_text() == "complete"


@pytest.mark.parametrize("name, lines, problem", [
    ("lines.csv", "text_a\nthe cat\na dog\n".encode("utf-16"), "--encoding=utf-16. Line 1 determines the"),
    ("lines.csv", b"PK\x03\x04 workbook\nthe cat\na dog\n", "of a spreadsheet program, and not text."),
    ("lines.csv", b"", "the file is empty; it should begin with a header row."),
    ("lines.csv", b"text_a\nthe cat\n\n\na\n ,\n", "More than half of the 5 rows of lines.csv cannot be"),
    ("lines.txt", b"the cat\n\n\xe9\n", "cannot be used (bad text 1, bad encoding 1). This limit also")])
def test_a_file_of_mostly_bad_lines_leaves_older_answers_unchanged(name, lines, problem, predict, tmp_path):
    (tmp_path / "answers.csv").write_text("complete")
    done, _ = predict(lines, name, output_file="answers.csv", skip_bad_lines=True)
    done.assert_refused(problem)
    assert (tmp_path / "answers.csv").read_text() == "complete"


def test_an_input_without_lines_is_a_warning(predict):
    for name, content in (("lines.txt", ""), ("lines.csv", "text_a\n")):
        done, answers = predict(content, name)
        assert (done.code, answers) == (0, []) and f"{name} has no lines to answer, so the" in done.err


def test_a_table_has_the_decimal_sign_of_the_training(predict, tiny_model, tmp_path):
    model = model_directories.write_classifier(tmp_path / "model", tiny_model, output_decimal="comma")
    for flags, start in ({}, '"0,'), ({"output_decimal": "point"}, "0."):
        predict("cat\n", model_dir=model, output_file="answers.csv", **flags)[0].assert_success()
        assert f",{start}" in (tmp_path / "answers.csv").read_text().split("\n")[1]


def test_a_line_with_another_field_is_a_bad_line_of_a_table(predict, tmp_path):
    lines = [{"text_a": "a cat"}, {"text_a": "a bird", "id": 3}, {"text_a": "a man"}]
    done, _ = predict("".join(json.dumps(line) + "\n" for line in lines), "lines.jsonl",
                      output_file="answers.csv", skip_bad_lines=True)
    done.assert_success()
    rows = table(tmp_path / "answers.csv")
    assert [bool(row["prediction"]) for row in rows] == [True, False, True]
    assert rows[1]["error"].startswith("line 2: the line has the field 'id', which the first line lacks.")


def test_a_table_has_the_probabilities_of_all_endings(predict, tiny_model, tmp_path):
    weights = {"cls/multiple_choice/output_weights": (1, tiny.CONFIG["hidden_size"])}
    directory = model_directories.write(tmp_path / "model", tiny_model, "multiple_choice", weights,
                                        num_choices=3)
    done, _ = predict("a cat ||| the ||| dog ||| man\na cat ||| the ||| dog ||| man ||| bird\n",
                      model_dir=directory, output_file="answers.csv")
    done.assert_success()
    first, second = table(tmp_path / "answers.csv")
    assert list(first)[-3:] == ["probability_0", "probability_1", "probability_2"]
    assert first["probability_2"] == "" and 0 < float(second["probability_2"]) < 1


# --- The columns of the training -------------------------------------------------------------------------


@pytest.mark.parametrize("flags, problem", [
    (dict(model_dir="."), "so it is not the output directory of a training with this version. Pass "
     "another directory. For vectors of a pretrained model, pass --init_checkpoint=. to extract_features.py"),
    (dict(output_file="lines.txt"),
     "--output_file=lines.txt would overwrite lines.txt, which --input_file reads. Pass another "
     "--output_file"),
    (dict(output_file="answers.XLSX"), "Name a file that ends in .csv or .jsonl, or pass --output_format."),
    (dict(max_restarts=1), "--max_restarts=1 needs --input_file and --output_file"),
])
def test_what_cannot_be_is_refused(run_script, classifier_dir, tmp_path, flags, problem):
    (tmp_path / "lines.txt").write_text("the cat\n")
    flags = {"model_dir": classifier_dir, "input_file": "lines.txt", **flags}
    done = run_script("predict.py", **flags)
    done.assert_refused(problem)
    assert set(os.listdir(tmp_path)) == {"lines.txt"}
    assert (tmp_path / "lines.txt").read_text() == "the cat\n"


def start(model_dir):
    return subprocess.Popen([sys.executable, runs.ROOT / "predict.py", f"--model_dir={model_dir}"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=runs.environment(), text=True)


@pytest.mark.slow(reason="an interpreter of its own, which loads TensorFlow")
def test_a_line_of_a_pipe_is_answered_before_the_next_one_comes(classifier_dir):
    with start(classifier_dir) as process:
        for text in ("the cat", "a dog"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text_a"] == text
        # The writer ends in the middle of a line.
        process.stdin.write("a bird")
        process.stdin.close()
        assert json.loads(process.stdout.readline())["text_a"] == "a bird"
        assert process.wait() == 0


@pytest.mark.slow(reason="an interpreter of its own, which loads TensorFlow")
def test_a_reader_that_goes_away_ends_it_in_one_line(classifier_dir):
    with start(classifier_dir) as process:
        process.stdin.write("the cat\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write("a dog\n" * 10)
        process.stdin.close()
        err = process.stderr.read()
        assert process.wait() == 1
    assert "predict.py: error: the standard output cannot be written: the other end" in err.splitlines()[-1]


@pytest.mark.slow(reason="starts two interpreters; test_replicas.py has a training of replicas")
def test_replicas_answer_as_one_process_does(predict):
    texts = [" ".join(tiny.WORDS[start:start + 1 + start * 7 % 11]) for start in range(30)]
    lines = "".join(f"{text}\n" for text in [*texts[:20], "", *texts[20:]])
    alone, answers = predict(lines, batch_size=4, skip_bad_lines=True)
    shared, others = predict(lines, batch_size=4, skip_bad_lines=True, num_replicas=2)
    assert (alone.code, shared.code) == (0, 0), shared.err
    assert len(answers) == 31 and shared.out == alone.out
    assert "Lines answered: 30; lines that could not be used: 1 (bad text 1)." in shared.err


# --- CSV -------------------------------------------------------------------------------------------------


def test_csv_in_csv_out(predict, tmp_path):
    """A file whose name ends in .csv contains CSV."""
    lines = 'id,text_a,label\r\n1,"the cat, ""a\r\ndog""",=x\r\n2,,y\r\n3,a bird,-1\r\n'
    done, _ = predict(lines, "lines.csv", output_file="answers.csv.gz", skip_bad_lines=True, csv_safe=True)
    done.assert_success()
    with gzip.open(tmp_path / "answers.csv.gz", "rt", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "text_a", "label", "prediction", "probability_no", "probability_yes",
                             "error"]
    assert [row["text_a"] for row in rows] == ['the cat, "a\r\ndog"', "", "a bird"]
    assert [row["label"] for row in rows] == ["'=x", "y", "-1"]
    assert [row["error"] for row in rows] == [
        "", "line 4: the text is empty; complete the row or remove it. In a spreadsheet, this is row 3.", ""]
    assert (rows[1]["prediction"], rows[1]["probability_no"]) == ("", "")
    for row in rows[::2]:
        found = {label: float(row[f"probability_{label}"]) for label in ("no", "yes")}
        assert row["prediction"] == max(found, key=found.get)
        assert sum(found.values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name, lines, flags, start", [
    ("a.csv", "\ufeffid;text_a\r\n1;the cat, a dog\r\n", {}, '\ufeffid;text_a;'),
    ("a.csv", "\ufeffid;text_a\n1;the cat, a dog\n", {"output_delimiter": "comma"}, "\ufeffid,text_a,"),
    ("a.tsv", "\ufeffid\ttext_a\n1\tthe cat, a dog\n", {}, "\ufeffid,text_a,"),
    ("a.csv", "id|text_a\n1|the cat, a dog\n".encode("utf-16"), {"encoding": "utf-16", "delimiter": "pipe"},
     "\ufeffid|text_a|"),
    ("a.csv", "sep=;\nid;text_a\n1;the cat, a dog\n", {"output_decimal": "comma"}, "\ufeffid;text_a;"),
    ("a.txt", "\ufeffthe cat, a dog\n", {}, "\ufefftext_a,"),
    ("a.txt", b"the cat, a dog\n", {"encoding": "cp1252"}, "\ufefftext_a,"),
    ("a.jsonl", '{"id": "1", "text_a": "the cat, a dog"}', {"output_delimiter": "tab"}, "id\ttext_a\t")])
def test_a_table_has_the_delimiter_and_the_mark_of_the_input(name, lines, flags, start, predict, tmp_path):
    predict(lines, name, output_file="answers.csv", **flags)[0].assert_success()
    text = (tmp_path / "answers.csv").read_bytes().decode()
    assert text.startswith(start) and '"the cat, a dog"' in text.split("\n")[1]
    assert ('"0,' in text.split("\n")[1]) == (flags.get("output_decimal") == "comma")
    if start[-1] == ";":  # the answers are an input again
        again, answers = predict(text.encode(), "answers.csv", output_format="jsonl")
        assert again.code == 0 and answers[0]["text_a"] == "the cat, a dog", again.err
