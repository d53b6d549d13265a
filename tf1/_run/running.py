"""`python -m tf1 SCRIPT`: runs a script of TensorFlow 1.x without changes to its files."""

import ast
import builtins
import os
import pathlib
import re
import runpy
import sys
import types

from tf1._run import rewriting

# A traceback does not show the lines of the files in `_HIDDEN`, because they do not belong to the script.
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HIDDEN = (*(os.path.join(_FOLDER, name) for name in ("__main__.py", "_replicas/launching.py",
                                                      "_run/running.py", "_run/rewriting.py")),
           ast.__file__, runpy.__file__, "<frozen ")


def run_script(path, arguments, packages=()):
    """Runs a file in the way Python does, but changes the imports of TensorFlow in this file and in the other
    files of the fork.

    Args:
      path: the file.
      arguments: arguments of the script, which become its `sys.argv[1:]`.
      packages: names of installed packages whose imports are also changed.

    Raises:
      OSError: the file cannot be read.
    """
    data = pathlib.Path(path).read_bytes()
    _prepare([path, *arguments], packages)
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    # This module takes the place of the module `__main__` of `python -m tf1`.
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=builtins)
    exec(rewriting.compiled(data, path), vars(module))


def run_module(name, arguments, packages=()):
    """Runs a module or package like `python -m`; see `run_script`.

    Raises:
      ImportError: the module does not exist.
    """
    _prepare([name, *arguments], packages)
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _prepare(argv, packages):
    sys.argv[:] = argv
    sys.meta_path.insert(0, rewriting.Finder(packages))
    sys.excepthook = show_error


def show_error(kind, error, traceback):
    """Prints an error with its traceback, in the way Python does. The traceback leaves out the modules of tf1
    that run and import the script. Adds advice if the script looked for a checkpoint in the directory of a
    Hugging Face model. Repeats the reason of TensorFlow's error, which is between two stack traces."""
    sys.__excepthook__(kind, error.with_traceback(_without_ours(traceback)), None)
    if reason := re.search(r"\n(?:  \(0\) \w+: +)?(.+)\n\t +\[\[\{\{node (.+?)\}\}\]\]", str(error)):
        print(f"The op {reason[2]} failed: {reason[1]}", file=sys.stderr)
    if advice := _advice_on_checkpoint(str(error)):
        print(advice, file=sys.stderr)


def _advice_on_checkpoint(message):
    """Returns advice if TensorFlow found no checkpoint in a directory that contains weights of Hugging Face.
    Otherwise returns None.

    Args:
      message: the text of the error.
    """
    found = re.match("Couldn't find 'checkpoint' file or checkpoints in given directory (.+)", message)
    if found is None or not os.path.exists(os.path.join(found[1], "model.safetensors")):
        return None
    return (f"{found[1]} contains model.safetensors, a file of Hugging Face. TensorFlow reads only its own "
            f"checkpoints. Convert the model with `python convert_checkpoint.py --input={found[1]} "
            "--output=DIRECTORY`, and pass DIRECTORY/bert_model.ckpt to the script. If the script has its "
            "own modeling.py, also pass --published_config=true to the command.")


def _without_ours(traceback):
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    shown = None
    for frame in reversed(frames):
        if not frame.tb_frame.f_code.co_filename.startswith(_HIDDEN):
            shown = types.TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown
