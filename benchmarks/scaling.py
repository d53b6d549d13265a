"""Computes a table for docs/development/scaling.md: the time of a step with 8, 64 and 1,024 replicas.

The formulas are explained on the same page.

    python benchmarks/scaling.py

All numbers about GPUs and networks below are assumptions. They were not measured.
"""

import collections
import math

import compare

# A model. `parameters`: number of its parameters. `last`: number of parameters of the word embeddings, whose
# gradient is ready last. `sums`: number of sums over the replicas in a step. `rows`: number of sequences in a
# micro-batch. `operations`: floating point operations of the forward and backward pass of one sequence.
Model = collections.namedtuple("Model", ["parameters", "last", "sums", "rows", "operations"])
# `bandwidth`: bytes per second that each replica can send, and can receive at the same time.
# `latency`: seconds that a message needs from one replica to the next.
Network = collections.namedtuple("Network", ["bandwidth", "latency"])

LENGTH, BATCHES = 128, [256, 4096, 65536]
LARGE = {**compare.BASE, "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
MODELS = {
    "Base": Model(110e6, 23.4e6, 3 * 12 + 3, 64, 3 * compare.forward_operations(compare.BASE, LENGTH)),
    "Large": Model(335e6, 31.3e6, 4 * 24 + 3, 32, 3 * compare.forward_operations(LARGE, LENGTH))}
# The assumed speed of a GPU: floating point operations per second in bf16, and bytes per second that it reads
# or writes.
OPERATIONS, MEMORY = 100e12, 1.5e12
# Bytes that an update moves for each parameter, at 4 bytes a number: the gradient is read (4 bytes); the
# weight and its two slots are read and written (24 bytes).
BYTES_OF_UPDATE = 28
NVLINK, ETHERNET = Network(150e9, 5e-6), Network(12.5e9, 20e-6)
NETWORKS = {8: NVLINK, 64: ETHERNET, 1024: ETHERNET}


def seconds_of_sum(replicas, size, network, sums, tree):
    """Returns the seconds that all-reduces take. `sums` is the number of all-reduces, and `size` is the total
    number of bytes that they add up. If `tree` is false, the replicas form a ring."""
    hops = math.ceil(math.log2(replicas)) if tree else replicas - 1
    return 2 * hops * sums * network.latency + 2 * (replicas - 1) / replicas * size / network.bandwidth


def step(model, replicas, batch, width, tree):
    """Returns the seconds of a step in three parts: (computation, wait for the sums, update). In the sums,
    each number of a gradient has `width` bytes."""
    network, rows = NETWORKS[replicas], batch / replicas
    sequence = model.operations / OPERATIONS
    sums = seconds_of_sum(replicas, model.parameters * width, network, model.sums, tree)
    last = seconds_of_sum(replicas, model.last * width, network, 1, tree)
    backward = 2 / 3 * min(rows, model.rows) * sequence  # seconds of the last backward pass
    return rows * sequence, max(sums - backward, last), model.parameters * BYTES_OF_UPDATE / MEMORY


def main():
    print("| model | replicas | data type of the gradients | time of the sums: tree "
          "| time of the sums: ring |"
          + "".join(f" batch {batch:,}: time of a step, share of computation |" for batch in BATCHES) + "\n"
          + "|---" * (5 + len(BATCHES)) + "|")
    for name, model in MODELS.items():
        for replicas, network in NETWORKS.items():
            for dtype, width in (("fp32", 4), ("bf16", 2)):
                sums = [seconds_of_sum(replicas, model.parameters * width, network, model.sums, tree)
                        for tree in (True, False)]
                cells = [f"{1e3 * seconds:,.0f} ms" for seconds in sums]
                for batch in BATCHES:
                    parts = step(model, replicas, batch, width, tree=True)
                    cells.append(f"{1e3 * sum(parts):,.0f} ms, {parts[0] / sum(parts):.0%}"
                                 if batch >= replicas else "not possible: fewer examples than replicas")
                print(f"| {name} | {replicas:,} | {dtype} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
