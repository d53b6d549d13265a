"""What replicas cost at equal work: CPU seconds, wall, waiting, memory and traffic of 1, 2 and 4 processes.

    python benchmarks/replicas.py [--rounds=2] [--steps=6] [--batch_size=64] [--length=64] [--threads=1] \\
      [--replicas=2,4] [--dtypes=fp32,bf16]
    python benchmarks/replicas.py --work=all_reduce [--replicas=2,3,4]

A step of `batch_size` pairs of the sample of MRPC, padded to `length`, is cut into 4 micro-batches (or as many as
there are replicas), which R replicas share: R × N = 4. One process with accumulation 4 is what they are held to.
run_classifier.py trains, as a user starts it, but for the variants in benchmarks/peers/replica_run.py. After the
first steps the CPU clocks of all its processes are read, and again after `steps` more, so that starting
does not count. The sides take turns; figures are medians of the rounds.

    outside of sums = CPU of replicas that leave the sums out / CPU of one process with accumulation
    sums            = (CPU of replicas - CPU of replicas that leave them out) / CPU of a bare all-reduce

The bare all-reduce is benchmarks/peers/all_reduce.py: the same tensors between as many processes, and the
same bytes as one tensor. --work=all_reduce runs it at several sizes and fits seconds = latency + bytes / bandwidth
to the medians. Traffic is what the loopback interface counted, whoever sent it.
"""

import argparse
import collections
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEERS = os.path.join(ROOT, "benchmarks", "peers")
MICRO_BATCHES, WARM_UP = 4, 2
SIZES = [4 * 4**power for power in range(5, 13)]  # 4 KiB to 64 MiB
TICK = os.sysconf("SC_CLK_TCK")

# A side of the comparison.
Side = collections.namedtuple("Side", ["replicas", "micro_batches", "variant", "dtype"])
# What a step took: CPU seconds of all processes, wall seconds, bytes on loopback; the largest process; what the
# log says of a step: waiting for the others, and how long before its last gradient its first sum could begin.
Step = collections.namedtuple("Step", ["cpu", "wall", "traffic", "peak", "waiting", "lead"])


def environment(threads):
    """So many threads in every process, as the launcher would give each of several."""
    return {**os.environ, "TF_NUM_INTRAOP_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
            "TF_NUM_INTEROP_THREADS": str(max(2, threads))}


# --- Clocks of other processes ---------------------------------------------------------------------------


def processes(launcher):
    """The numbers of a process and of its children."""
    found = [launcher]
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(stat(name)[1]) == launcher:
                found.append(int(name))
        except OSError:  # it has ended
            continue
    return found


def stat(process):
    """The fields of /proc/PID/stat from the third one on."""
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()


def clocks(found):
    """(CPU seconds of some processes, wall seconds, bytes that loopback has sent)."""
    cpu = sum(int(ticks) for process in found for ticks in stat(process)[11:13]) / TICK
    with open("/proc/net/dev", encoding="utf-8") as file:
        traffic = next(int(line.split()[9]) for line in file if line.strip().startswith("lo:"))
    return cpu, time.perf_counter(), traffic


def peak(process):
    """The largest resident size of a process in bytes."""
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


# --- Training --------------------------------------------------------------------------------------------


def train(side, options):
    """Trains; returns (a `Step`, bytes of each tensor that was summed in a step)."""
    examples = 607
    steps = WARM_UP + options.steps + 1  # so that no process ends while it is looked at
    with tempfile.TemporaryDirectory() as directory:
        command = [
            sys.executable, os.path.join(PEERS, "replica_run.py"), side.variant, "--task_name=MRPC",
            "--do_train=true", "--trim_padding=false", f"--max_seq_length={options.length}", "--log_steps=1",
            f"--train_batch_size={options.batch_size}", f"--output_dir={directory}/output",
            f"--num_train_epochs={(steps + 0.5) * options.batch_size / examples}",
            f"--num_replicas={side.replicas}", f"--gradient_accumulation_steps={side.micro_batches}",
            f"--gradient_dtype={side.dtype}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8",
                              env=environment(options.threads)) as process:
            return watch(process, options.steps)


def watch(process, steps):
    """Reads the clocks of a training as its log goes on; returns as `train` does."""
    readings, values, sizes, log = [], collections.defaultdict(list), [], []
    for line in process.stderr:
        log.append(line)
        if found := re.search(r"Sum of (\d+) bytes", line):
            sizes.append(int(found[1]))
        found = re.search(r"step (\d+)/", line)
        if not found:
            continue
        number = int(found[1])
        if number in (WARM_UP, WARM_UP + steps):
            all_processes = processes(process.pid)
            readings.append(clocks(all_processes))
            largest = max(map(peak, all_processes))
        if WARM_UP < number <= WARM_UP + steps:
            for name, value in re.findall(r"(waiting_seconds|lead_seconds) (\S+)", line):
                values[name].append(float(value))
    if process.wait() or len(readings) != 2:
        raise SystemExit("".join(log[-20:]))
    taken = [(last - first) / steps for first, last in zip(*readings)]
    waiting, lead = (statistics.median(values[name]) if values[name] else 0.0
                     for name in ("waiting_seconds", "lead_seconds"))
    return Step(*taken, largest, waiting, lead), sizes


# --- Bare all-reduce -------------------------------------------------------------------------------------


def all_reduce(count, trials, threads):
    """Runs benchmarks/peers/all_reduce.py; returns for each trial (CPU seconds of all processes, wall seconds
    of the slowest, bytes on loopback over all trials), medians over its times."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    running = [subprocess.Popen(
        [sys.executable, os.path.join(PEERS, "all_reduce.py"),
         json.dumps({"addresses": addresses, "index": index, "trials": trials})],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", env=environment(threads))
        for index in range(count)]
    answers = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("A process of the bare all-reduce failed.")
    by_trial = zip(*map(json.loads, answers))
    # CPU in the mean: one time's work may end in the next one.
    return [(sum(statistics.mean(cpu for cpu, _ in times) for times in processes_of_trial),
             statistics.median(max(walls) for walls in zip(*([wall for _, wall in times]
                                                             for times in processes_of_trial))))
            for processes_of_trial in by_trial]


def fitted(points):
    """Least squares of the relative errors of seconds = latency + bytes · slope; returns (latency, slope)."""
    # Each equation divided by its seconds, so that small sizes count as much as large ones.
    rows = [(1 / seconds, size / seconds) for size, seconds in points]
    a, b, d = (sum(one[i] * one[j] for one in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    e, f = (sum(one[i] for one in rows) for i in (0, 1))
    return (e * d - b * f) / (a * d - b * b), (a * f - b * e) / (a * d - b * b)


def measure_ring(options):
    """Prints the bare all-reduce at several sizes, and the line fitted to it."""
    print("| replicas | bytes | CPU s of all | wall s |\n|---|---|---|---|")
    for count in options.replicas:
        trials = [{"sizes": [size], "dtype": "float32", "warm_up": 3, "count": 40 if size < 2**22 else 8}
                  for size in SIZES]
        found = all_reduce(count, trials, options.threads)
        for size, (cpu, wall) in zip(SIZES, found):
            print(f"| {count} | {size:,} | {cpu:.5f} | {wall:.5f} |", flush=True)
        for name, column in (("CPU", 0), ("wall", 1)):
            latency, slope = fitted([(size, one[column]) for size, one in zip(SIZES, found)])
            print(f"  {count} replicas, {name}: {latency * 1e3:.2f} ms + bytes / {1e-9 / slope:.3f} GB/s")


# --- All of it -------------------------------------------------------------------------------------------


def sides_of(options):
    """The sides, in the order in which they take turns."""
    sides = [Side(1, MICRO_BATCHES, "sums", "fp32")]
    for count in options.replicas:
        shared = Side(count, MICRO_BATCHES // count, "none", "fp32")
        sides += [shared, *(shared._replace(variant="sums", dtype=dtype) for dtype in options.dtypes),
                  shared._replace(variant="late")]
    return sides


def bare(side, sizes, options):
    """(CPU, wall) of the same tensors, and of the same bytes as one tensor."""
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[side.dtype]
    trials = [{"sizes": some, "dtype": dtype, "warm_up": 2, "count": 6} for some in (sizes, [sum(sizes)])]
    return all_reduce(side.replicas, trials, options.threads)


def median(steps):
    return Step(*map(statistics.median, zip(*steps)))


def measure_training(options):
    sides = sides_of(options)
    steps, bares, sizes_of = (collections.defaultdict(list) for _ in range(3))
    for turn in range(options.rounds):
        for side in sides:
            step, sizes = train(side, options)
            steps[side].append(step)
            sizes_of[side] = sizes
            print(f"round {turn}: {side} {step}", file=sys.stderr, flush=True)
            if side.variant == "sums" and side.replicas > 1:
                bares[side].append(bare(side, sizes, options))
                print(f"round {turn}: bare {bares[side][-1]}", file=sys.stderr, flush=True)
    report(sides, steps, bares, sizes_of)


def report(sides, steps, bares, sizes_of):
    """Prints the tables."""
    print("| replicas × micro-batches | sums | CPU s | wall s | waiting s | lead s | traffic MB | largest "
          "process GB |\n|---|---|---|---|---|---|---|---|")
    for side in sides:
        found = median(steps[side])
        variant = f"{side.dtype}, {side.variant}" if side.replicas > 1 else ""
        print(f"| {side.replicas} × {side.micro_batches} | {variant} | {found.cpu:.2f} | {found.wall:.2f} | "
              f"{found.waiting:.3f} | {found.lead:.3f} | {found.traffic / 1e6:.0f} | {found.peak / 1e9:.2f} |")
    print("\n| replicas | dtype | tensors | MB | outside of sums / accumulation | sums, CPU s | bare, same tensors "
          "| bare, one tensor | sums / bare |\n|---|---|---|---|---|---|---|---|---|")
    one = sides[0]
    for side, found in bares.items():
        rest = steps[side._replace(variant="none", dtype="fp32")]
        outside = statistics.median(some.cpu / whole.cpu for some, whole in zip(rest, steps[one]))
        sums = statistics.median(some.cpu - less.cpu for some, less in zip(steps[side], rest))
        same, single = (statistics.median(each[place][0] for each in found) for place in (0, 1))
        print(f"| {side.replicas} | {side.dtype} | {len(sizes_of[side])} | {sum(sizes_of[side]) / 1e6:.1f} | "
              f"{outside:.3f} | {sums:.3f} | {same:.3f} | {single:.3f} | {sums / same:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=["training", "all_reduce"], default="training")
    for name, value in (("rounds", 2), ("steps", 6), ("batch_size", 64), ("length", 64), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--replicas", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["fp32", "bf16"])
    options = parser.parse_args()
    options.replicas = options.replicas or ([2, 4] if options.work == "training" else [2, 3, 4])
    measure_training(options) if options.work == "training" else measure_ring(options)


if __name__ == "__main__":
    main()
