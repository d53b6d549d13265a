"""Who may import whom: the table of the modules, and FLAGS only in scripts."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = {path.stem: path for path in ROOT.glob("*.py")}

# module: the modules of this repository that it imports. A module that needs another import needs another table.
LIBRARY = {
    "tokenization": [],
    "randomness": [],
    "checkpoints": [],
    "recompute_grad": ["randomness"],
    "memory_planner": [],
    "native_kernels": [],
    "kernels": ["native_kernels", "randomness", "recompute_grad"],
    "packing": ["recompute_grad"],
    "modeling": ["kernels", "packing", "randomness", "recompute_grad"],
    "optimization": ["kernels"],
    "estimator": ["checkpoints", "input_position", "randomness", "session_hooks"],
    "session_hooks": ["checkpoints"],
    "input_position": [],
    "quiet_tensorflow": [],
    "tf1": ["estimator", "quiet_tensorflow", "randomness", "tf1_contrib", "tf1_estimator"],
    "tf1_contrib": [],
    "tf1_estimator": ["estimator", "randomness"],
    "example_encoding": [],
    "workers": [],
    "input_pipeline": ["example_encoding", "randomness"],
    "classifier_data": ["example_encoding", "input_pipeline", "tokenization", "workers"],
    "squad_predictions": ["input_pipeline", "tokenization"],
    "squad_report": ["input_pipeline", "squad_predictions"],
    "feature_extraction": ["classifier_data", "input_pipeline"],
    "learning_curve": ["input_pipeline"],
    "corpus": [],
    "pretraining_data": ["corpus", "example_encoding", "input_pipeline", "tokenization"],
    "pretraining_stream": ["corpus", "input_pipeline", "pretraining_data", "tokenization", "workers"],
    "squad_data": ["example_encoding", "input_pipeline", "tokenization", "workers"],
}
SCRIPTS = ["build_vocab", "convert_checkpoint", "create_pretraining_data", "extract_features", "plan_memory", "run_classifier",
           "run_pretraining", "run_squad"]


def imports(path):
    """The modules of this repository that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name} has a relative import"
            found.add(node.module.split(".")[0])
    return found & set(FILES)


def mentions_flags(path):
    """Whether a file's code uses the command line's flags."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name in ("FLAGS", "flags") or any(name.split(".")[-1] in ("FLAGS", "flags") for name in names):
            return True
    return False


def test_every_module_has_its_line_in_the_table():
    assert set(FILES) == {*LIBRARY, *SCRIPTS, "runner"}


@pytest.mark.parametrize("module", LIBRARY)
def test_a_library_module_imports_what_the_table_says(module):
    assert imports(FILES[module]) == set(LIBRARY[module])


def test_runner_imports_library_modules_only():
    assert imports(FILES["runner"]) <= set(LIBRARY)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_imports_no_other_script(script):
    assert imports(FILES[script]) <= {*LIBRARY, "runner"}


@pytest.mark.parametrize("module", LIBRARY)
def test_library_modules_see_no_flags(module):
    assert not mentions_flags(FILES[module])


def test_scripts_and_runner_use_flags():
    # Or the test above would look for the wrong thing.
    assert all(mentions_flags(FILES[module]) for module in [*SCRIPTS, "runner"])
