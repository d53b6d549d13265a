"""`pip install .`: what the package holds, and that its console commands run where there is no checkout."""

import os
import shutil
import subprocess
import sys

from helpers import ROOT
import pytest
from test_rooms import FILES, OUR_COMMANDS, PUBLISHED_COMMANDS

COMMANDS = sorted(f"bert-{name.replace('_', '-')}" for name in OUR_COMMANDS | PUBLISHED_COMMANDS)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory of packages that holds ours, made from a copy of the checkout with an output/ in it."""
    here = tmp_path_factory.mktemp("package")
    ignored = shutil.ignore_patterns(".git", ".venv", "output", "build", "*.egg-info", "__pycache__",
                                     ".*_cache")
    shutil.copytree(ROOT, here / "checkout", ignore=ignored)
    (here / "checkout" / "output").mkdir()
    (here / "checkout" / "output" / "model.ckpt-1.index").touch()
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--no-deps", "--target", here / "site", here / "checkout"], check=True)
    return here / "site"


@pytest.mark.slow(reason="builds the package, with a build environment of its own, "
                  "and starts fresh interpreters")
def test_the_package_holds_all_that_the_commands_need_and_nothing_else(site):
    installed = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    installed = {path for path in installed if "__pycache__" not in path and ".dist-info" not in path}
    expected = {str(path.relative_to(ROOT)) for paths in FILES.values() for path in paths}
    expected |= {f"bertlib/kernels/cpp/{path.name}"
                 for path in (ROOT / "bertlib" / "kernels" / "cpp").iterdir()}
    expected |= {f"bertlib/{path.relative_to(ROOT)}" for path in (ROOT / "samples").rglob("*.*")
                 if path.suffix != ".pyc"}
    assert installed == expected | {f"bin/{command}" for command in COMMANDS}


@pytest.mark.slow(reason="starts fresh interpreters")
def test_console_commands_run_without_the_checkout(site, tmp_path):
    def run(command, *flags):
        return subprocess.run([sys.executable, site / "bin" / command, *flags], cwd=tmp_path,
                              capture_output=True, encoding="utf-8",
                              env={**os.environ, "PYTHONPATH": str(site)})

    done = run("bert-run-classifier", "--help")
    assert done.returncode == 0 and done.stdout.startswith("Fine-tunes BERT to classify"), done.stderr
    assert "--task_name" in done.stdout and "--recompute" in done.stdout
    done = run("bert-create-pretraining-data", f"--input_file={site}/bertlib/samples/pretraining/dev.txt",
               f"--vocab_file={site}/bertlib/samples/pretraining/vocab.txt", "--output_file=out.tfrecord",
               "--dupe_factor=1")
    assert done.returncode == 0 and (tmp_path / "out.tfrecord").stat().st_size > 10000, done.stderr
    # The sample is found where it was installed.
    done = run("bert-run-pretraining", "--num_train_steps=1", "--num_warmup_steps=0",
               "--eval_each_checkpoint=false")
    assert done.returncode == 0 and (tmp_path / "output" / "pretraining"
                                     / "eval_results.txt").exists(), done.stderr
