"""Defines rules for expressions that Python 3 can parse, but that fail or give unexpected results.

The expressions worked with the older versions of Python and of the packages for which the checked program was
written.
"""

import ast
import contextlib
import operator
import re
import sys

import numpy as np

import tf1
from tf1._check import rules
from tf1._check.rules import NUMPY, PACKAGE, PYTHON2, PYTHON3, TENSORFLOW, shortened

_VIEWS = {"keys", "values", "items"}
_ITERATORS = ("builtins.map", "builtins.filter", "builtins.zip")
_RANGES = ("builtins.range", "builtins.xrange")
_LIST_METHODS = {"append", "extend", "insert", "pop", "remove", "reverse", "sort"}
_ARRAYS = """
    numpy.array numpy.asarray numpy.column_stack numpy.concatenate numpy.dstack numpy.hstack numpy.stack
    numpy.vstack tf.constant tf.convert_to_tensor
"""


def written(node):
    """Returns the code of a node on one line, shortened so that it fits into a message."""
    return shortened(ast.unparse(node))


def _called(scope, node):
    """Returns the dotted name of the function that an expression calls. Returns None if the expression is not
    a call."""
    node = scope.value(node)
    return scope.resolve(node.func)[0] if isinstance(node, ast.Call) else None


def _no_list(scope, node, *, ranges=False, views=True):
    """Returns a description, such as "zip(…)", of a value that is a list only in Python 2.

    Args:
      scope: scopes.Scope.
      node: the expression.
      ranges: whether range(…) counts as such a value.
      views: whether the result of a dict method, such as .keys(), counts as such a value.

    Returns:
      the description, or None if the value is a list in Python 3 or its type is not known.
    """
    node = scope.value(node)
    name, method = _called(scope, node), getattr(getattr(node, "func", None), "attr", "")
    if name in _ITERATORS or ranges and name in _RANGES:
        return f"{name.removeprefix('builtins.')}(…)"
    is_view = views and name is None and method in _VIEWS and method not in scope.module.methods
    return f".{method}()" if is_view and not node.args + node.keywords else None


class Call:
    """A call in the program.

    Attributes:
      node: the ast.Call.
      args: list of the positional arguments.
      first: the first of them, or None.
      name: dotted name of the called function; "" if it is not known.
      receiver, method: the object and the name of the method in a method call; otherwise None and "".
    """

    def __init__(self, node, scope):
        function = node.func if isinstance(node.func, ast.Attribute) else None
        self.node, self.args, self.first = node, node.args, next(iter(node.args), None)
        self.name = scope.resolve(node.func)[0] or ""
        self.receiver, self.method = getattr(function, "value", None), getattr(function, "attr", "")

    def keyword(self, name):
        """Returns the value of a keyword argument, or None."""
        return next((keyword.value for keyword in self.node.keywords if keyword.arg == name), None)


def _is_text(node, part=""):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and part in node.value


def wrong(node, kind, problem, instead, note=False):
    """Returns the tuple that a rule yields.

    Args:
      node: the node, or the Call; its line is the line of the finding.
      kind: kind of the finding, such as PYTHON2.
      problem: description of what is wrong with the code of the node.
      instead: the code to write instead.
      note: True if the code still runs, so that the finding is only a hint for the user.

    Returns:
      (node, kind, text of the finding, instead, note).
    """
    node = getattr(node, "node", node)
    return node, kind, f"`{written(node)}`: {problem}", instead, note


# --- Python 2 --------------------------------------------------------------------------------------------
# Each rule yields tuples (node, kind, text of the finding, instead, note); see `wrong`. A rule can leave out
# `note`.


def old_methods(call, scope):
    module = scope.module
    if call.receiver is None or call.method in module.methods or call.node.keywords or (
            rules.WITH_OLD_METHODS & module.names.keys()):
        return
    kind, instead, owner = PYTHON2, "", written(call.receiver)
    if call.method in rules.METHODS and not call.args and not call.name:
        kind, new = rules.METHODS[call.method]
        if call.method != "tostring" or not hasattr(np.ndarray, "tostring"):
            instead = f"{owner}.{new}"
    elif call.method == "has_key" and len(call.args) == 1:
        instead = f"{written(call.first)} in {owner}"
    elif call.method == "next" and not call.args and _called(scope, call.receiver) in (
            "builtins.iter", "builtins.open", "csv.reader", *_ITERATORS):
        instead = f"next({owner})"
    if instead:
        yield call.node, kind, f"`.{call.method}()` is gone", f"`{instead}`"


def lists_no_more(node, scope):
    """Reports code that uses a value as a list, although the value is a list only in Python 2. Such code is a
    subscript, such as `d.keys()[0]`, or a sum, such as `d.keys() + [1]`."""
    if isinstance(node, ast.Subscript):
        what = _no_list(scope, node.value)
        if what and isinstance(node.ctx, ast.Load) and not _is_text(node.slice):
            yield wrong(node, PYTHON2, f"{what} is not a list",
                        f"`list({written(node.value)})[{written(node.slice)}]`")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_no_list(scope, side, ranges=True) for side in (node.left, node.right)]
        if any(sides):
            terms = [f"list({written(side)})" if what else written(side)
                     for side, what in zip((node.left, node.right), sides)]
            yield wrong(node, PYTHON2, f"{sides[0] or sides[1]} is not a list", f"`{' + '.join(terms)}`")


def lists_in_calls(call, scope):
    if call.method in _LIST_METHODS and (what := _no_list(scope, call.receiver, ranges=True)):
        instead = f"sorted({written(call.receiver)})" if call.method == "sort" else f"list({what})"
        yield wrong(call, PYTHON2, f"{what} is not a list",
                    f"`{instead}`" + " where it is made" * (call.method != "sort"))
    elif call.name in ("builtins.len", "random.shuffle", *_ARRAYS.split()) and call.first and (
            what := _no_list(scope, call.first, ranges=call.name == "random.shuffle",
                                  views=call.name != "builtins.len")):
        yield wrong(call, PYTHON2, f"{what} is not a list", f"`{written(call.node.func)}(list("
                    f"{written(call.first)}){', …' * (len(call.args) > 1)})`")


def divisions(node, scope):
    """Reports a division with `/` in a place that accepts only integers. In Python 3, its result is a
    float."""
    if isinstance(node, Call):
        if node.name in _RANGES:
            yield from _division(node.args, "in range")
    elif isinstance(node.slice, ast.Slice) and getattr(node.value, "attr", None) not in ("loc", "ix"):
        yield from _division([node.slice.lower, node.slice.upper, node.slice.step], "in a slice")


def _division(terms, where):
    for node in terms:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            floor = ast.BinOp(node.left, ast.FloorDiv(), node.right)
            yield node, PYTHON2, f"`{written(node)}` {where}: the result is a float", f"`{written(floor)}`"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            yield from _division([node.left, node.right], where)


def prints(node, scope):
    """Reports print statements that Python 3 parses as another expression, such as `print >>f, 1`."""
    if isinstance(node, ast.Expr):
        first, *rest = getattr(node.value, "elts", None) or [node.value]
        if isinstance(first, ast.BinOp) and isinstance(first.op, ast.RShift) and (
                scope.resolve(first.left)[0] == "builtins.print"):
            parts = [*map(written, rest), f"file={written(first.right)}"]
            yield wrong(node, PYTHON2, "print is a function", f"`print({', '.join(parts)})`")
    elif isinstance(node, (ast.BinOp, ast.Attribute)):
        call = node.left if isinstance(node, ast.BinOp) else node.value
        if isinstance(call, ast.Call) and _called(scope, call) == "builtins.print" and len(call.args) == 1:
            rest = ast.unparse(node).removeprefix(ast.unparse(call))
            yield wrong(node, PYTHON2, "print returns None",
                        f"`print({shortened(ast.unparse(call.args[0]) + rest)})`")


def orders(call, scope):
    """Reports calls of sort and sorted with a comparison function (cmp)."""
    if call.name == "builtins.sorted" or call.method == "sort" and not call.name:
        order, more = call.keyword("cmp"), call.args[call.name == "builtins.sorted":]
        if order is None and more and isinstance(more[0], ast.Lambda) and len(more[0].args.args) == 2:
            order = more[0]
        if order is not None:
            yield wrong(call, PYTHON2, "Python 3 has no cmp argument",
                        f"`key=functools.cmp_to_key({written(order)})`")


def texts(call, scope):
    """Reports calls that only the strings of Python 2 support, such as "text".decode("utf-8")."""
    if call.method == "decode" and (
            _is_text(call.receiver) or _called(scope, call.receiver) == "builtins.str"):
        yield wrong(call, PYTHON2, "a str has no decode", f"`{written(call.receiver)}`")
    elif _called(scope, call.node.func) == "codecs.getwriter" and (
            scope.resolve(call.first)[0] in ("sys.stdout", "sys.stderr")):
        yield wrong(call, PYTHON2, f"{written(call.first)} takes text",
                    f"`{written(call.node.func)}({written(call.first)}.buffer)`")


def files(call, scope):
    """Reports a file mode that Python 3 refuses."""
    mode = call.keyword("mode") or (call.args[1] if len(call.args) > 1 else None)
    if call.name in ("builtins.open", "io.open") and _is_text(mode, "U") and sys.version_info >= (3, 11):
        yield wrong(call, PYTHON3, 'Python 3 has no mode "U"', f'`"{mode.value.replace("U", "") or "r"}"`')


def generators(function, scope):
    """Reports `raise StopIteration` in a generator."""
    inside = list(ast.walk(function))
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in inside):
        for node in inside:
            if isinstance(node, ast.Raise) and node.exc and scope.resolve(
                    getattr(node.exc, "func", node.exc))[0] == "builtins.StopIteration":
                yield node, PYTHON3, f"`{written(node)}` in a generator is an error since 3.7", "`return`"


# --- Packages --------------------------------------------------------------------------------------------


def arrays(call, scope):
    """Reports calls of NumPy functions that can fail with newer versions of NumPy."""
    if call.name == "numpy.fromstring" and len(call.args) < 4 and call.keyword("sep") is None:
        yield wrong(call, NUMPY, "this function no longer reads bytes",
                    f"`{written(call.node).replace('fromstring', 'frombuffer')}`")
    elif call.name == "numpy.array" and getattr(call.keyword("copy"), "value", None) is False:
        instead = written(call.node.func).replace("array", "asarray")
        yield wrong(call, NUMPY, "this call fails if a copy is needed",
                    f"`{instead}({written(call.first) if call.first else '…'})`", True)
    elif call.method == "item" and _called(scope, call.receiver) == "numpy.load":
        load = Call(scope.value(call.receiver), scope)
        if load.keyword("allow_pickle") is None:
            yield (call.node, NUMPY, f"`{written(load.node)}`: arrays of objects are not loaded",
                   "`allow_pickle=True` as well")


def others(call, scope):
    """Reports calls of json with an argument that was removed, and calls of yaml without an argument that is
    now required."""
    if call.name in ("json.load", "json.loads", "json.dump", "json.dumps") and call.keyword("encoding"):
        yield wrong(call, PYTHON3, "json functions have no argument encoding", "the call without `encoding=`")
    elif call.name == "yaml.load" and len(call.args) == 1 and not call.node.keywords:
        yield wrong(call, PACKAGE, "this function needs a Loader", f"`yaml.safe_load({written(call.first)})`")


def refused(call, scope):
    """Reports calls that tf1 refuses, such as `TPUClusterResolver()`. Programs can import these names, but
    cannot call them."""
    last, cluster = call.name.split(".")[-1] or call.method, call.keyword("cluster")
    if last == "TPUEstimator" and getattr(call.keyword("use_tpu"), "value", None) is True:
        yield call.node, TENSORFLOW, "`use_tpu=True`: TPUs are not supported", "`use_tpu=False`"
    elif call.name.startswith("tf.") and ".FLAGS." not in call.name:  # a look-up would parse the flags
        if last == "RunConfig" and isinstance(cluster, ast.Call):
            yield (call.node, TENSORFLOW, f"`cluster={written(cluster)}`: TPUs are not supported",
                   "`cluster=None`")
        with contextlib.suppress(AttributeError):
            called = operator.attrgetter(call.name.removeprefix("tf."))(tf1)
            yield wrong(call, TENSORFLOW, called.refusal.rstrip("."), "")


def variable_ops(constant, scope):
    """Reports strings that name the type of a variable's op, such as "VariableV2". Programs contain such a
    string if they search a graph for variables, or if they freeze a graph themselves."""
    if constant.value in ("VarHandleOp", "VariableV2"):
        yield (constant, TENSORFLOW, f"`{constant.value}`: the ops of variables are not those of TensorFlow "
                                     f"1",
               "`python -m tf1 --reference_variables` in the command line", True)


def names_in_graphs(call, scope):
    """Reports look-ups of ops or tensors whose names were chosen by TensorFlow and not by the program."""
    literal = scope.value(call.first)
    if call.method not in ("get_tensor_by_name", "get_operation_by_name") or not _is_text(literal):
        return
    last = re.sub(r":\d+$", "", literal.value).split("/")[-1]
    if last in ("read", "Assign"):
        yield wrong(call, TENSORFLOW, "the ops of variables are not those of TensorFlow 1",
                    "`python -m tf1 --reference_variables` in the command line", True)
    elif re.fullmatch(r"[A-Z][A-Za-z0-9]*(_\d+)?", last):
        yield wrong(call, TENSORFLOW, "TensorFlow chose this name, and another version of TensorFlow may "
                                      "choose a different name",
                    '`tf.identity(x, name="…")` where the tensor is made, and look up that name here', True)


RULES = {Call: (old_methods, lists_in_calls, divisions, orders, texts, files, arrays, others, refused,
                names_in_graphs),
         ast.Subscript: (lists_no_more, divisions), ast.BinOp: (lists_no_more, prints),
         ast.Attribute: (prints,), ast.Expr: (prints,), ast.Constant: (variable_ops,),
         ast.FunctionDef: (generators,)}


def problems(node, scope):
    """Yields the tuples of all rules for a node."""
    subject = Call(node, scope) if isinstance(node, ast.Call) else node
    for rule in RULES.get(type(subject), ()):
        yield from rule(subject, scope)
