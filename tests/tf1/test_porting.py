"""The table in docs/howto/porting.md lists what works, and each row names its test."""

import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "howto" / "porting.md"


def test_each_row_of_the_table_has_a_test():
    rows = re.findall(r"\| `(\w+\.py)::(\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 20
    for file, name in rows:
        assert re.search(rf"^def {name}\(", (HERE / file).read_text(encoding="utf-8"), re.MULTILINE), name
