"""Reads and writes checkpoints and hub modules.

- What is in a model? `bert_config` (the encoder's configuration, with the names and shapes of its variables)
- How are weights read? `checkpoint_formats` (TensorFlow and Hugging Face, with `hugging_face_names`),
  `hub_module`, `hugging_face_cache` (finds or downloads models)
- Which files does a run leave? `checkpoint_files` (finds and removes checkpoints), `metrics_history`
  (metrics.jsonl up to the checkpoint)
"""
