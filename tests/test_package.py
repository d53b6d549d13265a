"""`pip install .`: the package contains the right files, and its console commands run without a checkout."""

import email.parser
import json
import os
import shutil
import subprocess
import sys

from helpers import ROOT
import pytest
from test_architecture import FILES, MODEL, OUR_COMMANDS, PUBLISHED_COMMANDS
import tiny

COMMANDS = sorted(f"bert-{name.replace('_', '-')}" for name in OUR_COMMANDS | PUBLISHED_COMMANDS)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory with the installed package. It is built from a copy of the checkout that has an output/."""
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
    expected = {str(path.relative_to(ROOT)) for package, paths in FILES.items() for path in paths
                if package not in OUR_COMMANDS}
    expected.add("bertlib/py.typed")
    expected |= {f"bertlib/graph/cpp/{path.name}"
                 for path in (ROOT / "bertlib" / "graph" / "cpp").iterdir()}
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "bertlib").rglob("*.html")}
    expected |= {f"bertlib/{path.relative_to(ROOT)}" for path in (ROOT / "samples").rglob("*.*")
                 if path.suffix != ".pyc"}
    assert installed == expected | {f"bin/{command}" for command in COMMANDS}
    # In addition to the packages, only modules with the names of google-research/bert are importable.
    assert {path.name for path in site.iterdir() if path.suffix not in (".dist-info", "")} == {
        f"{name}.py" for name in MODEL | PUBLISHED_COMMANDS}


@pytest.mark.slow(reason="builds the package")
def test_the_metadata_are_complete(site):
    path, = site.glob("*.dist-info/METADATA")
    found = email.parser.Parser().parsestr(path.read_text(encoding="utf-8"))
    assert found["License-Expression"] == "Apache-2.0" and (path.parent / "licenses" / "LICENSE").exists()
    assert {"export", "gpu", "onnx", "serve"} <= set(found.get_all("Provides-Extra"))
    assert "tensorflow==2.21.*" in found.get_all("Requires-Dist")


def runner(site, folder):
    """Returns a function that runs a console command with flags in a folder without the checkout."""
    def run(command, *flags):
        return subprocess.run([sys.executable, site / "bin" / command, *flags], cwd=folder,
                              capture_output=True, encoding="utf-8",
                              env={**os.environ, "PYTHONPATH": str(site)})
    return run


@pytest.mark.slow(reason="starts fresh interpreters")
def test_published_commands_run_without_the_checkout(site, tmp_path):
    run = runner(site, tmp_path)
    done = run("bert-create-pretraining-data", f"--input_file={site}/bertlib/samples/pretraining/dev.txt",
               f"--vocab_file={site}/bertlib/samples/pretraining/vocab.txt", "--output_file=out.tfrecord",
               "--dupe_factor=1")
    assert done.returncode == 0 and (tmp_path / "out.tfrecord").stat().st_size > 10000, done.stderr
    # The command finds the installed sample.
    done = run("bert-run-pretraining", "--num_train_steps=1", "--num_warmup_steps=0",
               "--eval_each_checkpoint=false")
    assert done.returncode == 0 and (tmp_path / "output" / "pretraining"
                                     / "eval_results.txt").exists(), done.stderr


@pytest.mark.slow(reason="starts fresh interpreters, and replicas")
def test_commands_of_our_own_run_without_the_checkout(site, tmp_path):
    run = runner(site, tmp_path)
    done = run("bert-export", "--model_dir=nothing")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(
        "bert-export: error: --model_dir=nothing")
    (tmp_path / "train.txt").write_text("It O\nsaw O\nRome B-LOC\n\n" * 8, encoding="utf-8")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "it", "saw", "rome"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (tmp_path / "config.json").write_text(json.dumps({**tiny.CONFIG, "vocab_size": len(tokens)}))
    # The launcher starts the same console command for each replica, by its path.
    done = run("bert-run-ner", "--train_file=train.txt", "--vocab_file=vocab.txt", "--do_train=true",
               "--bert_config_file=config.json", "--max_seq_length=16", "--train_batch_size=8",
               "--num_train_epochs=2", "--num_replicas=2", "--output_dir=output")
    assert done.returncode == 0 and (tmp_path / "output" / "checkpoint").exists(), done.stderr[-3000:]
    assert "replica 0 of 2" in done.stderr
    code = """from bertlib import api
result = api.train([("it saw", "a"), ("rome", "b")] * 4, "texts", dev=[("rome", "b")], vocab_file="vocab.txt",
                   bert_config_file="config.json", max_seq_length=16, train_batch_size=4, num_train_epochs=1)
print(len(result.predictions))"""
    in_python = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
                               encoding="utf-8", env={**os.environ, "PYTHONPATH": str(site)})
    assert in_python.stdout.splitlines()[-1:] == ["1"], in_python.stderr[-3000:]
