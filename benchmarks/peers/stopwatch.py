"""Measures the time of function calls in a program that benchmarks/compare.py starts. The first calls are not
measured.
"""

import json
import time


def measure(work, warm_up, count):
    """Calls a function warm_up + count times.

    Prints the mean CPU and wall seconds of a call as JSON. The first `warm_up` calls are left out.
    """
    for call in range(warm_up + count):
        if call == warm_up:
            cpu, wall = time.process_time(), time.perf_counter()
        work()
    print(json.dumps({"cpu": (time.process_time() - cpu) / count,
                      "wall": (time.perf_counter() - wall) / count}))
