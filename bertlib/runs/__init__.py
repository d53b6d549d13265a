"""Describes a run: its flags and settings, the checks before it, and its output directory with the record.

- Which flags are there, and which values do they have? `entries`, `registry`, `settings`, `input_paths`,
  `checks`
- Which model does a run use? `model_config`, `tokenizer_flags`, `tokenizer_files`
- What is in an output directory? `output_directory`, `file_names`, `model_files`, `best_weights`,
  `learning_curve`. `trained_model` reads a trained model.
- What is in run.json? `record_content` creates it, `run_record` writes it, and `record_format` reads it.
  `record_comparison` decides what a run may do. `recorded_flags` takes flags from it. `environment`
  describes the machine.

The modules of this package load no TensorFlow, and do not read the command line. `bertlib.commands` reads the
command line and sets environment variables.

This package and `bertlib.tasks` import `modeling`, `optimization` and `tokenization` of this project. Other
projects have modules with the same names. If Python finds such a module of another project first, the import
of these packages raises an error.
"""

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _check_module_files():
    """Raises an ImportError if `import modeling`, `import optimization` or `import tokenization` would load a
    module of another project."""
    for name in ("modeling", "optimization", "tokenization"):
        ours = os.path.join(_FOLDER, f"{name}.py")
        other = (getattr(sys.modules[name], "__file__", None) if name in sys.modules
                 else _find_module_file(name))
        if not (other and os.path.exists(other) and os.path.exists(ours) and os.path.samefile(other, ours)):
            raise ImportError(f"bertlib needs {ours}, but `import {name}` finds {other or 'nothing'}. " + (
                f"To use {ours} instead of your file, rename {other}, or put the folder of {ours} first on "
                "sys.path. To use your file, copy the published script, such as run_classifier.py, beside "
                f"{other}." if other else
                f"Put the folder of {ours} first on sys.path."))


def _find_module_file(name):
    """Returns the path of the file that the import of a module would load; None if there is no such file.
    Does not load the file."""
    spec = importlib.util.find_spec(name)
    return None if spec is None else spec.origin


_check_module_files()
