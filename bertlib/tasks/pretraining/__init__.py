"""Pre-training: makes instances with masked words from a corpus, and builds the two heads that are trained on
these instances.

- What is run_pretraining.py? `pretraining_task`, with `pretraining_flags`, `pretraining_head` and
  `pretraining_target`
- What is create_pretraining_data.py? `pretraining_data` makes instances and masks words, `pretraining_stream`
  on one machine, `pretraining_beam` on many.
- How do the records connect the two? `pretraining_records`
"""
