"""This project has every name, signature and flag of the published code (data/interface.json).

The published parameters come first, in their published order and with their defaults. Additional parameters
come after them, and have defaults.
"""

import ast
import functools
import importlib
import inspect
import json

from absl import flags
from helpers import DATA
import pytest
import tensorflow.compat.v1 as tf

INTERFACE = json.loads((DATA / "interface.json").read_text(encoding="utf-8"))
SCRIPTS = ["create_pretraining_data", "extract_features", "run_classifier", "run_classifier_with_tfhub",
           "run_pretraining", "run_squad"]
MODULES = ["tokenization", "modeling", "optimization", *SCRIPTS]
FUNCTIONS = [(module, name) for module in MODULES for name in INTERFACE[module]["functions"]]
CLASSES = [(module, name) for module in MODULES for name in INTERFACE[module].get("classes", {})]
METHODS = [(module, name, method) for module, name in CLASSES
           for method in INTERFACE[module]["classes"][name]["methods"]]


def load(module):
    return importlib.import_module(module)


def default_of(source, module):
    """Returns the value of a default in the published source: a literal, or a name of the module."""
    try:
        return ast.literal_eval(source)
    except ValueError:
        return getattr(module, source)


def assert_signature(function, published, module):
    parameters = list(inspect.signature(function).parameters.values())
    assert [parameter.name for parameter in parameters[:len(published)]] == [
        text.split("=")[0] for text in published]
    for parameter, text in zip(parameters, published):
        _, has_default, source = text.partition("=")
        assert parameter.kind == parameter.POSITIONAL_OR_KEYWORD
        if has_default:
            assert parameter.default == default_of(source, module), parameter
        else:
            assert parameter.default is parameter.empty, parameter
    for parameter in parameters[len(published):]:
        optional = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        assert optional or parameter.default is not parameter.empty, f"new and without a default: {parameter}"


@pytest.mark.parametrize("module_name, name", FUNCTIONS)
def test_function(module_name, name):
    module = load(module_name)
    assert_signature(getattr(module, name), INTERFACE[module_name]["functions"][name], module)


@pytest.mark.parametrize("module_name, name", CLASSES)
def test_class_has_its_published_bases(module_name, name):
    module = load(module_name)
    published = getattr(module, name)
    for base in INTERFACE[module_name]["classes"][name]["bases"]:
        known = {"object": object, "tf.train.Optimizer": tf.train.Optimizer}
        assert issubclass(published, known.get(base) or getattr(module, base))


@pytest.mark.parametrize("module_name, name, method", METHODS)
def test_method(module_name, name, method):
    module = load(module_name)
    found = inspect.getattr_static(getattr(module, name), method)
    published = INTERFACE[module_name]["classes"][name]["methods"][method]
    assert isinstance(found, classmethod) == (published[:1] == ["cls"])
    assert_signature(getattr(found, "__func__", found), published, module)


def test_masked_lm_instance_is_the_published_named_tuple():
    instance = load("create_pretraining_data").MaskedLmInstance(index=3, label="house")
    assert tuple(instance) == (3, "house") and instance._fields == ("index", "label")


@functools.lru_cache
def defined_flags(script):
    """Returns the flags of a command, {name: flag}."""
    defined = flags.FlagValues()
    for entry in load(script).ENTRIES:
        entry.define_in(defined)
    return {name: defined[name] for name in defined}


@pytest.mark.parametrize("script, name",
                         [(script, name) for script in SCRIPTS for name in INTERFACE[script]["flags"]])
def test_flag_has_its_published_type_and_default(script, name):
    # "required" is not compared: flags that the published code requires have a default here, or the script
    # checks them after it has read the other flags.
    published = INTERFACE[script]["flags"][name]
    flag = defined_flags(script)[name]
    assert flag.flag_type() == {"integer": "int"}.get(published["type"], published["type"])
    assert flag.default == published["default"]
    assert type(flag.default) is type(published["default"])
