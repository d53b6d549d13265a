"""Reads the conditions and `except` clauses around the lines of a program.

Some problems do not stop the program. The checker uses these conditions and clauses to find such problems,
and does not report them:
- a problem on a line that runs only with a different version of Python than the version of the checker,
- a missing name, if the program tests whether the name exists, or tests the version of its package,
- an error that the program catches,
- a name of TensorFlow on a line that runs only on TPUs.
"""

import ast
import platform
import re
import sys

# A condition is evaluated only if it contains no other names and attributes. They are enough for conditions
# on the Python version.
_NAMES = {"sys", "platform", "builtins.int", "builtins.str", "builtins.float", "builtins.tuple"}
_ATTRIBUTES = "version version_info major minor hexversion python_version startswith"
_VERSION_3 = re.compile(r"_?(?:is_?)?(?:py|python)_?([23])", re.IGNORECASE)


def truth(test, scope, without_tpus=False):
    """Returns whether a condition is true for the Python that runs the checker. Returns None if the condition
    depends on more than the version of Python.

    Args:
      test: the condition.
      scope: scopes.Scope.
      without_tpus: whether to assume that the program runs without TPUs.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        operand = truth(test.operand, scope, without_tpus)
        return None if operand is None else not operand
    if isinstance(test, ast.BoolOp):
        values = [truth(value, scope, without_tpus) for value in test.values]
        # `decides` is the value that is enough to know the result: one true value makes an `or` true, and one
        # false value makes an `and` false.
        decides = isinstance(test.op, ast.Or)
        if decides in values:
            return decides
        return None if None in values else not decides
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if without_tpus and (value := _value_without_tpus(test)) is not None:
        return value
    if isinstance(test, (ast.Name, ast.Attribute)):
        name = test.id if isinstance(test, ast.Name) else test.attr
        if match := _VERSION_3.fullmatch(name):
            return match[1] == "3"
        if name == "TYPE_CHECKING":
            return False
        test = scope.value(test)
    return _version_test(test, scope)


def _value_without_tpus(test):
    """Returns the value that a name such as `use_tpu`, or its comparison with None, has without TPUs. Returns
    None for any other condition."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and _value_without_tpus(test.left) is False:
        is_none = getattr(test.comparators[0], "value", "") is None
        return isinstance(test.ops[0], (ast.Is, ast.Eq)) if is_none else None
    name = test.slice if isinstance(test, ast.Subscript) else test  # as in params["use_tpu"]
    name = getattr(name, "id", getattr(name, "attr", getattr(name, "value", "")))
    return False if isinstance(name, str) and "tpu" in name.lower().split("_") else None


def _version_test(test, scope):
    if ast.unparse(test) in ("str is bytes", "bytes is str", "str == bytes", "bytes == str"):
        return False
    names = {scope.resolve(node)[0] for node in ast.walk(test) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    if not names & {"sys", "platform"} or not names <= _NAMES or not attributes <= set(_ATTRIBUTES.split()):
        return None
    try:
        # The checks above accept only expressions about the version of Python, so eval is safe.
        code = compile(ast.Expression(test), "condition", "eval")
        return bool(eval(code, {"sys": sys, "platform": platform}))
    except Exception:
        return None


def tested_names(test):
    """Returns the names that a condition tests with hasattr or getattr, and the packages whose version the
    condition reads.

    The checker does not report a finding whose text contains one of the returned strings. The string for a
    package ends with a dot, such as "np.". So it matches the findings about names of the package, such as
    "np.bool".
    """
    names = set()
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("hasattr", "getattr"):
            names |= {argument.value for argument in node.args[1:2] if isinstance(argument, ast.Constant)
                      and isinstance(argument.value, str)}
        elif isinstance(node, ast.Attribute) and node.attr in ("__version__", "VERSION"):
            names |= {f"{ast.unparse(node.value)}.", "tensorflow"}
    return frozenset(names)


def exceptions(caught):
    """Returns the names of the exceptions that an `except` catches, or {None} if it catches all
    exceptions."""
    if caught is None:
        return {None}
    return {getattr(node, "attr", getattr(node, "id", "?"))
            for node in (caught.elts if isinstance(caught, ast.Tuple) else [caught])}
