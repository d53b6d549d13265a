"""Answers questions about a paragraph, as in SQuAD: windows, the head, answers and scores."""
