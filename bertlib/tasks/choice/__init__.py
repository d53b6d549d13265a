"""Chooses the right one of several endings of a text, as in SWAG.

- What is run_swag.py? `choice_task`, with `choice_flags`, `choice_data` (reads the questions, and makes their
  features), `choice_head` and `choice_target`
"""
