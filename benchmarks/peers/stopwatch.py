"""Measures repeated work without its first repetitions, for the programs that benchmarks/compare.py starts.
"""

import json
import time


def measure(work, warm_up, count):
    """Calls a function warm_up + count times. Prints the CPU seconds and the wall seconds of the last `count`
    calls as JSON."""
    for call in range(warm_up + count):
        if call == warm_up:
            cpu, wall = time.process_time(), time.perf_counter()
        work()
    print(json.dumps({"cpu": (time.process_time() - cpu) / count,
                      "wall": (time.perf_counter() - wall) / count}))
