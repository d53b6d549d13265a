"""Answers questions about a paragraph, as in SQuAD: cuts the text into windows, builds the head of the model,
and chooses and scores the answers.

- What is run_squad.py? `squad_task`, with `squad_flags`, `squad_data` (the windows), `squad_head`,
  `squad_target`, `span_selection` (the best spans), `squad_metrics` and `squad_report`
"""
