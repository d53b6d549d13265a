"""Graph collections by which the parts of a training graph know of each other, whatever built them."""

# Scalar tensors that a training loop logs beside the loss, each under its op's name.
LOGGED_SCALARS = "logged_scalars"
# The one `optimization.Accumulation`, if a step takes several micro-batches.
GRADIENT_ACCUMULATION = "gradient_accumulation"
# An integer scalar tensor, if the loss is scaled: how many steps in a row were skipped up to now.
CONSECUTIVE_SKIPPED_STEPS = "skipped_in_a_row"
# Variables that start anew in a training that goes on from a checkpoint without them.
OPTIONAL_IN_CHECKPOINT = "optional_in_checkpoint"
# An integer variable that says which micro-batch is the next one, if anything has to know.
MICRO_BATCH_INDEX = "micro_batch_index"
# Not empty if the input starts at the global step by itself, and so has no position to save.
STARTS_AT_GLOBAL_STEP = "input_starts_at_global_step"
# What the records of the input are read with: they say which one is to blame for an error.
RECORD_READERS = "records"
# Not empty if the kernels are made for this machine's CPU.
COMPILED_KERNELS = "compiled_kernels"
# At most one scalar: which part of the effective batch, that is which micro-batch, this graph computes.
RANDOMNESS_MICRO_BATCH = "randomness_part"
# Not empty if micro-batches differ in the number of values they draw.
RANDOMNESS_UNEQUAL_MICRO_BATCHES = "randomness_unequal_micro_batches"
# At most one random tensor, drawn in each run: it stands for the global step in a graph that has none.
RANDOMNESS_FALLBACK_STEP = "randomness_fallback_step"
# At most one `collectives.AllReduce`: by it the replicas of a training add up gradients.
ALL_REDUCE = "exchange"
# At most one (index, count): outside of training the input yields batch `index` of every `count` batches.
SHARD = "share"
# Not empty if the input yields only such a shard of the batches.
SHARDED_INPUT = "shared_input"
