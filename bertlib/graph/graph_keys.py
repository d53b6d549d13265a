"""Names of graph collections. The comment above a name says what its collection contains.

The modules that build a training graph exchange objects through these collections. TensorFlow writes the
collections into the MetaGraph of each checkpoint, except those whose name is not a str. So the name of a
collection of Python objects is a tuple. Otherwise, TensorFlow would log a warning at each checkpoint.
"""

# Contains scalar tensors. The training logs these tensors next to the loss. In the log, each tensor has the
# name of its op.
LOGGED_SCALARS = "logged_scalars"
# Contains the `optimization.Accumulation` of a step with several micro-batches.
GRADIENT_ACCUMULATION = ("gradient_accumulation",)
# Contains an integer scalar tensor if the loss is scaled. The value of this tensor is the number of
# consecutive skipped steps, up to the current step.
CONSECUTIVE_SKIPPED_STEPS = "consecutive_skipped_steps"
# Contains the variables that a checkpoint may lack. If a training resumes from a checkpoint without these
# variables, the training initializes them.
OPTIONAL_IN_CHECKPOINT = "optional_in_checkpoint"
# Contains an integer variable with the same name. Its value is the index of the next micro-batch. It exists
# only in graphs of a training.
MICRO_BATCH_INDEX = "micro_batch_index"
# Not empty if the input of a resumed training starts directly at the batch of the global step. So checkpoints
# do not have to contain the position of the input.
STARTS_AT_GLOBAL_STEP = "input_starts_at_global_step"
# Contains the readers of the input's records. After an error of the input, these readers find the bad record.
RECORD_READERS = ("record_readers",)
# Contains at most one integer scalar tensor. Its value is the index, within the effective batch, of the
# micro-batch that the graph computes.
RANDOMNESS_MICRO_BATCH = "randomness_micro_batch"
# Not empty if micro-batches may draw different numbers of random values.
RANDOMNESS_UNEQUAL_MICRO_BATCHES = "randomness_unequal_micro_batches"
# Contains at most one integer tensor. Each `session.run` draws a new random value for this tensor. In a graph
# without a global step, the tensor replaces the global step.
RANDOMNESS_FALLBACK_STEP = "randomness_fallback_step"
# Contains at most one int64 scalar tensor: `randomness.zero_when_run`.
ZERO_WHEN_RUN = "zero_when_run"
# Contains at most one int: the global step at which the input of a training began.
INPUT_START = "input_start"
# Contains at most one int64 tensor: the cardinality of the dataset that the input_fn of a training returned.
INPUT_CARDINALITY = "input_cardinality"
# Contains at most one int, in a graph that predicts: how many such graphs the Estimator has built. In these
# graphs, random numbers do not depend on the global step, which does not change there.
RANDOMNESS_PASS = "randomness_pass"
# Contains the local variables with prepared weights, see `inference_kernels.InferenceKernels`.
PREPARED_WEIGHTS = ("prepared_weights",)
# Contains at most one `collectives.AllReduce`, which sums the gradients of all replicas.
ALL_REDUCE = ("all_reduce",)
# Contains at most one pair (index, count). If the collection contains a pair, the input of an evaluation or a
# prediction yields only the batches n for which n modulo `count` is `index`. The input of a training ignores
# the pair.
SHARD = ("shard",)
# Not empty if the input yields only this replica's part of the batches; see `SHARD`.
SHARDED_INPUT = "sharded_input"
