"""Computes the estimates of docs/development/scaling.md for 8, 64 and 1,024 replicas.

    python benchmarks/scaling.py

All numbers about GPUs and networks in this file are assumptions. None of them was measured.
"""

import collections
import math

import compare

# `last` is the number of parameters of the tensor whose gradient is ready last: the embedding of the words.
# `sums` is the number of sums in a step, `rows` the number of rows of a micro-batch, and `operations` the
# number of floating point operations in the forward and backward pass of a sequence.
Model = collections.namedtuple("Model", ["parameters", "last", "sums", "rows", "operations"])
# `bandwidth` is in bytes/s, both into and out of each replica. `latency` is in seconds, from one replica to
# the next.
Network = collections.namedtuple("Network", ["bandwidth", "latency"])

LENGTH, BATCHES = 128, [256, 4096, 65536]
LARGE = {**compare.BASE, "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
MODELS = {
    "Base": Model(110e6, 23.4e6, 3 * 12 + 3, 64, 3 * compare.forward_operations(compare.BASE, LENGTH)),
    "Large": Model(335e6, 31.3e6, 4 * 24 + 3, 32, 3 * compare.forward_operations(LARGE, LENGTH))}
OPERATIONS, MEMORY = 100e12, 1.5e12  # of a GPU in a second: floating point in bf16; bytes read or written
BYTES_OF_UPDATE = 28  # a parameter's gradient read, its weight and two slots read and written
NVLINK, ETHERNET = Network(150e9, 5e-6), Network(12.5e9, 20e-6)
NETWORKS = {8: NVLINK, 64: ETHERNET, 1024: ETHERNET}


def seconds_of_sum(replicas, size, network, sums, tree):
    """Seconds of so many sums of `size` bytes altogether, each over all replicas."""
    hops = math.ceil(math.log2(replicas)) if tree else replicas - 1
    return 2 * hops * sums * network.latency + 2 * (replicas - 1) / replicas * size / network.bandwidth


def step(model, replicas, batch, width, tree):
    """Seconds of a step: (compute, waiting for sums of `width` bytes a gradient, update)."""
    network, rows = NETWORKS[replicas], batch / replicas
    sequence = model.operations / OPERATIONS
    sums = seconds_of_sum(replicas, model.parameters * width, network, model.sums, tree)
    last = seconds_of_sum(replicas, model.last * width, network, 1, tree)
    backward = 2 / 3 * min(rows, model.rows) * sequence  # of the last micro-batch
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
