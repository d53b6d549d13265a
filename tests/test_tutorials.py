"""The pages in docs/tutorials run from top to bottom, in a copy of the repository, with short trainings."""

import pathlib
import re
import subprocess
import sys

import pytest
import scripts

ROOT = pathlib.Path(__file__).resolve().parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def program_of(page):
    """The bash program of a page: its blocks of bash and Python in their order, with shorter trainings.

    The comment `<!-- test: --flag=value -->` gives flags another value in all commands of the page. A block
    after the comment `<!-- not run -->` is left out: it needs a network, Docker or a published checkpoint.
    """
    text = page.read_text(encoding="utf-8")
    lines = ["set -euo pipefail"]
    blocks = re.findall(r"(<!-- not run -->\n)?```(bash|python)\n(.*?)```", text, re.DOTALL)
    for is_skipped, language, code in blocks:
        if not is_skipped:
            lines.append(code if language == "bash" else f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON")
    program = "\n".join(lines)
    for flag, value in re.findall(r"(--\w+)=(\S+)", "".join(re.findall(r"<!-- test: (.*?) -->", text))):
        program = re.sub(rf"{flag}=\S+", f"{flag}={value}", program)
    return program


@pytest.mark.slow(reason="several commands, with the installed model")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path):
    listed = subprocess.run(["git", "ls-files", "--", ":!tests", ":!docs"], cwd=ROOT, capture_output=True,
                            encoding="utf-8", check=True)
    files = [name for name in listed.stdout.split() if (ROOT / name).exists()]
    subprocess.run(["cp", "--parents", *files, tmp_path], cwd=ROOT, check=True)
    path = f"{pathlib.Path(sys.executable).parent}:{scripts.environment()['PATH']}"
    done = subprocess.run(["bash", "-c", program_of(page)], cwd=tmp_path, capture_output=True,
                          encoding="utf-8", env=scripts.environment(PATH=path))
    subprocess.run(["rm", "-rf", tmp_path], check=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_the_commands_of_the_tutorials_are_found():
    assert len(TUTORIALS) == 7
    for page in TUTORIALS:
        program = program_of(page)
        assert program.count("python ") >= 2 and "download.py" not in program and "docker" not in program
    text = program_of(ROOT / "docs" / "tutorials" / "csv_to_served_model.md")
    assert "--num_train_epochs=0.1 " in text and "--num_train_epochs=8" not in text
