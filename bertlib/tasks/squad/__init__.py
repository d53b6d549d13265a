"""Answers questions about a paragraph, as in SQuAD: cuts the text into windows, builds the head of the model,
and chooses and scores the answers."""
