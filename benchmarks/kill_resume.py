"""Kills one training ten times at random moments, and compares it with an undisturbed training.

    python benchmarks/kill_resume.py [--kills=10] [--seed=0] [--results=NAME] [any flag of run_classifier.py]

At the end, each tensor of the last checkpoints of both trainings must have the same bits. This includes the
variables of the optimizer. The logs must show that no resumption repeated more than --save_checkpoints_steps
steps.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import results
import tensorflow.compat.v1 as tf

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAVE_EVERY = 20
RECIPE = ["--task_name=MRPC", "--do_train=true", "--max_seq_length=64", "--train_batch_size=16",
          "--num_train_epochs=10", f"--save_checkpoints_steps={SAVE_EVERY}", "--log_steps=1"]


def start(output_dir, flags, log):
    """Starts the script. Its output is appended to a file."""
    command = [sys.executable, os.path.join(ROOT, "run_classifier.py"), *RECIPE, f"--output_dir={output_dir}",
               *flags]
    return subprocess.Popen(command, stdout=log, stderr=log)


def last_step(text):
    """Returns the last step in a log, or 0."""
    steps = re.findall(r" step (\d+)/\d+ ", text)
    return int(steps[-1]) if steps else 0


def compare(first, second):
    """Returns (number of tensors, names of the tensors that differ) for two checkpoints."""
    readers = [tf.train.load_checkpoint(tf.train.latest_checkpoint(directory))
               for directory in (first, second)]
    names = [reader.get_variable_to_shape_map() for reader in readers]
    assert names[0] == names[1], "the checkpoints hold different variables"
    return len(names[0]), [name for name in names[0]
                           if not np.array_equal(*(reader.get_tensor(name) for reader in readers))]


def main():
    """Prints a line for each kill, and the comparison of the trainings. If a condition in the docstring of
    this module is not met, the exit code is 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments")
    results.add_flag(parser)
    arguments, flags = parser.parse_known_args()
    recorder = results.Recorder(arguments.results, {})
    moments = random.Random(arguments.seed)
    directory = tempfile.mkdtemp()
    undisturbed, killed = (os.path.join(directory, name) for name in ("undisturbed", "killed"))
    failed = False
    with open(os.path.join(directory, "log"), "a+", encoding="utf-8") as log:
        began = time.time()
        if start(undisturbed, flags, log).wait():
            log.seek(0)
            sys.exit("the undisturbed run failed:\n" + log.read()[-2000:])
        duration = time.time() - began
        log.seek(0)
        print(f"undisturbed: {last_step(log.read())} steps in {duration:.0f} s")

        reached, kills, finished = 0, 0, False
        while not finished:
            position = os.path.getsize(log.name)
            process = start(killed, flags, log)
            try:
                # The moments are spread over the run. So the kills can hit its start, its steps, its
                # checkpoints and its end.
                process.wait(moments.uniform(0.02, 0.6) * duration if kills < arguments.kills else None)
                finished = process.returncode == 0
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
            with open(log.name, encoding="utf-8") as reader:
                reader.seek(position)
                text = reader.read()
            resumed = re.search(r"Resuming from \S+: step (\d+)", text)
            if resumed and reached:
                redone = reached - int(resumed.group(1))
                failed |= redone > SAVE_EVERY
                recorder.add(resumed_at_step=int(resumed.group(1)), steps_redone=redone)
                print(f"  resumed at step {resumed.group(1)}: {redone} steps redone")
            reached = max(reached, last_step(text))
            print(f"kill {kills}: had reached step {reached}" if not finished else f"finished after {kills} "
                  "kills")
            if not finished and process.returncode not in (None, -signal.SIGKILL):
                sys.exit(f"the run failed by itself:\n{text[-2000:]}")
            # The run may end before all kills are done. Then its directory is removed, and the run starts
            # again from step 0.
            if finished and kills < arguments.kills:
                count, differing = compare(undisturbed, killed)
                failed |= bool(differing)
                print(f"{count} tensors, {len(differing)} differ; starting over for the remaining kills")
                shutil.rmtree(killed)
                reached, finished = 0, False
    count, differing = compare(undisturbed, killed)
    print(f"{count} tensors, {len(differing)} differ {differing[:5] or ''}")
    recorder.add(kills=kills, tensors=count, different=len(differing))
    recorder.write()
    shutil.rmtree(directory)
    sys.exit(1 if failed or differing else 0)


if __name__ == "__main__":
    main()
