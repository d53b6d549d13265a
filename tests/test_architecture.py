"""The packages of docs/development/packages.md: allowed imports, side effects of imports, clashes of names.

A package is a folder of modules, or a module in the root. In a clash, a module of a fork and a module of this
project have the same name.
"""

import ast
import builtins
import collections
import functools
import graphlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tokenize

import pytest

from bertlib.runs import registry

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = {"modeling", "optimization", "tokenization"}
PUBLISHED_COMMANDS = {"create_pretraining_data", "extract_features", "run_classifier",
                      "run_classifier_with_tfhub", "run_pretraining", "run_squad"}
OUR_COMMANDS = {"build_vocab", "compare_results", "convert_checkpoint", "download", "export",
                "glue_submission", "plan_memory", "predict", "reproduce", "run_ner", "run_swag",
                "serve", "sweep"}
COMMAND_PACKAGES = {"bertlib.commands"}

# The packages that other people's scripts may import, with or without tf1.
CORE = {"bertlib.system", "bertlib.graph", "bertlib.data", "bertlib.checkpoints", "bertlib.estimator"}
# The folders of tf1. They may import the core, and each other.
TF1 = {"tf1._check", "tf1._contrib", "tf1._names", "tf1._replicas", "tf1._run"}


def read_layers():
    """Returns the packages of each layer, the lowest layer first, from the table of packages.md."""
    text = (ROOT / "docs" / "development" / "packages.md").read_text(encoding="utf-8")
    found = collections.defaultdict(set)
    for number, packages in re.findall(r"^\| (\d) \| (.*?) \|", text, re.MULTILINE):
        found[number].update(re.findall(r"`([\w.]+)`", packages))
    return [found[number] for number in sorted(found)]


LAYERS = read_layers()  # a package may import the packages of lower layers


def packages_below(layer):
    return set().union(*LAYERS[:layer])


# {package: other packages that it may import}.
TABLE = {
    **{package: packages_below(number) for number, layer in enumerate(LAYERS) for package in layer},
    **dict.fromkeys(PUBLISHED_COMMANDS, packages_below(6) | COMMAND_PACKAGES),
    **dict.fromkeys(OUR_COMMANDS, COMMAND_PACKAGES),
    # These packages are imported by forks, whose own modules have the names of our model.
    "tf1": CORE | TF1,
    **{package: CORE | TF1 - {"tf1._check"} for package in TF1},
    "tf1._replicas": CORE | {"tf1", "tf1._contrib", "tf1._names"},
    # asks `tf1` for its names, and `_run` for what an import gives; writes tables as `_names` does
    "tf1._check": {"tf1", "tf1._names", "tf1._run"},
}
MOST_PACKAGES, MOST_LAYERS, MOST_MODULES = 16, 7, 21  # with __init__
MOST_MODULES_OF = {"bertlib.commands": 24}  # each command has a module
# Modules that need packages of an extra: they are imported only where these packages are installed.
OPTIONAL = {"bertlib.serving.http_app": ["fastapi"], "bertlib.serving.http_server": ["uvicorn"],
            "bertlib.reports.bag_of_words": ["sklearn"]}
# Modules of google-research/bert. If a fork has a module with one of these names, Python finds the fork's
# module.
PUBLISHED = MODEL | PUBLISHED_COMMANDS
NAMES_IN_FORKS = ["checkpoints", "kernels", "estimator", "runner", "workers", "files", "utils"]


def files():
    """Returns {package: its Python files}."""
    found = collections.defaultdict(list)
    for path in sorted([*ROOT.glob("*.py"), *(ROOT / "bertlib").rglob("*.py"),
                        *(ROOT / "tf1").rglob("*.py")]):
        folder = path.parent.relative_to(ROOT)
        found[path.stem if path.parent == ROOT else ".".join(folder.parts)].append(path)
    return dict(found)


FILES = files()


def package_of(module):
    """Returns the package that contains a module, or None if the module is not from this project."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in FILES), None)


@functools.cache
def nodes_of(path):
    """All nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def names_in(path):
    """Returns the names in the code of a file, without those in strings and comments."""
    with open(path, "rb") as file:
        return {token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME}


@functools.cache
def imports(path):
    """Returns the modules that a file imports, at its top or inside a function: {name: line number}."""
    found = {}
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found.update({alias.name: node.lineno for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            found.update({f"{node.module}.{alias.name}": node.lineno for alias in node.names})
    return found


def packages_imported_by(package):
    modules = [module for path in FILES[package] for module in imports(path)]
    return set(map(package_of, modules)) - {package, None}


def test_each_package_is_in_a_layer():
    assert set(FILES) == set().union(*LAYERS)


def test_there_are_few_packages():
    assert len([package for package in FILES if package.startswith("bertlib")]) <= MOST_PACKAGES
    assert len(LAYERS) <= MOST_LAYERS


def test_each_package_is_in_the_list_of_installed_packages():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([\w.]+)"', re.search(r"^packages = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)[1])
    assert sorted(listed) == sorted([  # "bertlib.samples" is the folder samples/
        "bertlib", "bertlib.samples", *(name for name in FILES if name.startswith(("bertlib.", "tf1")))])


@pytest.mark.parametrize("package", sorted(name for name in FILES if name.startswith(("bertlib", "tf1"))))
def test_a_package_has_few_modules(package):
    assert len(FILES[package]) <= MOST_MODULES_OF.get(package, MOST_MODULES)


@pytest.mark.parametrize("package", [package for package in FILES if package.startswith("bertlib.")])
def test_the_docstring_of_a_package_lists_its_modules(package):
    path = ROOT / package.replace(".", "/") / "__init__.py"
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^- .*(?:\n  .*)*", docstring, re.MULTILINE)))
    others = {"templates", "pages", "TF_CONFIG"}  # folders, and a variable of the environment
    modules = {path.stem for path in FILES[package]} - {"__init__"}
    assert {*listed} - others == modules


@pytest.mark.parametrize("package", sorted(FILES))
def test_a_package_imports_what_the_table_says(package):
    assert packages_imported_by(package) <= TABLE[package]


def test_modules_within_a_package_import_in_one_direction():
    arrows = {}
    for paths in FILES.values():
        for path in paths:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            arrows[name] = set(imports(path))
    names = set(arrows)
    for name, imported in arrows.items():
        # In "from package import name", the name is a module, or a name that a module defines.
        arrows[name] = {target for target in names for module in imported
                        if (module == target or module.rpartition(".")[0] == target) and target != name}
        arrows[name] -= {package for package in names if name.startswith(package + ".")}
    graphlib.TopologicalSorter(arrows).prepare()  # raises a CycleError that names the circle


# --- Flags -----------------------------------------------------------------------------------------------


def mentions_flags(path):
    """Returns whether the code of a file uses the flags of the command line."""
    return "FLAGS" in names_in(path) or re.search(r"^ *(from [\w.]+ )?import .*\bflags\b",
                                                  path.read_text(encoding="utf-8"), re.MULTILINE) is not None


# The table of flags defines a flag in any `FlagValues` that a command gives it. tf.app.run of tf1 warns of
# flags that a script does not have.
@pytest.mark.parametrize("package", sorted(set(FILES) - PUBLISHED_COMMANDS - COMMAND_PACKAGES))
def test_only_commands_see_flags(package):
    assert not [path.name for path in FILES[package] if mentions_flags(path)
                and path.name not in ("entries.py", "tensorflow_names.py")]


def test_commands_see_flags():
    # Without this check, `mentions_flags` could always be false, and the test above would prove nothing.
    assert all(mentions_flags(path) for package in PUBLISHED_COMMANDS for path in FILES[package])
    assert any(map(mentions_flags, FILES["bertlib.commands"]))


# --- What an import does ---------------------------------------------------------------------------------

# Prints which global state of the interpreter each import changes, in addition to the loaded modules.
STATE = """
import gc, importlib, json, logging, os, signal, sys, warnings
import tensorflow.compat.v1 as tf
from absl import flags, logging as absl_logging

def state():
    return {
        "environment": dict(os.environ), "flags": sorted(flags.FLAGS),
        "graph mode": not tf.executing_eagerly(), "resource variables": tf.resource_variables_enabled(),
        "verbosity": [tf.logging.get_verbosity(), absl_logging.get_verbosity()],
        "handlers": [len(logging.root.handlers), len(logging.getLogger("absl").handlers)],
        "signals": [str(signal.getsignal(number))
                    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "stand-ins": sorted(name for name in sys.modules if name.startswith("tensorflow.contrib")),
        "default graph": len(tf.get_default_graph().get_operations()), "hook": str(sys.excepthook),
        "filters": len(warnings.filters), "finders": len(sys.meta_path), "collects": gc.isenabled(),
        "modules are collected": gc.get_freeze_count() < 10**5}

for module in sys.argv[1:]:
    before = state()
    importlib.import_module(module)
    after = state()
    print(json.dumps([module, {name: [before[name], after[name]]
                               for name in before if before[name] != after[name]}]))
"""


def modules_of(package):
    for path in FILES[package]:
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def effects(modules):
    """Returns {module: {name of a state that its import changed: [before, after]}}."""
    done = subprocess.run([sys.executable, "-c", STATE, *modules], cwd=ROOT, capture_output=True,
                          encoding="utf-8", check=True)
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.fixture(scope="module")
def effects_of_library():
    packages = sorted(set().union(*LAYERS[:-1], {"bertlib", "bertlib.api"}))
    return effects([module for package in packages for module in modules_of(package)
                    if all(map(importlib.util.find_spec, OPTIONAL.get(module, ())))])


def test_the_import_of_a_library_module_has_no_effects(effects_of_library):
    assert len(effects_of_library) > 25
    assert not {module: found for module, found in effects_of_library.items() if found}


# --- Whose modules are found -----------------------------------------------------------------------------


def run_beside(directory, code, *others):
    """Runs code as a script in a directory whose modules raise an error if they are imported."""
    for name in [*NAMES_IN_FORKS, *others]:
        (directory / f"{name}.py").write_text(f"raise RuntimeError('the fork\\'s own {name} was imported')\n")
    script = directory / "run_my_task.py"
    script.write_text(code)
    return subprocess.run([sys.executable, script.name], cwd=directory, capture_output=True, encoding="utf-8",
                          env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})


@pytest.mark.slow(reason="an interpreter of its own, which loads TensorFlow")
def test_a_forks_own_modules_shadow_nothing_of_ours(tmp_path):
    code = """
import tf1 as tf
import modeling, optimization, tokenization
from tf1.contrib import crf, layers
assert crf is tf.contrib.crf and callable(crf.crf_log_likelihood) and layers is tf.contrib.layers
estimator = tf.estimator.Estimator
config = modeling.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                             intermediate_size=8)
model = modeling.BertModel(config, True, tf.ones([2, 4], tf.int32))
optimization.create_optimizer(tf.reduce_sum(model.get_pooled_output()), 1e-3, 9, 1, False)
print("built")
"""
    done = run_beside(tmp_path, code)
    assert done.returncode == 0 and done.stdout == "built\n", done.stderr


def test_packages_that_forks_import_need_nothing_that_google_research_bert_has():
    found = {module.split(".")[0] for package in [*CORE, "tf1", *TF1]
             for path in FILES[package] for module in imports(path)}
    assert not found & PUBLISHED


@pytest.mark.parametrize("imported", ["bertlib.runs.file_names", "bertlib.tasks.squad.squad_data"])
@pytest.mark.parametrize("module", sorted(MODEL))
def test_another_projects_model_is_refused(module, imported, tmp_path):
    done = run_beside(tmp_path, f"import {imported}\n", module)
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: bertlib needs ")
    assert str(ROOT / f"{module}.py") in message and str(tmp_path / f"{module}.py") in message
    assert "To use your file, copy the published script" in message


def test_no_part_of_tf1_stands_in_the_way_of_a_name_of_tensorflow():
    inner = [path.stem for path in FILES["tf1"]] + [package.removeprefix("tf1.") for package in TF1]
    assert [name for name in inner if not name.startswith("_")] == []


# --- Names in docstrings ---------------------------------------------------------------------------------

# First parts of names that other packages define.
OTHERS = {"tf", "np", "json", "os", "flags", "hub", "hvd", "tensorflow", "horovod", "session", "self"}


def stale_names(texts, names_of_modules, classes):
    """Yields the names in backticks that nothing defines: `module.name` and `ClassName`.

    Args:
      texts: code with docstrings and comments.
      names_of_modules: {module: names that it defines}. Other modules are not checked.
      classes: names of all classes.
    """
    for module, name in re.findall(r"`(\w+)\.(\w+)[\w.]*(?:\([^`]*\))?`", texts):
        if module in names_of_modules and name not in names_of_modules[module]:
            yield f"{module}.{name}"
    for name in re.findall(r"`([A-Z]\w*[a-z]\w*)(?:\([^`]*\))?`", texts):
        if name not in classes:
            yield name


@functools.cache
def names_of_all_modules():
    """Returns ({module: names that it defines}, names of all classes and functions) for `stale_names`."""
    names_of_modules = {}
    for path in (path for paths in FILES.values() for path in paths):
        module = path.parent.name if path.stem == "__init__" else path.stem
        names_of_modules.setdefault(module, {"py"}).update(names_in(path))
        names_of_modules.setdefault(path.parent.name, set()).add(path.stem)
    classes = set(dir(builtins)).union(*names_of_modules.values())
    for other in OTHERS | {"bertlib", "tf1"}:
        names_of_modules.pop(other, None)
    return names_of_modules, classes


def test_docstrings_and_comments_name_what_modules_define():
    names_of_modules, classes = names_of_all_modules()
    stale = {path.name: found for paths in FILES.values() for path in paths
             if (found := sorted(stale_names(path.read_text(encoding="utf-8"), names_of_modules, classes)))}
    assert not stale


# --- Tasks -----------------------------------------------------------------------------------------------

_WITHOUT_TENSORFLOW = """
import importlib, sys
sys.modules.update(tensorflow=None, sklearn=None)
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
# Modules that build graphs or run them, write exports, or make records with TensorFlow's readers.
_WITH_TENSORFLOW = ("_head", "export_onnx", "export_portable", "export_text", "export_tflite",
                    "feature_extraction", "input_pipeline", "pretraining_beam", "tasks.driver",
                    "tasks.estimator_setup", "tasks.export_model", "tasks.head", "tasks.hub_encoder",
                    "tasks.inference", "tasks.loaded_model", "tasks.model_checks", "tasks.starting_weights",
                    "tasks.training_plan", "tasks.serving_warmup")


def test_readers_records_answers_comparisons_and_the_commands_that_answer_load_no_tensorflow():
    names = [name for package in FILES if package.startswith((
        "bertlib.data", "bertlib.runs", "bertlib.reports", "bertlib.serving", "bertlib.tasks"))
        for name in modules_of(package) if not name.endswith(_WITH_TENSORFLOW)]
    names += ["bertlib.estimator.step_config", "bertlib.commands.predict", "bertlib.commands.serve",
              "bertlib.commands.launch", "tokenization"]
    assert {"bertlib.tasks.squad.squad_task", "bertlib.tasks.tagging.tagging_target",
            "bertlib.serving.onnx_model", "bertlib.serving.predictor",
            "bertlib.serving.http_server"} <= set(names)
    subprocess.run([sys.executable, "-c", _WITHOUT_TENSORFLOW, *names], cwd=ROOT, check=True)


def test_only_a_task_and_the_registry_name_a_target():
    """No other module compares the name of a target, of the answers of a task or of a head with a string."""

    names = {*registry.TARGETS, *registry.ANSWERS}
    found = [f"{path.relative_to(ROOT)}:{node.lineno}" for package, paths in FILES.items()
             if not package.startswith(("bertlib.tasks.", "tf1")) for path in paths for node in nodes_of(path)
             if isinstance(node, ast.Compare) for side in (node.left, *node.comparators)
             for part in ast.walk(side) if isinstance(part, ast.Constant) and part.value in names]
    assert not found
