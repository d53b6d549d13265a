"""Provides modules that TensorFlow 2 lacks, for programs of TensorFlow 1.x that import them by their full
names.

After `import tf1`, each file can import these modules, for example with `from
tensorflow.contrib.tpu.python.tpu import tpu_config`. Each module of `tf` is also found below the name `tf1`,
because `rewriting` changes `tensorflow` to `tf1` in imports. An example is `from tf1.nn import rnn_cell`. A
missing name raises an ImportError that says what to use instead.
"""

import importlib
import operator
import sys
import types

import tensorflow.compat.v1 as tf

from tf1._contrib import others
from tf1._contrib.contrib_parts import contrib
from tf1._names import hub, tensorflow_names
from tf1._names.namespace import ModuleFinder, Namespace, own_names, rows
from tf1._replicas import horovod
from tf1._run import bert_package, keras_modules, ours

# Folders that TensorFlow 1.15 had below `tf.contrib`, and the files in each folder. Old programs
# import these files as modules. In this project, such a module has all names of its part of `tf.contrib`. For
# example, `tensorflow.contrib.crf.python.ops.crf` has all names of `tf.contrib.crf`.
# `_ESTIMATOR_FILES` lists the files of the Estimator, which programs also import as modules.
_CONTRIB_FILES = """
    cluster_resolver.python.training tpu_cluster_resolver cluster_resolver
    crf.python.ops                   crf
    data.python.ops                  batching grouping interleave_ops iterator_ops readers shuffle_ops
    data.python.ops                  unique
    distribute.python                collective_all_reduce_strategy cross_device_ops cross_tower_ops
    distribute.python                mirrored_strategy one_device_strategy parameter_server_strategy
    distribute.python                tpu_strategy values
    estimator.python.estimator       early_stopping extenders hooks
    framework.python.framework       checkpoint_utils tensor_util
    framework.python.ops             arg_scope ops variables
    layers.python.layers             embedding_ops encoders feature_column initializers layers normalization
    layers.python.layers             optimizers regularizers summaries utils
    learn.python                     learn
    legacy_seq2seq.python.ops        seq2seq
    lookup                           lookup_ops
    losses.python.losses             loss_ops
    metrics.python.ops               metric_ops
    mixed_precision.python           loss_scale_manager loss_scale_optimizer
    opt.python.training              lazy_adam_optimizer moving_average_optimizer
    opt.python.training              multitask_optimizer_wrapper variable_clipping_optimizer
    opt.python.training              weight_decay_optimizers
    predictor                        predictor predictor_factories saved_model_predictor
    rnn.python.ops                   core_rnn_cell fused_rnn_cell gru_ops lstm_ops rnn rnn_cell
    seq2seq.python.ops               attention_wrapper basic_decoder beam_search_decoder beam_search_ops
    seq2seq.python.ops               decoder helper loss
    slim.python.slim                 data
    summary                          summary summary_ops
    tpu.python.ops                   tpu_ops
    tpu.python.tpu                   bfloat16 tpu tpu_config tpu_context tpu_estimator tpu_function
    tpu.python.tpu                   tpu_optimizer training_loop util
    training.python.training         bucket_ops evaluation hparam training
"""
_ESTIMATOR_FILES = (
    "canned.baseline canned.dnn canned.dnn_linear_combined canned.head canned.linear canned.metric_keys "
    "canned.prediction_keys early_stopping estimator estimator_lib "
    "export.export export.export_lib export.export_output exporter hooks.basic_session_run_hooks hooks.hooks "
    "hooks.session_run_hook inputs.inputs inputs.numpy_io inputs.pandas_io model_fn mode_keys run_config "
    "tpu.tpu_config tpu.tpu_estimator training util")
# Old and new names of modules. tensorflow.python.layers.normalization itself imports the module of Keras 2 by
# its old name.
_MOVED = """
    tensorflow.python.training.gen_training_ops tensorflow.python.ops.gen_training_ops
    tensorflow.python.training.training_ops     tensorflow.python.ops.gen_training_ops
    tf_keras.legacy_tf_layers.normalization     tf_keras.src.legacy_tf_layers.normalization
"""
# Files of tensorflow.python, the part of TensorFlow that still has the names, and the names; see `own_names`.
_PUT_BACK = """
    framework.ops            v1            IndexedSlices Tensor
    framework.graph_util     v1.graph_util convert_variables_to_constants extract_sub_graph must_run_on_cpu
    framework.graph_util     v1.graph_util remove_training_nodes tensor_shape_from_node_def_name
    ops.array_ops            v1            parallel_stack stack unstack
    ops.control_flow_ops     v1            Assert case cond while_loop
    ops.variable_scope       v1            variable=Variable
    pywrap_tensorflow        v1.train      NewCheckpointReader
"""
# TensorFlow 1 and tensorflow_estimator had the files of the Estimator in these packages.
_ESTIMATOR_ROOTS = ("tensorflow.python.estimator", "tensorflow_estimator", "tensorflow_estimator.estimator",
                    "tensorflow_estimator.python.estimator", "tensorflow_estimator.compat.v1.estimator",
                    "tensorflow_estimator.python.estimator.api.estimator",
                    "tensorflow_estimator.python.estimator.api._v1.estimator")


def _with_packages(names):
    """Returns a set that contains the names and all packages above them: for "a.b.c", also "a" and "a.b"."""
    parts = [name.split(".") for name in names]
    return {".".join(part[:length]) for part in parts for length in range(1, len(part) + 1)}


def _files():
    """Returns a dict. Each key is the dotted name of a module of TensorFlow 1. The value is an object whose
    attributes are the names that this module provides."""
    files = {}
    for folder, names in rows(_CONTRIB_FILES):
        part = folder.partition(".")[0]
        files.update({f"tensorflow.contrib.{name}": getattr(contrib, part) for name in _with_packages(
            f"{folder}.{name}" for name in names.split()) - {part}})
    files["tensorflow.tools.graph_transforms"] = Namespace("tensorflow.tools.graph_transforms", dict(
        TransformGraph=others.TransformGraph))
    estimator = tensorflow_names.every_estimator_name
    for root in _ESTIMATOR_ROOTS:
        files.update({f"{root}.{name}": estimator for name in _with_packages(_ESTIMATOR_FILES.split())})
        files.update(dict.fromkeys(_with_packages([root]) - {"tensorflow", "tensorflow.python"}, estimator))
    return files


_FILES = _files()
# Maps each prefix to the parts of `tf` that a program can import as modules with this prefix. For example,
# "layers" in the list of "tensorflow." means that a program can write `import tensorflow.layers`. None means
# all parts.
_ROOTS = {"tensorflow.compat.v1.": ("contrib", "estimator"),
          "tensorflow.": ("app", "contrib", "distributions", "estimator", "flags", "gfile", "layers",
                          "logging", "python_io", "resource_loader"),
          "tf1.": None}


def find(name):
    """Finds a module by its full name, such as "tensorflow.contrib.crf".

    Returns:
      the module; None if another finder has to find it.

    Raises:
      ImportError: a part of `tf` lacks the module. The message says what to use instead.
    """
    # `root` is the prefix that the program wrote, such as "tf1.". `file` is the name of the same module with
    # the prefix "tensorflow.".
    root = next((root for root in _ROOTS if name.startswith(root)), "")
    file = f"tensorflow.{name[len(root):]}" if root else name
    # Case 1: the module is Keras under a name of TensorFlow 1.
    if f"{file}.".startswith(("tensorflow.contrib.keras.", "tensorflow.python.keras.")) and (
            root or file.startswith("tensorflow.contrib.")):
        return keras_modules.find(file.replace("tensorflow", "tf", 1))
    # Case 2: the name is a file of TensorFlow 1.15, such as tensorflow.contrib.crf.python.ops.crf. The
    # returned module has all names of the part of `tf` to which the file belonged, such as tf.contrib.crf.
    if file in _FILES:
        return Namespace(name, {}, lambda: _FILES[file])
    # Case 3: the name consists of a file of TensorFlow 1.15 and one more part. For example,
    # tensorflow_estimator.estimator.export consists of tensorflow_estimator.estimator and the part `export`.
    package, _, part = file.rpartition(".")
    if package in _FILES:
        return _part(_FILES[package], part, name)
    # Case 4: TensorFlow still contains the module, or the name does not belong to `tf`. Return None, so that
    # another finder finds the module.
    path = name[len(root):].split(".")
    is_public_part = root and not path[0].startswith("_")
    if not is_public_part or (_ROOTS[root] and path[0] not in _ROOTS[root]):
        return None
    # Case 5: the module is an attribute of `tf1`. Either TensorFlow lacks the module, such as
    # tensorflow.contrib.crf, or the program imports the module from `tf1`, such as tf1.nn.
    module = sys.modules["tf1"]
    for part in path:
        module = _part(module, part, name)
    return module if module is None or isinstance(module, Namespace) else Namespace(name, {}, lambda: module)


def _part(module, name, full):
    """Returns an attribute of a module if the attribute is a module, too. Otherwise returns None.

    Args:
      module: the module.
      name: name of the attribute.
      full: dotted name in the import statement, for the error.

    Raises:
      ImportError: `module` is a `Namespace` without this attribute. The message says what to use instead.
    """
    try:
        part = getattr(module, name)
    except AttributeError as error:
        if isinstance(module, Namespace):
            raise ImportError(str(error), name=full) from None
        return None
    return part if isinstance(part, types.ModuleType) else None


def _put_back():
    """Adds modules that have moved, and adds names to TensorFlow's own modules. Programs import these modules
    and names, but later versions of TensorFlow removed them."""
    for old, new in rows(_MOVED):
        sys.modules.setdefault(old, importlib.import_module(new))
    for file, home, names in rows(_PUT_BACK, 3):
        module = importlib.import_module(f"tensorflow.python.{file}")
        for name, value in own_names(operator.attrgetter(home)(tf.compat), names).items():
            if not hasattr(module, name):
                setattr(module, name, value)


# This line also replaces an installed tensorflow_hub, because newer versions of that package have no
# hub.Module.
sys.modules["tensorflow_hub"] = hub.hub
sys.meta_path.insert(0, ours.Finder())
# These finders are the last ones, so that an installed package `bert` or `horovod` is found first.
sys.meta_path += [ModuleFinder(find), bert_package.Finder(), horovod.FINDER]
_put_back()
