"""Predicts a tag for each word of a sentence, as in named-entity recognition.

- What is run_ner.py? `tagging_task`, with `tagging_flags`, `tagging_head`, `tagging_target`,
  `tagging_metrics` and `tagging_report`
- How are sentences read? `tagging_data` (CoNLL columns, schemes, windows), `tagged_json_lines`,
  `word_splitter` (splits a text as the training text was split)
"""
