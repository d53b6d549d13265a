"""run_classifier.py on files with bad lines, another encoding, and pipes between the columns.

Also tests a training on a part of the examples.
"""

import csv
import io

ROW = "one text"
# {number of the lines before a bad line: (bad line, kind)}.
BAD = {3: ("|x", "empty text"), 6: ("cat|x|more", "wrong width"), 9: ("", "blank line"),
       12: ("dog|", "missing label")}
FLAGS = dict(test_file=None, do_predict=False, delimiter="pipe", encoding="cp1252", skip_bad_lines=True)


def test_bad_lines_are_left_out_counted_and_listed(untrained):
    lines = ["text|label", *(f"cat café {number}|{'xy'[number % 2]}" for number in range(16))]
    (untrained.directory / "dev.csv").write_bytes("\n".join([*lines, "man|z", ""]).encode("cp1252"))
    for place, (line, _) in BAD.items():
        lines.insert(place, line)
    (untrained.directory / "all.csv").write_bytes("\n".join([*lines, ""]).encode("cp1252"))
    done = untrained.train(**FLAGS, train_file="all.csv", dev_file="dev.csv", max_train_examples=8)
    done.assert_success(
        "all.csv: 4 bad lines are left out, because --skip_bad_lines=true: empty text 1, wrong width 1, "
        "blank line 1, missing label 1. The first bad line is line 4.", "dev.csv: 1 bad line",
        "output/skipped_lines.csv lists the 5 lines that were left out.")
    listed = (untrained.output / "skipped_lines.csv").read_text(encoding="utf-8")
    assert listed.startswith("\ufefffile|line|")
    rows = list(csv.DictReader(io.StringIO(listed.removeprefix("\ufeff")), delimiter="|"))
    assert [(row["file"], row["line"], row["kind"], row["text"]) for row in rows] == [
        *(("all.csv", str(before + 1), kind, text) for before, (text, kind) in BAD.items()),
        ("dev.csv", "18", "unknown label", "man|z")]
    assert "is not one of x, y (the labels in --train_file=all.csv)" in rows[-1]["reason"]
