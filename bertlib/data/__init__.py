"""Reads the rows of a user's files, writes records, and reads records as batches. Writes and reads tables of
predictions.

- What is in a file of rows? `tables` (CSV, TSV, JSON Lines), `header_rows`, `columns` (which ones have the
  texts), `labelled_rows` (texts and labels), `row_fields`, `label_lists`, `label_map`, `text_keys`; `corpus`
  for plain text
- Which lines are bad, and which texts are unusual? `faults`, `unknown_tokens`
- How do examples become batches? `example_encoding`, `tfrecord_files`, `tfrecord_manifests`,
  `features_cache`, `batches` (the size of a batch and its micro-batches), `input_pipeline`
- What is a table of predictions? `prediction_rows`, `prediction_files` (writes it), `prediction_tables`
  (reads it, and computes its metrics)
"""
