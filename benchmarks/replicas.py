"""Measures the costs of replicas for equal work: CPU seconds, wall time, waiting and traffic.

    python benchmarks/replicas.py [--replicas=2,4] [--dtypes=fp32,bf16] [--rounds=3] [--steps=4] \\
      [--rows=16] [--length=64] [--threads=1] [--results=NAME]
    python benchmarks/replicas.py --work=ring [--replicas=2,3,4]
    python benchmarks/replicas.py --work=pieces [--replicas=2,3,4]

A step has 4 micro-batches of `rows` sequences of random words. The model has the shape of the installed
model. Two ways to compute this step are compared: R replicas compute N micro-batches each, with R × N = 4, or
one process accumulates 4 micro-batches. In further kinds of work, the processes leave out a part of the step.
The same R processes do all kinds of work, one after the other (benchmarks/peers/replica_steps.py). Each kind
of work has its own session. Its first steps are not measured, so the time of the start has no influence. The
figures are medians over the rounds. They are computed as follows; "CPU" means the CPU seconds of a step:

    alone           = CPU of one process with accumulation
    outside of sums = CPU of replicas that leave out the sums / `alone`
    apart           = CPU of R processes that share the work but do not communicate / `alone`
    sums            = (CPU of replicas - CPU of replicas that leave out the sums) / CPU of a bare all-reduce

`apart` is the cost of R processes on this machine. The difference between `outside of sums` and `apart` is
the cost of this project's code.

The bare all-reduce is the collective op of TensorFlow without a training. It is measured twice: on the same
tensors, and on one tensor with the same number of bytes. --work=ring measures it at several sizes, and fits
seconds = latency + bytes / bandwidth. --work=pieces measures 48 MiB in pieces of several sizes. The traffic
includes the bytes of all programs that use the loopback interface.
"""

import argparse
import collections
import json
import os
import socket
import statistics
import subprocess
import sys

import results

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "benchmarks", "peers", "replica_steps.py")
MICRO_BATCHES, WARM_UP = 4, 2
SIZES = [4 * 4**power for power in range(5, 13)]  # 4 KiB to 64 MiB
PIECES = 48  # MiB
MODEL = {"vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
         "intermediate_size": 1536, "max_position_embeddings": 512, "type_vocab_size": 2}

# The measurement of one kind of work in one round. `sizes` lists the bytes of each sum. `cpu` is the CPU
# seconds of all processes in a step. `wall`, `waiting` and `lead` are seconds of replica 0 in a step; see
# replica_steps.py. `sent` is the number of bytes that are sent over loopback in a step.
Turn = collections.namedtuple("Turn", ["sizes", "cpu", "wall", "waiting", "lead", "sent"])


def environment(threads):
    """Returns the environment variables for a process with this number of threads. The replicas of a command
    get the number of their threads in the same way."""
    return {**os.environ, "TF_NUM_INTRAOP_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
            "TF_NUM_INTEROP_THREADS": str(max(2, threads)), "TF_CPP_MIN_LOG_LEVEL": "2"}


def run(count, options, turns, **more):
    """Runs all kinds of work in `count` processes.

    Args:
      count: number of processes.
      options: the parsed command line.
      turns: the kinds of work in their order, for example [["alone", "fp32"], ["apart", "fp32"]]; see
        replica_steps.py.
      **more: more settings for replica_steps.py.

    Returns:
      a dict. Each value is a list with one `Turn` for each round. A key is (kind, dtype), with one exception:
      for turns of the kind "ring", a key is the number of bytes of the first sum.
    """
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    spec = {"addresses": addresses, "turns": turns, "rounds": options.rounds, "warm_up": WARM_UP,
            "count": options.steps, "micro_batches": MICRO_BATCHES, "shape": [options.rows, options.length],
            "config": MODEL, **more}
    running = [subprocess.Popen([sys.executable, PROGRAM, json.dumps({**spec, "index": index})],
                                stdout=subprocess.PIPE, encoding="utf-8", env=environment(options.threads))
               for index in range(count)]
    lines = [[json.loads(line) for line in process.communicate()[0].splitlines()] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("A process failed; see above.")
    found = collections.defaultdict(list)
    first = [[line for line in some if line["kind"] != "alone"] for some in lines]
    for together in [*([line] for line in lines[0] if line["kind"] == "alone"), *zip(*first)]:
        one = together[0]
        key = one["sizes"][0] if one["kind"] == "ring" else (one["kind"], one["dtype"])
        found[key].append(turn := Turn(
            one["sizes"], sum(line["cpu"] for line in together), *(
                statistics.median(one[name]) for name in ("wall", "waiting", "lead")), one["sent"]))
        options.recorder.add(replicas=count, kind=one["kind"], dtype=one["dtype"], sums=len(turn.sizes),
                             bytes=sum(turn.sizes), cpu=turn.cpu, wall=float(turn.wall),
                             waiting=float(turn.waiting), lead=float(turn.lead), sent=turn.sent / 1e6)
    return found


def middle(turns, name):
    return statistics.median(getattr(turn, name) for turn in turns)


def measure_training(options):
    """Measures trainings, and prints two tables: the costs of a step, and the ratios of these costs."""
    print("| replicas × micro-batches | what | CPU s per step | wall s | waiting s | lead s | MB sent |\n"
          "|---|---|---|---|---|---|---|")
    rows = []
    for count in options.replicas:
        turns = [["alone", "fp32"], ["apart", "fp32"], ["late", "fp32"]]
        turns += [[kind, dtype] for dtype in options.dtypes for kind in ("none", "sums", "bare", "bare one")]
        found = run(count, options, turns)
        for (kind, dtype), some in found.items():
            shared = "1 × 4" if kind == "alone" else f"{count} × {MICRO_BATCHES // count}"
            print(f"| {shared} | {kind}, {dtype} | {middle(some, 'cpu'):.3f} | {middle(some, 'wall'):.3f} | "
                  f"{middle(some, 'waiting'):.3f} | {middle(some, 'lead'):.3f} | "
                  f"{middle(some, 'sent') / 1e6:.1f} |", flush=True)
        rows += [ratios(count, dtype, found) for dtype in options.dtypes]
    print("\n| replicas | dtype | sums | MB | outside of sums / alone | apart / alone | sums / bare, same "
          "tensors | sums / bare, one tensor |\n|---|---|---|---|---|---|---|---|", *rows, sep="\n")


def ratios(count, dtype, found):
    """Returns a row of a table. The table compares the CPU time of replicas with the CPU time of one process.
    """
    rest, sums = found["none", dtype], found["sums", dtype]
    outside, apart = (
        statistics.median(one.cpu / whole.cpu for one, whole in zip(some, found["alone", "fp32"]))
        for some in (rest, found["apart", "fp32"]))
    over = [statistics.median((one.cpu - less.cpu) / alone.cpu for one, less, alone in
                              zip(sums, rest, found[bare, dtype])) for bare in ("bare", "bare one")]
    sizes = sums[0].sizes
    return (f"| {count} | {dtype} | {len(sizes)} | {sum(sizes) / 1e6:.1f} | {outside:.3f} | {apart:.3f} | "
            f"{over[0]:.2f} | {over[1]:.2f} |")


def measure_ring(options):
    """Measures an all-reduce without a training, for several sizes. Prints the times, and fits a linear
    function to them; see `fitted`."""
    print("| replicas | bytes | CPU s of all | wall s |\n|---|---|---|---|")
    for count in options.replicas:
        found = run(count, options, [["ring", "fp32"]], sizes=[[size] for size in SIZES])
        points = [(size, middle(some, "cpu"), middle(some, "wall")) for size, some in found.items()]
        for point in points:
            print("| {} | {:,} | {:.5f} | {:.5f} |".format(count, *point), flush=True)
        for place, name in enumerate(("CPU", "wall"), 1):
            latency, slope = fitted([(point[0], point[place]) for point in points])
            print(f"\n{count} replicas, {name}: {latency:.5f} s + bytes / {1e-9 / slope:.3f} GB/s\n")


def measure_pieces(options):
    """Measures how long the replicas need to sum 48 MiB of numbers (`PIECES`). The numbers are divided into
    pieces of equal size. Prints the time for each size."""
    print("| replicas | pieces of, MiB | CPU s of all | wall s |\n|---|---|---|---|")
    for count in options.replicas:
        sizes = [[size * 2**20] * (PIECES // size) for size in (48, 16, 8, 4, 2, 1)]
        for size, some in run(count, options, [["ring", "fp32"]], sizes=sizes).items():
            print(f"| {count} | {size // 2**20} | {middle(some, 'cpu'):.3f} | {middle(some, 'wall'):.3f} |",
                  flush=True)


def fitted(points):
    """Fits seconds = latency + bytes · slope by least squares of relative errors.

    Returns (latency, slope).
    """
    # Each point gives an equation. Both sides of the equation are divided by the seconds of the point, so
    # that all sizes have the same weight.
    rows = [(1 / seconds, size / seconds) for size, seconds in points]
    a, b, d = (sum(one[i] * one[j] for one in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    e, f = (sum(one[i] for one in rows) for i in (0, 1))
    return (e * d - b * f) / (a * d - b * b), (a * f - b * e) / (a * d - b * b)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    works = {"training": measure_training, "ring": measure_ring, "pieces": measure_pieces}
    parser.add_argument("--work", choices=list(works), default="training")
    for name, value in (("rounds", 3), ("steps", 4), ("rows", 16), ("length", 64), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--replicas", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["fp32", "bf16"])
    results.add_flag(parser)
    options = parser.parse_args()
    options.recorder = results.Recorder(options.results, {
        "cpu": "CPU s per step", "wall": "s per step", "waiting": "s per step", "lead": "s per step",
        "sent": "MB per step"})
    options.replicas = options.replicas or ([2, 4] if options.work == "training" else [2, 3, 4])
    works[options.work](options)
    options.recorder.write()


if __name__ == "__main__":
    main()
