"""Measures the time inside the programs that benchmarks/serving.py starts."""

import json
import sys
import time


def measure(load, answer_one, answer_all):
    """Measures the CPU and wall time of three parts of a program, and prints them as a line of JSON.

    The parts are: load the model and answer the first pair; calls with one pair; one call with all pairs. The
    line also contains the answers to all pairs. The command line contains the path of the model, the path of
    a file of pairs, and the number of calls with one pair.

    Args:
      load: function that takes the path of the model, and returns the loaded model.
      answer_one: function that takes the loaded model and a pair, and returns the probability of the second
        label.
      answer_all: function that takes the loaded model and all pairs, and returns the probabilities of the
        second label.
    """
    model, path, single_calls = sys.argv[1:]
    with open(path, encoding="utf-8") as reader:
        pairs = json.load(reader)
    clocks = [(time.process_time(), time.perf_counter())]

    def lap(what, count=1):
        clocks.append((time.process_time(), time.perf_counter()))
        (cpu, wall), (cpu_now, wall_now) = clocks[-2:]
        found[f"{what}, CPU ms"], found[f"{what}, ms"] = (cpu_now - cpu) / count * 1e3, (
            wall_now - wall) / count * 1e3

    found, calls = {}, int(single_calls)
    loaded = load(model)
    answer_one(loaded, pairs[0])
    lap("load and first answer")
    for index in range(calls):
        answer_one(loaded, pairs[index % len(pairs)])
    lap("a call", calls)
    probabilities = answer_all(loaded, pairs)
    lap("an answer of many", len(pairs))
    print(json.dumps({**found, "probabilities": probabilities}))
