"""python -m tf1: runs a script of TensorFlow 1.x as it is, checks one, or lists the names that it gets."""

import argparse
import os
import signal
import sys
import types

from bertlib.replicas import replica_launcher
import tf1
from tf1._check import checker
from tf1._names.namespace import Namespace
from tf1._replicas import launching
from tf1._run import running
from tf1._run.ours import is_ours


def names(module, name, seen=()):
    """Yields (full name, whether it is ours) of the public names of a module and its modules."""
    for key in sorted(key for key in dir(module) if not key.startswith("_")):
        value = getattr(module, key, None)
        if isinstance(value, types.ModuleType):
            ours = isinstance(value, Namespace)
            # TensorFlow's modules show a few of Python's too.
            if key != "compat" and (ours or value not in seen and "api" in value.__name__):
                yield from names(value, f"{name}.{key}", (*seen, value))
        elif value is not None:
            yield f"{name}.{key}", isinstance(module, Namespace) and key in module._own


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tf1", description="Runs a script that was written for TensorFlow 1.x, unchanged.",
        usage="python -m tf1 [--also=PACKAGES] [--reference_variables] [--num_replicas=N]\n"
              "                     (SCRIPT | -m MODULE) [ARGUMENTS …]\n"
              "       python -m tf1 --check PATH …\n"
              "       python -m tf1 --names [--ours]")
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="the script, whose flags follow it. Its "
                        "`import tensorflow as tf` gives it tf1, in its own modules too")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="of the script")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE",
                        help="a module and its arguments in place of a script")
    parser.add_argument("--also", default="", metavar="PACKAGES", help="installed packages, separated by "
                        "commas, that were written for TensorFlow 1.x too")
    parser.add_argument("--reference_variables", action="store_true", help="give the program the variables "
                        "of TensorFlow 1, as tf.disable_resource_variables() does: for one that walks or "
                        "freezes graphs by itself")
    parser.add_argument("--num_replicas", type=int, default=1, metavar="N", help="processes on this "
                        "machine that train together, one for each GPU; 0: as many as there are GPUs. "
                        "Gradients are averaged over them. With TF_CONFIG several machines do; see "
                        "docs/howto/porting.md")
    parser.add_argument("--replica_timeout", type=float, default=60.0, metavar="SECONDS", help="in which all "
                        "have ended after one was killed, stopped or cut off (60)")
    parser.add_argument("--max_restarts", type=int, default=0, metavar="N", help="how often all are started "
                        "again after that. They go on from the last checkpoint")
    parser.add_argument("--open_ports", choices=["true", "false"], help="whether other machines can reach "
                        "the network ports of the replicas. By default the ports are closed, or a warning "
                        "says that they are open. true: leave them open, as a script needs that uses the "
                        "network. false: refuse to run if they cannot be closed")
    parser.add_argument("--check", nargs="+", metavar="PATH", help="read a program's files without running "
                        "them, and list the lines that will not run and what to write instead")
    parser.add_argument("--names", action="store_true", help="list every name that a program gets from `tf`")
    parser.add_argument("--ours", action="store_true", help="of these only what TensorFlow itself no longer "
                        "has, or has otherwise")
    return parser


def _launch(options, name, arguments, parser):
    """Ends with the replicas, if there are to be several."""
    if options.num_replicas < 0 or options.replica_timeout <= 0 or options.max_restarts < 0:
        parser.error("--num_replicas and --max_restarts are at least 0, --replica_timeout is above 0")
    open_ports = None if options.open_ports is None else options.open_ports == "true"
    try:
        end = launching.launch(options.num_replicas, options.replica_timeout, options.max_restarts,
                               open_ports, arguments)
    except (ValueError, OSError) as error:
        end = replica_launcher.End(1, f"error: {error}", False)
    if end is not None:
        if end.message:
            print(f"{os.path.basename(name)}: {end.message}", file=sys.stderr, flush=True)
        sys.exit(end.code)


def main():
    """Runs or lists what the command line says."""
    parser = _parser()
    options = parser.parse_args()
    packages = [name for name in options.also.split(",") if name]
    if options.reference_variables:
        tf1.disable_resource_variables()
    if options.script and not os.path.isfile(options.script):
        parser.error(f"there is no file {options.script}; options of a script stand after it")
    if options.script and is_ours(options.script):
        if options.num_replicas != 1:
            parser.error(f"{options.script} is a command of this project: its own --num_replicas stands "
                         "after it")
        running.run_script(options.script, options.arguments, packages)
        return
    if options.module or options.script:
        name, *arguments = options.module or [options.script, *options.arguments]
        _launch(options, name, arguments, parser)
        with launching.joined():
            run = running.run_module if options.module else running.run_script
            run(name, arguments, packages)
        return
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head`
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
        parser.error("name a script to run, or give --check or --names")


if __name__ == "__main__":
    main()
