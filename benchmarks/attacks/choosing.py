"""Makes questions with several endings, and lets run_swag.py and predict.py read them. The files have
different columns, formats and labels, and may contain bad rows.

Both commands must give the probabilities of the Python predictor, in the order of the rows. scikit-learn
checks the accuracy.
"""

import csv
import io
import json
import re

from attacks import oracle, world
from attacks.classifying import read_answers
from attacks.trial import Bad
import numpy as np
from sklearn import metrics

_FORMS = ("csv", "jsonl", "tsv")


class Questions:
    """Describes a file of questions that an attack writes, and the texts and labels that the commands must
    find in it.

    The class is similar to `sheets.Sheet`. `must` says how run_swag.py must end with this file: "right",
    "refused" or "either". `must_predict` says the same for predict.py.
    """

    def __init__(self, chance):
        self.chance, self.form = chance, chance.choice(_FORMS)
        self.rows = world.questions_with_endings(chance, 8)
        self.columns = list(world.CHOICES)
        self.shown, self.flags, self.edits, self.line_end = {}, {}, [], "\n"
        self.must = self.must_predict = "right"

    @property
    def name(self):
        return f"given.{self.form}"

    @property
    def texts(self):
        """Returns the columns of the texts, in the order of the model."""
        return sorted((name for name in self.columns if re.fullmatch(r"(sent|ending)\d", name)),
                      key=lambda name: (name.startswith("ending"), name))

    @property
    def is_labelled(self):
        return "label" in self.columns

    def refuse(self):
        self.must = self.must_predict = "refused"

    def any_row(self):
        """Returns a random row, but not the first row."""
        return self.rows[self.chance.randrange(1, len(self.rows))]

    def content(self):
        shown = [self.shown.get(name, name) for name in self.columns]
        if self.form == "jsonl":
            lines = [json.dumps({self.shown.get(name, name): row[name] for name in self.columns
                                 if name in row}) for row in self.rows]
        else:
            lines = [self._line(shown), *(self._line([row[name] for name in self.columns])
                                          for row in self.rows)]
        content = (self.line_end.join(lines) + self.line_end).encode("utf-8", "surrogatepass")
        for edit in self.edits:
            content = edit(content)
        return content

    def _line(self, values):
        if self.form == "tsv":
            return "\t".join(map(str, values))
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerow(values)
        return buffer.getvalue()[:-1]


def plain(file):
    """Leaves the file as it is. In this case, nothing in the file is unusual."""


def shuffled_columns(file):
    file.chance.shuffle(file.columns)


def more_columns(file):
    for name in ("video-id", "gold-source", "prediction", "probability_0", "ending"):
        file.columns.insert(file.chance.randrange(len(file.columns) + 1), name)
        for row in file.rows:
            row[name] = f"{name} of the row"


def crlf(file):
    file.line_end = "\r\n"


def mark(file):
    file.edits.append(b"\xef\xbb\xbf".__add__)


def without_labels(file):
    file.columns.remove("label")


def fewer_endings(file):
    file.columns.remove("ending3")
    for row in file.rows:
        row["label"] %= 3


def more_endings(file):
    """Adds a fifth ending to each question. The model was trained with four endings.

    run_swag.py scores the fifth ending, too. predict.py must refuse the file instead of ignoring this ending.
    """
    file.columns.append("ending4")
    for row in file.rows:
        row["ending4"] = world.words(file.chance, 3)
    file.must_predict = "refused"


def a_missing_number(file):
    file.columns.remove(file.chance.choice(["ending0", "ending1", "ending2"]))
    for row in file.rows:
        row["label"] = 0
    file.refuse()


def an_ending_twice(file):
    if file.form != "jsonl":
        file.columns.append("twin")
        file.shown = {"twin": file.chance.choice(["ending0", "ending2", "ending3", "sent1"])}
        for row in file.rows:
            row["twin"] = "another text"
        file.refuse()


def numbers_from_1(file):
    file.shown = {f"ending{index}": f"ending{index + 1}" for index in range(4)}
    file.refuse()


def named_otherwise(file):
    """Renames the columns of the texts, and passes the new names as --text_column."""
    file.shown = {name: f"col {index}" for index, name in enumerate(file.texts)}
    file.flags = {"text_column": ",".join(file.shown.values()), "label_column": "label"}


def row_of_another_width(file):
    """Removes an ending (one of the possible answers) from a row, so that this row has fewer endings than the
    other rows. Does nothing if the file is not in JSON Lines."""
    if file.form == "jsonl":
        del file.any_row()["ending3"]
        # Only run_swag.py must refuse the file: predict.py accepts rows with fewer endings.
        file.must = "refused"


def empty_ending(file):
    file.any_row()[file.chance.choice(file.texts)] = file.chance.choice(["", " ", "\u3000"])
    file.refuse()


def null_ending(file):
    if file.form == "jsonl":
        file.any_row()[file.chance.choice(file.texts)] = file.chance.choice([None, [], {}, ["the cat"]])
        file.refuse()


def bad_label(file):
    file.any_row()["label"] = file.chance.choice(["4", "-1", "1.0", "a", "", "ending1", "٢"])
    file.must = "refused"  # run_swag.py must refuse the file; predict.py does not read labels


def label_as_text(file):
    """Replaces each label by a text, for example 1 by "1". This changes only JSON Lines."""
    for row in file.rows:
        row["label"] = str(row["label"])


def short_row(file):
    if file.form != "jsonl":
        file.edits.append(lambda content: content + b"the,cat\n")
        file.refuse()


def not_utf_8(file):
    file.any_row()[file.chance.choice(file.texts)] = "the MARK cat"
    file.edits.append(lambda content: content.replace(b"MARK", b"\xff"))
    file.refuse()


def escape(file):
    file.any_row()[file.chance.choice(file.texts)] = "the \x1b[31m cat"
    if file.form != "jsonl":
        file.must = file.must_predict = "either"


def empty(file):
    file.edits.append(lambda content: file.chance.choice([b"", b"\n\n"]))
    file.must, file.must_predict = "refused", "either"
    file.rows = []


def equal_endings(file):
    row = file.any_row()
    row["ending1"] = row["ending0"]


def long_texts(file):
    file.any_row()[file.chance.choice(file.texts)] = "cat " * file.chance.choice([30, 5000])


KINDS = {function.__name__.replace("_", " "): function for function in (
    plain, shuffled_columns, more_columns, crlf, mark, without_labels, fewer_endings, more_endings,
    a_missing_number, an_ending_twice, numbers_from_1, named_otherwise, row_of_another_width, empty_ending,
    null_ending, bad_label, label_as_text, short_row, not_utf_8, escape, empty, equal_endings,
    long_texts)}


def questions_with_endings(trial):
    """Changes a file of questions. run_swag.py then evaluates the model on this file or answers its
    questions, and predict.py answers the same questions."""
    kind = trial.chance.choice(sorted(KINDS))
    phase = trial.chance.choice(["dev", "test"])
    file = Questions(trial.chance)
    KINDS[kind](file)
    trial.note(f"{phase}, {file.form}: {kind}")
    trained = trial.world.take(trial.here, "endings")
    trial.write(file.name, file.content())
    rows = [[row[name] for name in file.texts if name in row] for row in file.rows]

    must = "refused" if phase == "dev" and not file.is_labelled else file.must
    finished = trial.run("run_swag.py", output_dir=trained.directory, results_dir="results",
                         do_eval=phase == "dev", do_predict=phase == "test", **{f"{phase}_file": file.name},
                         predict_batch_size=trial.chance.choice([1, 3, 8]), **file.flags)
    if trial.expect(finished, must):
        _check_table(trial, phase, file, rows)
    finished = trial.run("predict.py", model_dir=trained.directory, input_file=file.name,
                         output_file="answers.jsonl", **file.flags)
    if trial.expect(finished, file.must_predict):
        found = [list(answer["probabilities"].values()) for answer in
                 read_answers(trial.here / "answers.jsonl")]
        _compare(trial, rows, found, "predict.py")


def _check_table(trial, phase, file, rows):
    """Compares the probabilities in the table of run_swag.py with those of the Python predictor. Also
    compares the accuracy in the results with the accuracy that scikit-learn computes."""
    prefix = {"dev": "eval", "test": "test"}[phase]
    table = oracle.rows_of(trial.here / f"results/{prefix}_predictions.csv")
    found = [[float(value) for name, value in row.items() if name.startswith("probability_")]
             for row in table]
    _compare(trial, rows, found, "run_swag.py")
    if not file.is_labelled:
        return
    right = [int(row["label"]) for row in file.rows]
    predicted = [int(row["prediction"]) for row in table]
    for row, numbers, chosen in zip(table, found, predicted):
        if numbers[chosen] < max(numbers) - 1e-6:
            raise Bad("wrong result", f"prediction {chosen} is not the most probable ending of {numbers}: "
                      f"{row}"[:500])
    expected = {"eval_accuracy": metrics.accuracy_score(right, predicted)}
    results = oracle.results_in(trial.here / f"results/{'' if phase == 'dev' else 'test_'}eval_results.txt")
    if wrong := oracle.differing(results, expected):
        raise Bad("wrong result", f"the written accuracy differs from the recomputed accuracy: {wrong}")


def _compare(trial, rows, found, command):
    """Raises `Bad` if the probabilities of a command (`found`) differ from those of the Python predictor.

    In a row with more endings than the training had, only the number of probabilities is checked, because the
    predictor would refuse such a row.
    """
    if len(found) != len(rows):
        raise Bad("wrong result", f"{command}: {len(found)} answers for {len(rows)} rows")
    for index, (texts, numbers) in enumerate(zip(rows, found)):
        if len(numbers) != len(texts) - 2:
            raise Bad("wrong result", f"{command}, row {index + 1}: {len(numbers)} probabilities for "
                      f"{len(texts) - 2} endings")
        if len(texts) > len(world.CHOICES) - 2:
            continue
        answer, = trial.world.answers("endings", [texts])
        expected = list(answer["probabilities"].values())
        if not np.allclose(expected, numbers, rtol=0, atol=oracle.TOLERANCE):
            raise Bad("wrong result", f"{command}, row {index + 1}, {texts!r:.150}: the command "
                      f"answers {numbers}, but the Python predictor answers {expected}")
