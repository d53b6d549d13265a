"""Predicts a tag for each word of a sentence, as in named-entity recognition.

- What is run_ner.py? `tagging_task`, with `tagging_flags`, `tagging_head`, `tagging_target`,
  `tagging_metrics` and `tagging_report`
- How are sentences read? `sentence_files`, `conll_files`, `tag_schemes` (tags and entities), `word_splitter`
  (splits a text as the training text was split)
- How do they become inputs of the model? `tagging_windows`
"""
