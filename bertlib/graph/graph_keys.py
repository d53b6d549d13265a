"""Names of the graph collections through which modules that build a graph exchange objects. The comment above
a name says what its collection contains, who adds it, and who reads it. Each other collection belongs to one
module, which defines its name.

TensorFlow writes the collections into the MetaGraph of each checkpoint, except those whose name is not a str.
So the name of a collection of Python objects is a tuple. Otherwise, TensorFlow would log a warning at each
checkpoint.
"""

# Scalar tensors, which the training logs next to the loss, each with the name of its op. Added by
# `optimization`, read by `session_hooks.ProgressHook`.
LOGGED_SCALARS = "logged_scalars"
# The `optimization.Accumulation` of a step that sums gradients. Added by `optimization`, read by
# `training_session`.
GRADIENT_ACCUMULATION = ("gradient_accumulation",)
# An integer scalar tensor if the loss is scaled: the number of consecutive skipped steps, up to the current
# step. Added by `optimization.LossScale`, read by `session_hooks.ProgressHook`.
CONSECUTIVE_SKIPPED_STEPS = "consecutive_skipped_steps"
# The variables that a checkpoint may lack. If a training resumes from a checkpoint without these variables,
# the training initializes them. Added by `optimization.LossScale`, read by `sessions`.
OPTIONAL_IN_CHECKPOINT = "optional_in_checkpoint"
# In a training, an integer variable with the same name: the index of the next micro-batch. Added by
# `model_graph.Builder`, read by `optimization`, which counts it up.
MICRO_BATCH_INDEX = "micro_batch_index"
# The local variables with prepared weights. Added by `inference_kernels.InferenceKernels`, read by
# `sessions`.
PREPARED_WEIGHTS = ("prepared_weights",)
# At most one `collectives.AllReduce`, which sums the gradients of all replicas. Added by `training_session`
# (or, for sessions of a script, by `tf1`), read by `collectives.current_all_reduce`.
ALL_REDUCE = ("all_reduce",)
