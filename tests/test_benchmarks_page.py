"""The tables and the pictures in docs/development agree with the files in benchmarks/results."""

import re
import sys

import pytest
from test_docs import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import render  # noqa: E402
import results  # noqa: E402

FOLDER = ROOT / "docs" / "development"
STORED = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def text_of(name):
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", render.PAGES)
def test_tables_are_those_of_the_results(name):
    page = text_of(name)
    assert "<!-- generated: " in page
    assert render.rendered(page) == page, "Run `python benchmarks/render.py`."


@pytest.mark.parametrize("name", render.PICTURES)
def test_the_pictures_are_those_of_the_results(name):
    assert render.PICTURES[name]() == text_of(name), "Run `python benchmarks/render.py`."


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_result_is_whole(path):
    result = results.read(path.stem)
    numbers = {name for row in [*result.get("rounds", []), *result.get("summary", [])]
               for name, value in row.items() if isinstance(value, float)}
    assert numbers <= set(result["units"])
    if result["repeated"]:
        assert re.fullmatch(r"[0-9a-f]{40}", result["commit"]) and isinstance(result["clean"], bool)
        assert result["rounds"] and (f"--results={path.stem}" in result["command"]
                                     or path.stem == "gpu")  # the default of benchmarks/gpu.py
    else:
        assert result["recorded"]
    assert not re.search(r"(?<![\w$.*])/\w+/\w", path.read_text(encoding="utf-8")), "a path of one machine"


# Other programs than `main` start these files, or they need PyTorch.
OTHER = {"gpu_steps", "pair_baselines", "results", "gpu_page", "capped", "record_hf_reference",
         "plain_pretraining"}


@pytest.mark.slow(reason="loads 30 programs")
@pytest.mark.parametrize("path", [path for path in sorted((ROOT / "benchmarks").glob("*.py"))
                                  if path.stem not in OTHER], ids=lambda path: path.stem)
def test_a_benchmark_can_be_started(path, scripts, tmp_path):
    done = scripts.run(path.relative_to(ROOT), "--help", cwd=tmp_path, PYTHONPATH=str(path.parent))
    assert "Traceback" not in done.err and "--" in done.out, done.err
