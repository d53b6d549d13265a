"""python -m tf1 --names [--ours]: all names of a program, or those that TensorFlow lacks or has otherwise."""

import argparse
import signal
import sys
import types

import tf1
from tf1 import _check
from tf1._namespace import Namespace


def names(module, name, seen=()):
    """Yields (full name, whether it is ours) of the public names of a module and its modules."""
    for key in sorted(key for key in dir(module) if not key.startswith("_")):
        value = getattr(module, key, None)
        if isinstance(value, types.ModuleType):
            ours = isinstance(value, Namespace)
            # TensorFlow's modules show a few of Python's too.
            if ours or (value not in seen and "api" in value.__name__ and key != "compat"):
                yield from names(value, f"{name}.{key}", (*seen, value))
        elif value is not None:
            yield f"{name}.{key}", isinstance(module, Namespace) and key in module._own


def main():
    """Prints the names."""
    parser = argparse.ArgumentParser(prog="python -m tf1", description="TensorFlow 1.x for programs "
                                     "of its time.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--names", action="store_true", help="list every name that a program gets from `tf`")
    action.add_argument("--check", metavar="PATH", help="read a program's files without running them, and "
                        "list the lines that will not run and what to write instead")
    parser.add_argument("--ours", action="store_true",
                        help="of these only what TensorFlow itself no longer has, or has otherwise")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head`
    if options.check:
        try:
            sys.exit(_check.check(options.check))
        except FileNotFoundError as error:
            parser.error(str(error))
    for name, ours in names(tf1, "tf"):
        if ours or not options.ours:
            print(f"{name}  (tf1)" if ours else name)


if __name__ == "__main__":
    main()
