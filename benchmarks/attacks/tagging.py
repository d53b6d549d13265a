"""Lets run_ner.py, predict.py and run_squad.py read changed sentences and questions.

The scores of the tags must be equal to those that seqeval computes.
"""

import json

from attacks import oracle, world
from attacks.classifying import read_answers
from attacks.trial import Bad
import numpy as np

_MODELS = ("tags", "crf")


class Sentences:
    """Describes a file of tagged words that an attack writes, and the words and tags that the commands must
    find in it.

    The class is similar to `sheets.Sheet`.
    """

    def __init__(self, chance):
        self.chance = chance
        self.sentences = world.sentences(chance, 8)
        self.separator, self.ending = " ", "\n"
        self.flags, self.must, self.edits = {}, "right", []
        self.has_tags, self.first, self.before = True, "", {}

    def content(self):
        text = self.first + world.conll(self.sentences, self.separator, self.ending)
        if not self.has_tags:
            lines = text.split(self.ending)
            text = self.ending.join(self.separator.join(line.split(self.separator)[:2]) for line in lines)
        content = text.encode("utf-8", "surrogatepass")
        for edit in self.edits:
            content = edit(content)
        return content

    def any_sentence(self):
        return self.chance.randrange(1, len(self.sentences))


def plain(file):
    """Leaves the file as it is."""


def tabs(file):
    file.separator = "\t"


def several_spaces(file):
    file.separator = "  "


def crlf(file):
    file.ending = "\r\n"


def mark(file):
    file.edits.append(b"\xef\xbb\xbf".__add__)


def documents(file):
    file.first = "-DOCSTART- -X- O O\n\n"


def without_tags(file):
    file.has_tags = False


def odd_spaces_in_words(file):
    """Puts a Unicode space, such as U+3000, into a word. Such a space does not separate columns."""
    index = file.any_sentence()
    word, _ = file.sentences[index][0]
    file.sentences[index][0] = word + file.chance.choice(["\u3000", "\u00a0", "\u2028", "\x85"]) + "the", "O"
    file.must = "either"


def bars(file):
    file.sentences[file.any_sentence()].insert(1, ("|||", "O"))


def bad_tag(file):
    index = file.any_sentence()
    file.sentences[index][0] = file.sentences[index][0][0], file.chance.choice(["PER", "B_PER", "B-", "1"])
    file.must = "refused"


def another_scheme(file):
    index = file.any_sentence()
    file.sentences[index][0] = file.sentences[index][0][0], "I-ANIMAL"
    file.must = "either"


def short_line(file):
    file.edits.append(lambda content: content + b"\n1 the O\n")
    file.must = "refused"


def long_line(file):
    file.edits.append(lambda content: content + b"\n1 the O X Y\n")
    file.must = "refused"


def not_utf_8(file):
    file.edits.append(lambda content: content + b"\n1 \xff O X\n")
    file.must = "refused"


def escape(file):
    file.sentences[file.any_sentence()][0] = "\x1b[31mthe", file.chance.choice(["O", "x\x1b[2J"])
    file.must = "either"


def empty(file):
    file.edits.append(lambda content: file.chance.choice([b"", b"\n\n", b" \n"]))
    file.must = "refused"


def contradicting_columns(file):
    """Passes flags that do not fit the file: a missing column, or the same column for words and tags."""
    file.flags = file.chance.choice([{"token_column": 9}, {"token_column": 0}, {"tag_column": 2}])
    file.must = "either" if file.flags == {"tag_column": 2} else "refused"


KINDS = {function.__name__.replace("_", " "): function for function in (
    plain, tabs, several_spaces, crlf, mark, documents, without_tags, odd_spaces_in_words, bars, bad_tag,
    another_scheme, short_line, long_line, not_utf_8, escape, empty, contradicting_columns)}


def sentences(trial):
    """Changes a file with columns of words and tags, and lets run_ner.py predict the tags. If the case passes
    no flags for the columns, run_ner.py uses the flags of the training."""
    name, kind = trial.chance.choice(_MODELS), trial.chance.choice(sorted(KINDS))
    trial.note(f"{name}: {kind}")
    file = Sentences(trial.chance)
    KINDS[kind](file)
    trained = trial.world.take(trial.here, name)
    trial.write("given.conll", file.content())
    finished = trial.run("run_ner.py", output_dir=trained.directory, do_predict=True, test_file="given.conll",
                         results_dir="results", **file.flags)
    if not trial.expect(finished, file.must):
        return
    words = [[word for word, _ in sentence] for sentence in file.sentences]
    predicted = _predicted(trial, file)
    if [list(map(len, predicted)), sum(map(len, predicted))] != [list(map(len, words)), sum(map(len, words))]:
        raise Bad("wrong result", f"the predictions have sentences of {list(map(len, predicted))} words, but "
                  f"the file has sentences of {list(map(len, words))} words")
    expected = [answer["tags"] for answer in trial.world.answers(name, [(found,) for found in words])]
    if predicted != expected:
        where = next(index for index, tags in enumerate(predicted) if tags != expected[index])
        raise Bad("wrong result", f"{words[where]}: the command predicts {predicted[where]}, but "
                  f"the Python predictor predicts {expected[where]}")
    results = trial.here / "results/test_eval_results.txt"
    if file.has_tags and results.exists():
        right = [[tag for _, tag in sentence] for sentence in file.sentences]
        if wrong := oracle.differing(oracle.results_in(results), oracle.tags(right, predicted)):
            raise Bad("wrong result", f"{results.name} and seqeval have different metrics: {wrong}")


def _predicted(trial, file):
    """Returns the tags that run_ner.py wrote into the last column, as one list for each sentence."""
    text = (trial.here / "results/test_predictions.conll").read_text("utf-8-sig")
    found = [[]]
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.strip(" \t") and not line.startswith("-DOCSTART-"):
            found[-1].append(line.replace("\t", " ").split(" ")[-1])
        elif found[-1]:
            found.append([])
    return [tags for tags in found if tags]


# --- Taggers line by line --------------------------------------------------------------------------------


def lines(trial):
    """Lets predict.py tag sentences from lines of text, from a column of a table, or from lists of words."""
    name = trial.chance.choice(_MODELS)
    words = [[word for word, _ in sentence] for sentence in world.sentences(trial.chance, 6)]
    words[2].insert(1, "|||")
    form = trial.chance.choice(["txt", "jsonl", "list", "csv", "tsv"])
    trial.note(f"{name}, words as {form}")
    trained = trial.world.take(trial.here, name)
    texts = [" ".join(found) for found in words]
    if form == "txt":
        given = trial.write("given.txt", "".join(f"{text}\n" for text in texts))
    elif form in ("jsonl", "list"):
        given = trial.write("given.jsonl", "".join(
            json.dumps({"id": index, "text": found if form == "list" else text}) + "\n"
            for index, (text, found) in enumerate(zip(texts, words))))
    else:
        tab = {"csv": ",", "tsv": "\t"}[form]
        given = trial.write(f"given.{form}", f"id{tab}text\n" + "".join(
            f"{index}{tab}{text}\n" for index, text in enumerate(texts)))
    finished = trial.run("predict.py", model_dir=trained.directory, input_file=given.name,
                         output_file="answers.jsonl")
    if not trial.expect(finished, "right"):
        return
    found = read_answers(trial.here / "answers.jsonl")
    expected = trial.world.answers(name, [(one,) for one in words])
    if [answer["tags"] for answer in found] != [answer["tags"] for answer in expected]:
        raise Bad("wrong result", f"the command returns {[answer['tags'] for answer in found][:3]}, but the "
                  f"predictor returns {[answer['tags'] for answer in expected][:3]}. The first words are "
                  f"{words[:3]}")


# --- Questions -------------------------------------------------------------------------------------------


def questions(trial):
    """Lets run_squad.py and predict.py answer the same questions, and compares their answers.

    Both use the settings of the training, so their answers must be the same.
    """
    chance = trial.chance
    kind = chance.choice(["plain", "no context", "null", "escape", "id twice", "long context", "array"])
    trial.note(kind)
    trained = trial.world.take(trial.here, "questions")
    rows = [{"id": f"q{index}", "question": world.words(chance, 5), "context": world.words(chance, 7)}
            for index in range(6)]
    must, wrong = "right", rows[3]
    if kind == "no context":
        del wrong["context"]
        must = "refused"
    elif kind in ("null", "array"):
        wrong["context"] = None if kind == "null" else ["the cat"]
        must = "refused"
    elif kind == "escape":
        wrong["id"], wrong["context"] = "\x1b[31m", "the \x1b]0;x\x07 cat"
    elif kind == "id twice":
        wrong["id"], must = "q0", "either"
    elif kind == "long context":
        wrong["context"] = " ".join(world.words(chance) for _ in range(20))
    trial.write("given.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    answered = trial.run("predict.py", model_dir=trained.directory, input_file="given.jsonl",
                         output_file="answers.jsonl")
    # predict.py does not check whether two questions have the same id, so it must answer both questions.
    if not trial.expect(answered, "right" if kind == "id twice" else must):
        return
    finished = trial.run("run_squad.py", output_dir=trained.directory, do_predict=True,
                         predict_file="given.jsonl", results_dir="results")
    if not trial.expect(finished, must):
        return
    written = json.loads((trial.here / "results/predictions.json").read_text("utf-8"))
    for row, answer in zip(rows, read_answers(trial.here / "answers.jsonl"), strict=True):
        if written[row["id"]] != answer["answer"] and kind != "id twice":
            raise Bad("wrong result", f"{row}: run_squad.py answers {written[row['id']]!r}, but "
                      f"predict.py answers {answer['answer']!r}")
        if len(answer["answer"].split()) > world.MAX_ANSWER_LENGTH:
            raise Bad("wrong result", f"{answer['answer']!r} has more words than the training allows with "
                      f"--max_answer_length={world.MAX_ANSWER_LENGTH}")


# --- Scores that nearly tie ------------------------------------------------------------------------------


def near_ties(trial):
    """Predicts many scores that are nearly equal.

    The command's metrics must be equal to metrics that are computed from the scores in test_results.tsv.
    """
    trained = trial.world.take(trial.here, "scores")
    chance = trial.chance
    few = world.rows(chance, "scores", 5)
    rows = [(chance.choice(few)[0], round(chance.uniform(0, 5), 1)) for _ in range(40)]
    trial.note("regression with ties")
    trial.write("given.csv", "sentence1,sentence2,score\n" + "".join(
        f"{a},{b},{score}\n" for (a, b), score in rows))
    finished = trial.run("run_classifier.py", output_dir=trained.directory, test_file="given.csv",
                         results_dir="results", predict_batch_size=chance.choice([3, 7, 8]))
    if not trial.expect(finished, "right"):
        return
    found = [float(row[0]) for row in oracle.table_in(trial.here / "results/test_results.tsv")]
    expected = oracle.regression(np.array([score for _, score in rows]), np.array(found))
    if wrong := oracle.differing(oracle.results_in(trial.here / "results/test_eval_results.txt"), expected):
        raise Bad("wrong result", f"test_eval_results.txt: written and recomputed values differ: {wrong}")
