"""Names of graph collections. Through them, the modules that build a training graph exchange objects."""

# Name of the collection that holds scalar tensors. The training logs them next to the loss, each under the
# name of its op.
LOGGED_SCALARS = "logged_scalars"
# Name of the collection that holds the `optimization.Accumulation` of a step with several micro-batches.
GRADIENT_ACCUMULATION = "gradient_accumulation"
# Name of the collection that holds, if the loss is scaled, an integer scalar tensor: the number of
# consecutive steps that were skipped up to now.
CONSECUTIVE_SKIPPED_STEPS = "consecutive_skipped_steps"
# Name of the collection that holds the variables that a checkpoint may lack. A training that resumes from a
# checkpoint without them initializes them.
OPTIONAL_IN_CHECKPOINT = "optional_in_checkpoint"
# Name of the collection that holds an integer variable, the index of the next micro-batch, if an op reads it.
# Also the name of this variable.
MICRO_BATCH_INDEX = "micro_batch_index"
# Name of the collection that is not empty if the input starts at the global step. A checkpoint then needs no
# position of the input.
STARTS_AT_GLOBAL_STEP = "input_starts_at_global_step"
# Name of the collection that holds the readers of the input's records. After an error, they find the bad
# record.
RECORD_READERS = "record_readers"
# Name of the collection that is not empty if the kernels are compiled for this machine's CPU.
COMPILED_KERNELS = "compiled_kernels"
# Name of the collection that holds at most one integer scalar tensor: the index of the micro-batch that the
# graph computes, within the effective batch.
RANDOMNESS_MICRO_BATCH = "randomness_micro_batch"
# Name of the collection that is not empty if the micro-batches draw different numbers of random values.
RANDOMNESS_UNEQUAL_MICRO_BATCHES = "randomness_unequal_micro_batches"
# Name of the collection that holds at most one random integer tensor, drawn in each run. It replaces the
# global step in a graph without a global step.
RANDOMNESS_FALLBACK_STEP = "randomness_fallback_step"
# Name of the collection that holds at most one `collectives.AllReduce`, which sums the gradients of all
# replicas.
ALL_REDUCE = "all_reduce"
# Name of the collection that holds at most one pair (index, count). Outside of training, the input then
# yields only the batches n for which n modulo `count` is `index`.
SHARD = "shard"
# Name of the collection that is not empty if the input yields only the batches of a `SHARD`.
SHARDED_INPUT = "sharded_input"
