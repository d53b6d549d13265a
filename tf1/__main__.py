"""python -m tf1: runs or checks a script of TensorFlow 1.x without changes, or lists the names of `tf`."""

import argparse
import os
import signal
import sys
import types

from absl import logging

from bertlib.system import child_processes, gpu_libraries, replica_group
import tf1
from tf1._check import checker
from tf1._names.namespace import Namespace
from tf1._replicas import launching
from tf1._run import running
from tf1._run.ours import is_ours


def names(module, name, seen=()):
    """Yields the public names of a module and of the modules in it.

    Args:
      module: the module.
      name: full name of the module, such as "tf.nn".
      seen: the modules that contain this module. They are not visited again.

    Yields:
      (full name, whether tf1 defines it).
    """
    for key in sorted(key for key in dir(module) if not key.startswith("_")):
        value = getattr(module, key, None)
        if isinstance(value, types.ModuleType):
            ours = isinstance(value, Namespace)
            # The full names of TensorFlow's own modules contain "api". Other modules, such as a few modules
            # of Python's library, are left out.
            if key != "compat" and (ours or value not in seen and "api" in value.__name__):
                yield from names(value, f"{name}.{key}", (*seen, value))
        elif value is not None:
            yield f"{name}.{key}", isinstance(module, Namespace) and key in module._own


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tf1", allow_abbrev=False,  # a flag of the script is no abbreviation
        description="Runs a script that was written for TensorFlow 1.x, without changes.",
        usage="python -m tf1 [--also=PACKAGES] [--reference_variables] [--num_replicas=N]\n"
              "                     (SCRIPT | -m MODULE) [ARGUMENTS …]\n"
              "       python -m tf1 --check PATH …\n"
              "       python -m tf1 --names [--ours]")
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="the script, followed by the flags of "
                        "the script. In the script and in its modules, `import tensorflow as tf` imports tf1")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS",
                        help="arguments of the script")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE",
                        help="run a module with its arguments instead of a script")
    parser.add_argument("--also", default="", metavar="PACKAGES", help="comma-separated names "
                        "of installed packages that were written for TensorFlow 1.x. In these packages, too, "
                        "`import tensorflow as tf` imports tf1")
    parser.add_argument("--reference_variables", action="store_true", help="use the reference variables of "
                        "TensorFlow 1, as tf.disable_resource_variables() does. Programs with their own code "
                        "for searching or freezing graphs need these variables")
    parser.add_argument("--num_replicas", type=int, default=1, metavar="N", help="number of replicas on this "
                        "machine. Replicas are processes that train one model together; each uses one GPU. "
                        "With --num_replicas=0, each GPU of the machine gets a replica. The gradients are "
                        "averaged over the replicas. With TF_CONFIG, several machines train one model; see "
                        "docs/howto/porting.md. Default: 1")
    parser.add_argument("--replica_timeout", type=float, default=60.0, metavar="SECONDS", help="if one "
                        "replica was killed, was stopped or lost its connection, all replicas end within "
                        "this number of seconds. Default: 60")
    parser.add_argument("--max_restarts", type=int, default=0, metavar="N", help="largest number of "
                        "restarts. All replicas are restarted from the last checkpoint if one of them was "
                        "killed, crashed or lost its connection. Default: 0")
    parser.add_argument("--open_ports", choices=["true", "false"], help="whether other machines can reach "
                        "the network ports of the replicas. By default, the ports are closed; if this is not "
                        "possible, a warning says that they are open. true: leave the ports open, for "
                        "example if the script needs the network. false: refuse to run if the ports cannot "
                        "be closed")
    parser.add_argument("--check", nargs="+", metavar="PATH", help="read a program's files without running "
                        "them. Print each line that will not run, and the code to write instead")
    parser.add_argument("--names", action="store_true", help="list every name that a program gets from `tf`")
    parser.add_argument("--ours", action="store_true", help="with --names: list only the names that "
                        "TensorFlow itself lacks or defines differently")
    return parser


def _launch(options, name, arguments, parser):
    """Runs the script as several replicas and exits with their exit code. Returns only if this process should
    run the script itself."""
    if options.num_replicas < 0 or options.replica_timeout <= 0 or options.max_restarts < 0:
        parser.error("--num_replicas and --max_restarts must be at least 0, and --replica_timeout above 0")
    open_ports = None if options.open_ports is None else options.open_ports == "true"
    try:
        outcome = launching.launch(options.num_replicas, options.replica_timeout, options.max_restarts,
                                   open_ports, arguments)
    except (ValueError, OSError) as error:
        outcome = child_processes.Outcome("refused", 1, str(error))
    if outcome is not None:
        outcome.show(name)
        sys.exit(outcome.exit_code)


def _warn_of_unused_card():
    """Logs a warning if this machine has an NVIDIA card, but not the libraries that TensorFlow needs for it.

    Many scripts set CUDA_VISIBLE_DEVICES. TensorFlow reads this variable when the GPUs are listed for the
    first time, and ignores later changes. This function runs before the script, so it must not list the GPUs.
    """
    group = replica_group.current()
    if gpu_libraries.missing_libraries() and (explanation := gpu_libraries.explain_unused_card()) and (
            not group or group.is_first):
        logging.warning("%s", explanation)


def main():
    """Does what the command line says: runs a script or a module, checks files, or lists names."""
    parser = _parser()
    options = parser.parse_args()
    packages = [name for name in options.also.split(",") if name]
    if options.reference_variables:
        tf1.disable_resource_variables()
    if options.script and not os.path.isfile(options.script):
        parser.error(f"there is no file {options.script}. If this is an option of the script, write it after "
                     "the name of the script")
    if options.script and is_ours(options.script):
        if options.num_replicas != 1:
            parser.error(f"{options.script} is a command of this project and has its own flag "
                         f"--num_replicas: write --num_replicas after {options.script}")
        running.run_script(options.script, options.arguments, packages)
        return
    if options.module or options.script:
        name, *arguments = options.module or [options.script, *options.arguments]
        _launch(options, name, arguments, parser)
        with launching.joined():
            _warn_of_unused_card()
            run = running.run_module if options.module else running.run_script
            run(name, arguments, packages)
        return
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Without this line, `… | head` would end with an error.
    if options.check is not None:
        try:
            sys.exit(checker.check(*options.check))
        except FileNotFoundError as error:
            parser.error(str(error))
    elif options.names:
        for name, ours in names(tf1, "tf"):
            if ours or not options.ours:
                print(f"{name}  (tf1)" if ours else name)
    else:
        parser.error("pass the name of a script to run, or --check, or --names")


if __name__ == "__main__":
    main()
