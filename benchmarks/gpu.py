"""Checks and measures training on this machine's GPUs. This is the first command for a new GPU.

    python benchmarks/gpu.py                         every part, several hours
    python benchmarks/gpu.py --parts=losses,repeat   some parts
    python benchmarks/gpu.py --minutes=10            the most important measurements, for at most 10 minutes.
                                                     The same command again goes on where the first one ended
    python benchmarks/gpu.py --peer_python=PYTHON    also measures PyTorch, with the interpreter PYTHON

The parts:

    losses    compares the first losses of each head and precision with those of the CPU
    repeat    trains three times with --deterministic, and kills and resumes the third run. The last
              checkpoints of all three runs must have the same bits
    memory    the largest batch and its peak memory, compared with the memory planner. Smaller cards are
              simulated: TensorFlow gets only the memory that is usable on such a card
    speed     examples per second for each model, length and precision, with and without --use_xla
    scaling   examples per second of 1, 2, … replicas, up to the number of GPUs
    ops       the kernels and bytes of a step, and the ops that take the most time
    commands  run_squad.py with BERT-Large in the settings for a card of 12 GB, with only the memory of each
              smaller card. A batch that does not fit must end with advice
    training  whole trainings on the samples of MRPC and SQuAD: their scores and seconds
    answers   predictions per second, in batches of 32 and one by one

Each measurement runs in a separate process. If a measurement fails, its error is recorded, and the next
measurement starts. The results are written to benchmarks/results/NAME.json and NAME.md. The exit code is 1 if
a measurement failed or a check found a difference.

Without a GPU, all parts measure a tiny model on the CPU. This only shows that the parts work.

How `losses` bounds the difference of a loss: the reference is a run on the CPU in float32. The same run is
repeated with noise: each initial weight is multiplied by 1 + u or 1 - u, at random, where u is the unit
roundoff of a precision (`PRECISIONS`). The bound of this precision is `BOUND_FACTOR` times the largest
difference that the noise makes in a loss. The factor is needed, because noise changes the weights only once,
but real rounding happens in each op.
"""

import argparse
import functools
import itertools
import json
import math
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow reads this when it is loaded
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import compare
import gpu_page
import gpu_steps
import kill_resume
import results
import scaling

from bertlib.estimator import memory_planner
from bertlib.runs import model_config
from bertlib.system import gpu_libraries
from bertlib.system.files import read_json_object
from bertlib.system.gpu_cards import CARDS, MIB

ROOT = results.ROOT
PARTS = ("losses", "repeat", "memory", "speed", "scaling", "ops", "commands", "training", "answers")
# The parts of --minutes, the most important first. Each part then measures fewer settings, see `Session`.
SHORT_PARTS = ("ops", "losses", "speed", "memory", "commands", "repeat", "training", "answers")
# {name: (value of --precision, whether TF32 may be used, unit roundoff of the number format)}
PRECISIONS = {"fp32": ("fp32", False, 2.0**-24), "tf32": ("fp32", True, 2.0**-11),
              "bf16": ("bf16", True, 2.0**-8), "fp16": ("fp16", True, 2.0**-11)}
# On a CPU, runs in bf16 and runs in float32 without oneDNN were compared with the reference. Their
# differences were at most as large as the differences of the runs with noise. See docs/development/gpu.md. A
# GPU has other kernels, so its differences may be larger. The factor allows for this.
BOUND_FACTOR = 16
NOISE_SEEDS = 2
# The vocabulary has as many words as samples/pretraining/vocab.txt.
TINY = {**compare.BASE, "vocab_size": 1000, "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}
MODELS = {"tiny": TINY, "base": compare.BASE, "large": scaling.LARGE}
OWN_CARD, TINY_CARD_BYTES = "this card", 4 * 2**20
# Maps the name of each head to a training: the script and its flags. All trainings use the samples of this
# repository as their data.
TRAININGS = {"classifier": ("run_classifier.py", dict(task_name="MRPC", num_train_epochs=1)),
             "squad": ("run_squad.py", dict(num_train_epochs=0.5)),
             "ner": ("run_ner.py", dict(crf=True, num_train_epochs=1)),
             "pretraining": ("run_pretraining.py", dict(num_train_steps=40, num_warmup_steps=4))}
SAVE_EVERY = 5
OURS, PYTORCH = "this project", "PyTorch"
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
UNITS = {"seconds": "s", "device_seconds": "s", "difference": "", "bound": "", "examples_per_second": "1/s",
         "peak_ratio": "measured / planned"}
TIME_LIMIT_SECONDS = 3600
end = math.inf  # the time at which --minutes are over, from `time.time`


def seconds_left():
    """Returns the number of seconds that the next process may take."""
    return max(0, min(TIME_LIMIT_SECONDS, end - time.time()))


# --- Processes -------------------------------------------------------------------------------------------


def in_process(function, *arguments, environment=None, **settings):
    """Calls a function in a separate process, and returns its result.

    Args:
      function: function whose result is plain data.
      *arguments, **settings: arguments of the function.
      environment: {name: value}, the environment variables to change. None: the process sees only the first
        GPU.

    Raises:
      RuntimeError: the function raised an error, the process ended without a result, or it took too long.
    """
    # The process is forked, because a forked process does not have to load TensorFlow again. This is possible
    # because the parent process never uses a device.
    gpus = gpu_libraries.visible_gpus()
    if environment is None:
        environment = {"CUDA_VISIBLE_DEVICES": gpus[0]} if gpus else {}
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryFile() as messages:
        process = context.Process(target=_child, daemon=True, args=(
            sender, messages, environment, lambda: function(*arguments, **settings)))
        process.start()
        sender.close()
        try:
            limit = seconds_left()
            answer = receiver.recv() if receiver.poll(limit) else {"error": f"no result after {limit:.0f} s"}
        except EOFError:
            answer = {}
        process.kill()
        process.join()
        if "result" in answer:
            return answer["result"]
        messages.seek(0)
        last_lines = messages.read().decode(errors="replace").strip().splitlines()[-3:]
        raise RuntimeError(answer.get("error") or "\n".join(
            [f"the process ended with exit code {process.exitcode}", *last_lines]))


def _child(sender, messages, environment, call):
    for stream in (1, 2):
        os.dup2(messages.fileno(), stream)
    os.environ.update(environment)
    try:
        answer = {"result": call()}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {getattr(error, 'message', None) or error}"[:600]}
    sender.send(answer)


def command(script, cap=None, **flags):
    """Returns the command line of a script in the repository root. With `cap`, TensorFlow gets at most this
    number of bytes of the GPU."""
    path = [os.path.join(ROOT, "benchmarks", "capped.py"), str(cap), script] if cap else [
        os.path.join(ROOT, script)]
    return [sys.executable, *path,
            *(f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
              for name, value in flags.items())]


def run_script(words, wait=lambda process: process.wait(seconds_left())):
    """Runs a command and returns its log.

    Args:
      words: the command line.
      wait: function that waits for the process. It returns the exit code, or None if it killed the process.

    Raises:
      RuntimeError: the exit code is not 0.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            code = wait(process)
        except subprocess.TimeoutExpired:
            code = "none in time"
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        text = log.read()
    if code:
        last_lines = "\n".join(text.strip().splitlines()[-3:])
        raise RuntimeError(f"{os.path.basename(words[1])} ended with exit code {code}:\n{last_lines}")
    return text


class Session:
    """The measurements of one call of this program.

    Attributes:
      arguments: the parsed command line.
      cases: list of (model, length).
      fast_precisions: the precisions whose speed is measured.
      gpus: list of dicts, see `gpu_steps.devices`.
      directory: directory for temporary files.
      is_tiny: whether only the tiny model is measured.
      failed: names of the parts with a failure.
    """

    def __init__(self, arguments, recorder, gpus, directory):
        self.arguments, self.gpus, self.directory = arguments, gpus, directory
        self.is_tiny = arguments.models == ["tiny"]
        pairs = zip if arguments.minutes else itertools.product
        self.cases = list(pairs(arguments.models, arguments.lengths))
        self.fast_precisions = [name for name in arguments.precisions
                                if name in ("bf16", "fp16") or not arguments.minutes]
        self.failed = []
        self._recorder = recorder

    def measure(self, part, labels, function, *arguments):
        """Calls a function, and records its result.

        Args:
          part: name of the part.
          labels: dict with the settings that distinguish this measurement from others of the same part.
          function, *arguments: the function and its arguments. The function returns a dict. If the dict
            contains "ok": False, a check failed.

        Returns:
          The dict of the function, with the additional key "seconds". If the function raised an exception,
          the dict contains only the keys "error" and "seconds". With --minutes, the recorded round of an
          earlier call, or {} if no time is left.
        """
        for row in self._recorder.rounds:
            if {"part": part, **labels}.items() <= row.items():
                return row
        began = time.time()
        try:
            values = function(*arguments) if seconds_left() else {}
        except Exception as error:  # the next measurement must run in any case
            values = {"error": f"{error}"[:600]}
        if not seconds_left():
            print(f"{part:8} no time for {', '.join(map(str, labels.values()))}", flush=True)
            return {}
        if "error" in values or values.get("ok") is False:
            self.failed.append(part)
        values["seconds"] = round(time.time() - began, 1)
        self._recorder.add(part=part, **labels, **values)
        self._recorder.write(is_last=False)  # after each measurement, because the next one may be interrupted
        shown = {name: f"{value:.4g}" if isinstance(value, float) else value
                 for name, value in {**labels, **values}.items()}
        print(f"{part:8}", ", ".join(f"{name} {value}" for name, value in shown.items()), flush=True)
        return values


def attempt(function, *arguments, **settings):
    """Returns the result of a function, or the RuntimeError that it raised."""
    try:
        return function(*arguments, **settings)
    except RuntimeError as error:
        return error


# --- Losses ----------------------------------------------------------------------------------------------


def losses(session):
    """Trains each head on the GPU and on the CPU, and compares the losses."""
    arguments = session.arguments
    installed = None if session.is_tiny else model_config.find_installed_model()
    config = TINY if session.is_tiny else {**compare.BASE, "num_hidden_layers": 4}
    if installed:
        config = read_json_object(os.path.join(installed, "config.json"))
    noisy = {(name, seed): {"precision": "fp32", "noise": PRECISIONS[name][2], "seed": seed}
             for name in arguments.precisions for seed in range(NOISE_SEEDS)}
    for task in gpu_steps.HEADS:
        run = functools.partial(
            in_process, gpu_steps.losses, task, config, start=os.path.join(session.directory, f"{task}.npz"),
            init_checkpoint=installed, size=8, length=min(128, config["max_position_embeddings"]),
            count=arguments.steps)
        on_cpu = functools.cache(functools.partial(
            attempt, run, variants={"reference": {"precision": "fp32"}, **noisy}, environment=NO_GPU))
        for name in arguments.precisions:
            labels = dict(head=task, precision=name, model=os.path.basename(installed or "random weights"))
            session.measure("losses", labels, compare_losses, run, name, on_cpu)


def compare_losses(run, name, on_cpu):
    """Trains on the device, and compares the losses with those of the CPU.

    Args:
      run: function with the argument `variants`. It calls `gpu_steps.losses`. All other arguments of this
        call are already set.
      name: a key of `PRECISIONS`.
      on_cpu: function that returns the losses of the CPU, a dict with the keys "reference" and (key of
        `PRECISIONS`, seed). If the run on the CPU failed, the result is the RuntimeError.

    Returns:
      The result of `judge_losses`.
    """
    on_cpu = on_cpu()
    if isinstance(on_cpu, RuntimeError):
        raise RuntimeError(f"on the CPU: {on_cpu}")
    precision, tf32, _ = PRECISIONS[name]
    measured = run(variants={name: {"precision": precision, "tf32": tf32}})[name]
    return judge_losses(measured, on_cpu["reference"], [on_cpu[name, seed] for seed in range(NOISE_SEEDS)])


def judge_losses(measured, reference, noisy):
    """Compares losses with those of a reference, and returns {"ok", "difference", "bound", …}.

    Args:
      measured, reference: lists of losses.
      noisy: lists of losses. Each list is from a run like the reference run, but the initial weights of the
        run were changed a little at random.
    """
    def distance(one):
        return max(abs(a - b) for a, b in zip(one, reference))

    # It is possible that the noise in the weights changes none of the losses. Even in this case, the bound
    # must not be 0, because each loss has a rounding error.
    least = 4 * 2.0**-24 * max(map(abs, reference))
    bound = max(least, BOUND_FACTOR * max(map(distance, noisy)))
    return {"ok": distance(measured) <= bound, "difference": distance(measured), "bound": bound,
            "cpu": reference, "device": measured}


# --- Repetition ------------------------------------------------------------------------------------------


def repeat(session):
    """Compares a run with a repeated run, and with a run that was killed and resumed."""
    for head, (script, flags) in TRAININGS.items():
        if session.is_tiny and head != "classifier":
            continue
        for name in session.arguments.precisions:
            # The classifier is trained in all precisions. The other heads differ from the classifier only in
            # float32 ops after the encoder, so one precision (bf16) is enough for them.
            if name == "bf16" or head == "classifier" and not session.is_tiny:
                precision, tf32, _ = PRECISIONS[name]
                session.measure("repeat", dict(head=head, precision=name), compare_repetitions, script, {
                    "train_batch_size": 16, "do_train": True, "deterministic": True, "log_steps": 5,
                    "save_checkpoints_steps": SAVE_EVERY, "precision": precision, "tf32": tf32,
                    **(model_arguments(session, "tiny") if session.is_tiny else {}), **flags})


def compare_repetitions(script, flags):
    """Trains three times with the same flags, and compares the tensors of the last checkpoints. The third
    training is killed after a checkpoint and then continued.

    Returns:
      a dict: "ok" (whether all tensors are equal), "tensors" (number of tensors), "different" (number of
      tensors that differ between the first and the second training), "different_after_kill" (the same number
      for the first and the third training), "resumed_from" (the step at which the killed training continued)
      and "names" (up to five names of different tensors).
    """
    with tempfile.TemporaryDirectory() as directory:
        whole, again, killed = (os.path.join(directory, name) for name in ("whole", "again", "killed"))
        for output_dir in (whole, again):
            run_script(command(script, **flags, output_dir=output_dir))
        words = command(script, **flags, output_dir=killed)
        run_script(words, lambda process: kill_after_checkpoint(process, killed))
        resumed = re.search(r"Resuming from \S+: step ([1-9]\d*)", run_script(words))
        if not resumed:
            raise RuntimeError(f"{script}: the killed run was not resumed. It may have ended too early.")
        count, different = kill_resume.compare(whole, again)
        _, different_after_kill = kill_resume.compare(whole, killed)
    return {"ok": not different and not different_after_kill, "tensors": count, "different": len(different),
            "different_after_kill": len(different_after_kill), "resumed_from": int(resumed[1]),
            "names": sorted({*different, *different_after_kill})[:5]}


def kill_after_checkpoint(process, output_dir):
    """Kills a training as soon as it has saved a checkpoint, and returns None.

    If the training ends before it has saved a checkpoint, returns the exit code of the training instead.
    """
    saved = os.path.join(output_dir, "checkpoint")  # this file lists the complete checkpoints
    deadline = time.time() + TIME_LIMIT_SECONDS
    while process.poll() is None and time.time() < deadline:
        if os.path.exists(saved) and re.search(r"ckpt-[1-9]", read_text(saved)):
            process.send_signal(signal.SIGKILL)
            return None
        time.sleep(0.005)
    return process.poll()


def read_text(path):
    """Returns the text of a file."""
    with open(path, encoding="utf-8") as reader:
        return reader.read()


def model_arguments(session, model):
    """Writes the configuration of a model. Returns flags for the configuration, vocabulary and length."""
    config = os.path.join(session.directory, f"{model}.json")
    with open(config, "w", encoding="utf-8") as writer:
        json.dump(MODELS[model], writer)
    return {"bert_config_file": config, "max_seq_length": min(128, MODELS[model]["max_position_embeddings"]),
            "vocab_file": os.path.join(ROOT, "samples", "pretraining", "vocab.txt")}


# --- Memory ----------------------------------------------------------------------------------------------


def smaller_cards(session):
    """Returns {card: usable bytes} of the cards that are simulated."""
    if not session.gpus:
        return {"a tiny card": TINY_CARD_BYTES}
    usable = {card: CARDS[card].usable_mib * MIB for card in session.arguments.cards}
    return {card: size for card, size in usable.items() if size < session.gpus[0]["memory"]}


def memory(session):
    """Measures the largest batch that fits on each card, and compares it with the memory planner's batch."""
    arguments, caps = session.arguments, smaller_cards(session)
    if session.gpus:
        caps[OWN_CARD] = session.gpus[0]["memory"]
    limits = [cap / memory_planner.ALLOCATOR_MARGIN for cap in caps.values()]
    for (model, length), recompute in itertools.product(session.cases, arguments.recompute):
        step = MODELS[model], length, recompute, "fp32"
        plans = functools.cache(functools.partial(
            attempt, in_process, gpu_steps.planned_batches, *step, limits, environment=NO_GPU))
        for index, card in enumerate(caps):
            labels = dict(model=model, length=length, recompute=recompute, card=card)
            session.measure("memory", labels, compare_memory, step, plans, index,
                            None if card == OWN_CARD else caps[card])


def compare_memory(step, plans, index, cap):
    """Measures the largest batch that fits into memory, and compares it with the plan.

    Returns a dict with the values of the plan and of the measurement. "ok" is true if the planned batch fits.

    Args:
      step: (config, length, recompute, precision).
      plans: function that returns the list of the planner's results, or the planner's error.
      index: index in `plans` of the result to compare with.
      cap: number of bytes that the step may use, to simulate a smaller card. None to use all memory of the
        installed card.
    """
    plans = plans()
    if isinstance(plans, RuntimeError):
        raise RuntimeError(f"in the planner: {plans}")
    plan = plans[index]
    measured = in_process(gpu_steps.largest_batch, *step, plan["planned_batch"], cap)
    values = {"ok": measured["batch"] >= plan["planned_batch"], **plan, **measured}
    if measured["planned_batch_peak"]:
        values["peak_ratio"] = measured["planned_batch_peak"] / plan["planned_bytes"]
    return values


# --- Whole commands --------------------------------------------------------------------------------------


def commands(session):
    """Trains BERT-Large on the sample of SQuAD, with the memory of each smaller card."""
    model = "tiny" if session.is_tiny else "large"
    length = MODELS[model]["max_position_embeddings"] if session.is_tiny else 384
    flags = {**model_arguments(session, model), "max_seq_length": length, "do_train": True, "max_steps": 3,
             "train_batch_size": 32, "max_query_length": min(64, length // 2), "doc_stride": length // 3}
    for card, cap in smaller_cards(session).items():
        fits = {"gradient_accumulation_steps": 8, "log_steps": 1}
        session.measure("commands", dict(model=model, card=card, setting="12 GB recipe"), train_with_cap, cap,
                        {**flags, **fits})
        if session.gpus:  # the memory of a CPU cannot be limited
            session.measure("commands", dict(model=model, card=card, setting="one batch of 32"),
                            fail_with_advice, cap, flags)


def train_with_cap(cap, flags):
    """Trains with at most `cap` bytes of the GPU; returns {"peak_gb"}, the peak of a step."""
    with tempfile.TemporaryDirectory() as output_dir:
        log = run_script(command("run_squad.py", cap, **flags, output_dir=output_dir))
    return {"peak_gb": max(map(float, re.findall(r"peak_memory_gb (\S+)", log)))}


def fail_with_advice(cap, flags):
    """Trains with settings that do not fit; returns {"ok"}: whether the error says which flags to change."""
    with tempfile.TemporaryDirectory() as output_dir:
        try:
            run_script(command("run_squad.py", cap, **flags, output_dir=output_dir))
        except RuntimeError as error:
            return {"ok": "--gradient_accumulation_steps" in str(error)}
    return {"ok": False}


# --- Speed -----------------------------------------------------------------------------------------------


def speed(session):
    """Measures the examples per second of this project and, if --peer_python is given, of PyTorch."""
    arguments = session.arguments
    for (model, length), name in itertools.product(session.cases, session.fast_precisions):
        labels = dict(model=model, length=length, precision=name)
        batch = max(1, arguments.tokens // length)
        for use_xla in (False, True):
            found = session.measure("speed", dict(program=OURS, use_xla=use_xla, **labels), in_process,
                                    gpu_steps.speed, MODELS[model], length, *PRECISIONS[name][:2], use_xla,
                                    batch, arguments.steps)
            batch = found.get("batch", batch)
        for compiles in (False, True) if arguments.peer_python else ():
            session.measure("speed", dict(program=PYTORCH + ", torch.compile" * compiles, **labels),
                            peer_speed, session, compiles, batch, *labels.values())


def peer_speed(session, compiles, batch, model, length, precision):
    """Measures the training of Hugging Face's model, with or without torch.compile. Returns {"batch",
    "examples_per_second"}."""
    settings = {"work": "step", "config": MODELS[model], "length": length, "batch_size": batch,
                "precision": PRECISIONS[precision][0], "tf32": PRECISIONS[precision][1], "attention": "sdpa",
                "compile": compiles, "device": "cuda" if session.gpus else "cpu", "warm_up": 3,
                "count": session.arguments.steps}
    found = compare.run([session.arguments.peer_python, os.path.join(compare.PEERS, "hf_compare.py"),
                         json.dumps(settings)])
    seconds = json.loads(found.output.splitlines()[-1])["wall"]
    return {"batch": batch, "examples_per_second": batch / seconds}


def scale(session):
    """Measures the speed of training, in examples per second, with 1, 2, 4, … replicas and with one replica
    for each GPU."""
    most = len(session.gpus) or 2
    counts = sorted({most, *(2**power for power in range(10) if 2**power <= most)})
    for model, count in itertools.product(session.arguments.models, counts):
        session.measure("scaling", dict(model=model, replicas=count), replica_speed, session, model, count)


def replica_speed(session, model, count):
    """Trains with `count` replicas; returns {"batch", "examples_per_second"}."""
    arguments, batch = session.arguments, 32 * count
    examples = len(read_text(os.path.join(ROOT, "samples", "MRPC", "train.tsv")).splitlines()) - 1
    with tempfile.TemporaryDirectory() as output_dir:
        log = run_script(command(
            "run_classifier.py", **model_arguments(session, model), task_name="MRPC", do_train=True,
            trim_padding=False, train_batch_size=batch, log_steps=arguments.steps, num_replicas=count,
            num_train_epochs=(3 * arguments.steps + 0.5) * batch / examples, save_checkpoints_steps=10**6,
            precision="bf16" if "bf16" in arguments.precisions else "fp32", output_dir=output_dir))
    # The first two log lines are left out, because they include the start. The first line is about step 1,
    # and the second line is about the steps from 2 to `arguments.steps`.
    speeds = [float(text) for text in re.findall(r"examples/sec (\S+)", log)][2:]
    return {"batch": batch, "examples_per_second": statistics.median(speeds)}


def ops(session):
    """Measures the kernels and bytes of a step, and its ops that take the most time."""
    longest = {model: max(length for one, length in session.cases if one == model)
               for model in session.arguments.models}
    for model, name, use_xla in itertools.product(longest, session.fast_precisions, (False, True)):
        labels = dict(model=model, length=longest[model], precision=name, use_xla=use_xla, batch=8)
        session.measure("ops", labels, in_process, gpu_steps.ops, MODELS[model], longest[model],
                        *PRECISIONS[name][:2], use_xla, 8)


def training(session):
    """Trains and evaluates on two samples, from the installed model or from random weights."""
    installed = not session.is_tiny and model_config.find_installed_model()
    model = "tiny" if session.is_tiny else "base"
    flags = {} if installed else model_arguments(session, model)
    scripts = {"run_classifier.py": ({"task_name": "MRPC"}, "eval_accuracy"), "run_squad.py": ({}, "f1")}
    if session.is_tiny:
        del scripts["run_squad.py"]  # its questions are longer than the sequences of the tiny model
    for name, (script, (own_flags, metric)) in itertools.product(session.fast_precisions[:1],
                                                                 scripts.items()):
        labels = dict(model="the installed model" if installed else f"{model}, random weights",
                      precision=name, script=script)
        session.measure("training", labels, train_on_sample, script, metric, {
            **flags, **own_flags, "precision": PRECISIONS[name][0], "tf32": PRECISIONS[name][1]})


def train_on_sample(script, metric, flags):
    """Trains and evaluates on the sample of a command; returns {"metric", "score"}."""
    with tempfile.TemporaryDirectory() as output_dir:
        run_script(command(script, **flags, output_dir=output_dir))
        results_file = os.path.join(output_dir, "eval_results.json")
        return {"metric": metric, "score": read_json_object(results_file)[metric]}


def answers(session):
    """Measures the speed of predictions."""
    for (model, length), name, size in itertools.product(session.cases, session.fast_precisions[:1], (32, 1)):
        session.measure("answers", dict(model=model, length=length, precision=name, size=size), in_process,
                        gpu_steps.answers, MODELS[model], length, PRECISIONS[name][0], size,
                        session.arguments.steps)


# --- The program -----------------------------------------------------------------------------------------


def parse_arguments():
    """Returns the parsed command line. If the default of a flag depends on the GPU, and the flag is not
    given, its value is None."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(known):
        def parse(text):
            found = text.split(",")
            if set(found) - set(known):
                raise argparse.ArgumentTypeError(f"{text}: the possible values are {','.join(known)}")
            return found
        return parse

    parser.add_argument("--minutes", type=float,
                        help="measure for at most this number of minutes, the most important parts and "
                        "settings first, and go on with the results of an earlier call")
    parser.add_argument("--parts", type=names(PARTS), help=f"default: {','.join(PARTS)}; "
                        f"with --minutes: {','.join(SHORT_PARTS)}")
    parser.add_argument("--models", type=names(MODELS),
                        help="models to run; default: base,large with a GPU, tiny without a GPU")
    parser.add_argument("--lengths", type=lambda text: [int(one) for one in text.split(",")],
                        help="sequence lengths; default: 128,384,512 with a GPU, 32 without a GPU. With "
                        "--minutes, one length for each model, by default 128,384")
    parser.add_argument("--precisions", type=names(PRECISIONS), default=list(PRECISIONS))
    parser.add_argument("--recompute", type=names(("none", "attention", "layers")),
                        help="for the part `memory`: the values of --recompute to measure. "
                        "With a GPU, the default is none,attention,layers. Without a GPU, and with "
                        "--minutes, it is layers")
    parser.add_argument("--cards", type=names(CARDS), default=["rtx3060", "t4"],
                        help="for the part `memory`: smaller cards to simulate. For each card, the memory of "
                        "this GPU is limited to the usable memory of that card")
    parser.add_argument("--tokens", type=int, default=8192, help="for the part `speed`: tokens in a batch")
    parser.add_argument("--steps", type=int, default=10,
                        help="for the parts `losses` and `speed`: number of steps to measure")
    parser.add_argument("--peer_python", help="path of a Python that has torch and transformers")
    results.add_flag(parser)
    parser.set_defaults(results="gpu")
    return parser.parse_args()


def main():
    """Runs the parts; returns the exit code."""
    global end
    arguments, began = parse_arguments(), time.time()
    recorder = results.Recorder(arguments.results, UNITS, [arguments.peer_python],
                                continues=bool(arguments.minutes))
    found = in_process(gpu_steps.devices, environment={})
    gpus = found["gpus"]
    if gpus:
        print(f"GPUs: {', '.join(gpu['name'] for gpu in gpus)}.")
    else:
        print("No GPU was found: all parts measure a tiny model on the CPU. The figures say nothing about "
              f"GPUs. {found['problem'] or ''}".strip())
    is_short = bool(arguments.minutes)
    if is_short:
        end = began + 60 * arguments.minutes
    arguments.parts = arguments.parts or (SHORT_PARTS if is_short else PARTS)
    defaults = {"models": (["base", "large"], ["tiny"]),
                "lengths": ([128, 384] if is_short else [128, 384, 512], [32]),
                "recompute": (["layers"] if is_short else ["none", "attention", "layers"], ["layers"])}
    for name, (with_gpu, without) in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, with_gpu if gpus else without)
    if not any(row["part"] == "devices" for row in recorder.rounds):
        recorder.add(part="devices", gpus=gpus)
    functions = {"losses": losses, "repeat": repeat, "memory": memory, "speed": speed, "scaling": scale,
                 "ops": ops, "commands": commands, "training": training, "answers": answers}
    with tempfile.TemporaryDirectory() as directory:
        session = Session(arguments, recorder, gpus, directory)
        for part in arguments.parts:
            functions[part](session)
    recorder.write()
    gpu_page.write(arguments.results)
    print(f"Failed: {', '.join(dict.fromkeys(session.failed)) or 'nothing'}.")
    return 1 if session.failed else 0


if __name__ == "__main__":
    sys.exit(main())
