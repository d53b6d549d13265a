"""Computes the table of docs/development/scaling.md about 8, 64 and 1,024 replicas, from its formulas.

    python benchmarks/scaling.py

All numbers about GPUs and networks below are assumptions. They were not measured.
"""

import collections
import math

import compare

# Per model: number of parameters, parameters of the last gradient that is ready (the word embeddings),
# number of sums in a step, rows of a micro-batch, and floating point operations of a sequence's forward and
# backward pass.
Model = collections.namedtuple("Model", ["parameters", "last", "sums", "rows", "operations"])
# `bandwidth`: bytes per second that each replica can send, and can receive at the same time.
# `latency`: seconds that a message needs from one replica to the next.
Network = collections.namedtuple("Network", ["bandwidth", "latency"])

LENGTH, BATCHES = 128, [256, 4096, 65536]
LARGE = {**compare.BASE, "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
MODELS = {
    "Base": Model(110e6, 23.4e6, 3 * 12 + 3, 64, 3 * compare.forward_operations(compare.BASE, LENGTH)),
    "Large": Model(335e6, 31.3e6, 4 * 24 + 3, 32, 3 * compare.forward_operations(LARGE, LENGTH))}
# A GPU's floating point operations in bf16, and the bytes that it reads or writes, both per second.
OPERATIONS, MEMORY = 100e12, 1.5e12
# Bytes per parameter: its gradient is read, and its weight and its two slots are read and written.
BYTES_OF_UPDATE = 28
NVLINK, ETHERNET = Network(150e9, 5e-6), Network(12.5e9, 20e-6)
NETWORKS = {8: NVLINK, 64: ETHERNET, 1024: ETHERNET}


def seconds_of_sum(replicas, size, network, sums, tree):
    """Returns the seconds of `sums` sums over all replicas, with `size` bytes in total."""
    hops = math.ceil(math.log2(replicas)) if tree else replicas - 1
    return 2 * hops * sums * network.latency + 2 * (replicas - 1) / replicas * size / network.bandwidth


def step(model, replicas, batch, width, tree):
    """Returns the seconds of a step: (compute, waiting for sums with `width` bytes per gradient, update)."""
    network, rows = NETWORKS[replicas], batch / replicas
    sequence = model.operations / OPERATIONS
    sums = seconds_of_sum(replicas, model.parameters * width, network, model.sums, tree)
    last = seconds_of_sum(replicas, model.last * width, network, 1, tree)
    backward = 2 / 3 * min(rows, model.rows) * sequence  # seconds of the last micro-batch
    return rows * sequence, max(sums - backward, last), model.parameters * BYTES_OF_UPDATE / MEMORY


def main():
    print("| model | replicas | gradients in | sums, tree | sums, ring |"
          + "".join(f" batch {batch:,} |" for batch in BATCHES) + "\n" + "|---" * (5 + len(BATCHES)) + "|")
    for name, model in MODELS.items():
        for replicas, network in NETWORKS.items():
            for dtype, width in (("fp32", 4), ("bf16", 2)):
                sums = [seconds_of_sum(replicas, model.parameters * width, network, model.sums, tree)
                        for tree in (True, False)]
                cells = [f"{1e3 * seconds:,.0f} ms" for seconds in sums]
                for batch in BATCHES:
                    parts = step(model, replicas, batch, width, tree=True)
                    cells.append(f"{1e3 * sum(parts):,.0f} ms, {parts[0] / sum(parts):.0%}"
                                 if batch >= replicas else "no")
                print(f"| {name} | {replicas:,} | {dtype} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
