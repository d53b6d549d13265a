"""run_ner.py as a user runs it: it reads files with the columns of CoNLL, and writes scores and tagged files.
"""

import os
import random
import re
import shutil

from helpers import read_json, write_json
import pytest
import tiny

from bertlib.tasks.tagging import tagging_data

TYPES = {**dict.fromkeys(["cat", "dog", "bird"], "ANIMAL"),
         **dict.fromkeys(["paper", "song", "bread"], "THING")}


def write_conll(path, count, scheme="IOB1", seed=1, tags=True):
    """Writes sentences. A line has a word, a number and a tag. Some sentences are long."""
    chance, lines = random.Random(seed), ["-DOCSTART- -1 O"]
    for index in range(count):
        words = [chance.choice([*TYPES, "the", "sees", "here", "cats"])
                 for _ in range(30 if index % 8 == 3 else chance.randint(1, 8))]
        spans = [(place, place + 1, TYPES[word]) for place, word in enumerate(words) if word in TYPES]
        columns = zip(words, map(str, range(len(words))),
                      tagging_data.tags_from_spans(spans, len(words), scheme))
        lines += ["", "# one of the sentences", *[" ".join(row if tags else row[:2]) for row in columns]]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*lines, ""]) if tags else "\n".join(lines[1:]) + "\n")
    return path


@pytest.fixture(scope="module")
def flags(tiny_model, tmp_path_factory):
    """The flags of a training on the directory data/, which has all three files."""
    data = tmp_path_factory.mktemp("ner") / "data"
    for seed, (name, count) in enumerate({"train.txt": 40, "dev.conll": 12, "test.txt": 12}.items()):
        write_conll(data / name, count, seed=seed)
    return dict(tiny_model.flags, bert_config_file=tiny_model.shallow, data_dir=data, do_train=True,
                train_batch_size=8, learning_rate=0.01, predict_batch_size=5)


def results_of(path):
    pairs = (line.split(" = ") for line in path.read_text().splitlines())
    return {name: float(value) for name, value in pairs}


def columns_of(path):
    """Returns the rows of each sentence in a file that run_ner.py wrote."""
    found = [[]]
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "-DOCSTART-")):
            found[-1].append(line.split(" "))
        elif found[-1]:
            found.append([])
    return [rows for rows in found if rows]


@pytest.fixture(scope="module")
def run(scripts, flags, tmp_path_factory):
    """A run of all three phases with all options: (output directory, `Finished`)."""
    here = tmp_path_factory.mktemp("run")
    done = scripts.run("run_ner.py", *tiny.flags(**flags, output_dir="out", do_eval=True, do_predict=True,
                                                 crf=True, label_all_pieces=True, num_train_epochs=8,
                                                 tokens_per_micro_batch=80), cwd=here)
    assert done.code == 0 and not done.out, done.err
    return here / "out", done


def test_it_learns_and_says_what_it_read(run, flags):
    output, done = run
    assert results_of(output / "eval_results.txt")["eval_f1"] > 0.8
    sentences = tagging_data.read_conll(str(flags["data_dir"] / "dev.conll")).sentences
    words = sum(len(sentence.words) for sentence in sentences)
    counts = ", ".join(f"{count} {kind}" for kind, count in tagging_data.count_types(sentences).items())
    assert f"dev.conll: 12 sentences, {words} words, IOB1: {counts}." in done.err
    assert "2 sentences are longer than --max_seq_length=20 and were cut into windows. " in done.err
    assert (output / "labels.txt").read_text() == "B-ANIMAL\nB-THING\nO\n"
    record = read_json(output / "run.json")
    assert record["command"] == "run_ner.py" and record["labels"] == ["B-ANIMAL", "B-THING", "O"]
    assert record["settings"]["crf"] and record["settings"]["tag_scheme"] == "IOB1"
    report = (output / "eval_report.html").read_text()
    assert "<h1>Tagging: dev.conll</h1>" in report and report.count("<article") == len(sentences)
    f1 = results_of(output / "eval_results.txt")["eval_f1"]
    assert f'<td class="number"><data value="{f1!r}">' in report


def test_each_line_of_the_test_file_has_a_predicted_tag_in_its_scheme(run, flags):
    before = (flags["data_dir"] / "test.txt").read_text().splitlines()
    after = (run[0] / "test_predictions.conll").read_text().splitlines()
    assert len(before) == len(after)
    for old, new in zip(before, after):
        if not old or old.startswith("#"):
            assert new == old
        else:
            assert new.rpartition(" ")[0] == old
    predicted = [[row[-1] for row in rows] for rows in columns_of(run[0] / "test_predictions.conll")]
    assert all(tagging_data.convert_scheme(tags, "IOB1") == tags for tags in predicted)
    assert {"I-ANIMAL", "I-THING", "O"} <= {tag for tags in predicted for tag in tags}


def test_the_sample_does_not_replace_the_data_of_a_training(run, run_script, tmp_path):
    output = shutil.copytree(run[0], tmp_path / "out")
    record = read_json(output / "run.json")
    record["files"]["data_dir"] = "/moved/data"
    write_json(output / "run.json", record)
    for phase in ("do_eval", "do_train"):
        refused = run_script("run_ner.py", output_dir=output, results_dir="new", **{phase: True})
        assert refused.code == 1 and not (tmp_path / "new").exists()
        assert (f"--data_dir is required: according to {output}/run.json, the model was trained on "
                "/moved/data." in refused.err)


def test_the_trained_model_tags_a_file_without_tags(run, run_script, flags, tmp_path):
    again = dict(output_dir=run[0], results_dir=tmp_path / "new")  # the directory has all other settings
    test = write_conll(tmp_path / "plain.txt", 12, seed=2, tags=False)
    # The last column contains valid tags. But the file has only two columns, and the training file had three.
    (tmp_path / "new").mkdir()
    for ending in ("txt", "json"):
        (tmp_path / "new" / f"test_eval_results.{ending}").write_text("of another file")
    test.write_text(re.sub(r"(?m)^(\w+) \d+$", r"\1 B-NP", test.read_text()))
    done = run_script("run_ner.py", **again, do_predict=True, test_file=test)
    assert done.code == 0 and "plain.txt: 12 sentences" in done.err and "without tags" in done.err
    assert "plain.txt: the file has 2 columns instead of 3, so it counts as untagged." in done.err
    assert not list((tmp_path / "new").glob("test_eval_results.*"))
    # The sentences are the same, so the tags must be the same.
    found = columns_of(tmp_path / "new" / "test_predictions.conll")
    assert found == [[[row[0], "B-NP", row[3]] for row in rows]
                     for rows in columns_of(run[0] / "test_predictions.conll")]


def test_tags_that_training_lacks_are_told_and_count_as_wrong(run, run_script, flags, tmp_path):
    dev = tmp_path / "dev.txt"
    dev.write_text("cat 0 B-ANIMAL\n\nhere 0 B-PLACE\nbird 1 B-ANIMAL\n")
    again = dict(output_dir=run[0], results_dir=tmp_path / "new", label_all_pieces=False)
    done = run_script("run_ner.py", **again, do_eval=True, dev_file=dev)
    done.assert_success()
    assert f"WARNING: {dev} has tags that the training data does not have. The model never predicts " \
        "these tags, so they count as wrong: B-PLACE." in done.err
    assert re.search(r"WARNING: Flags with other values than in the training \(\S+/run\.json\): "
                     r"--label_all_pieces=false \(in the training: true\)\.\n", done.err)
    assert re.search(r" values from the training \(\S+/run\.json\): .*--crf=true", done.err)
    assert f"--vocab_file not given: using {run[0]}/vocab.txt\n" in done.err
    found = results_of(tmp_path / "new" / "eval_results.txt")
    assert found["eval_recall_PLACE"] == 0 <= found["eval_recall_ANIMAL"] and "eval_loss" not in found


# --- Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, text, message", [
    ("train.txt", "a O\nb O\n", "train.txt: all tags are O, so there is nothing to learn"),
    ("train.txt", "a B-X\n\nb O\nc I-X\n\nd B-X\n",
     "train.txt:4: the tag I-X after O is not valid in the scheme IOB2, which fits most of data/train.txt; "
     "the right tag is B-X."),
    ("dev.txt", "a B-X\n",
     "--data_dir=data contains dev.txt and dev.conll. Choose one of these files with --dev_file."),
    ("dev.conll", None, "--data_dir=data contains none of the files dev.txt, dev.conll, ")])
def test_bad_input_is_told_and_nothing_is_written(name, text, message, run_script, tiny_model, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for file in ("train.txt", "dev.conll", "test.txt"):
        (data / file).write_text("a B-X\nb I-X\n\nc O\n" * 9)
    (data / name).write_text(text) if text is not None else (data / name).unlink()
    flags = dict(tiny_model.flags, data_dir="data", do_train=True, do_eval=True, do_predict=True,
                 output_dir="out", train_batch_size=8)
    done = run_script("run_ner.py", **flags)
    done.assert_refused(message)
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize("flags, message", [
    (dict(do_predict=True, test_file="data/test.txt"), "--output_dir=out has no labels.txt"),
    (dict(do_train=True, do_eval=True, train_file="data/train.txt"),
     "--dev_file or --data_dir is required.")])
def test_flags_that_cannot_be_right(flags, message, run_script, tiny_model, tmp_path):
    write_conll(tmp_path / "data" / "test.txt", 2)
    done = run_script("run_ner.py", **{**tiny_model.flags, "output_dir": "out", **flags})
    done.assert_refused(message)
    assert os.listdir(tmp_path) == ["data"]


def test_a_draw_without_an_entity_is_no_file_without_entities(run_script, tiny_model, tmp_path):
    sentences = ["a B-X\n", *(f"b O\nc{number} O\n" for number in range(40))]
    (tmp_path / "train.txt").write_text("\n".join(sentences))
    done = run_script("run_ner.py", **dict(
        tiny_model.flags, train_file="train.txt", do_train=True, max_train_examples=2))
    assert done.code == 1 and "--max_train_examples=2: no drawn sentence of train.txt has an entity" in (
        done.err), done.err
