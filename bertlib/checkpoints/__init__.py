"""Reads and writes checkpoints and hub modules, and restores the checkpoint of a run.

- What is in a model? `bert_config` (the encoder's configuration, with the names and shapes of its variables)
- How are weights read? `checkpoint_formats` (TensorFlow and Hugging Face), `hub_module`,
  `hugging_face_cache` (finds or downloads models)
- How does a run go on? `resume` (restores the state), `metrics_history` (metrics.jsonl up to the checkpoint),
  `checkpoint_files` (finds and removes files)
"""
