"""Trains, evaluates and exports the model of a `model_fn`, and predicts with it.

- What does a program call? `estimator`, with a `run_config`; a model_fn returns an `estimator_spec`,
  and `input_functions` read records.
- How does a training run? `model_graph` builds the graph, `sessions` restores the weights and opens the
  session, and `training_session` runs its steps, with `session_hooks` (loss, checkpoints, log),
  `replica_sync` and `profiling`.
- How does it evaluate and predict, also during a training? `evaluation`
- Does a step fit into memory? `step_config` chooses the step, and `memory_planner` simulates it.
- How is the graph exported? `saved_model`

This package works with any `model_fn`. It does not import the modules that implement BERT.
"""
