"""`python -m tf1 SCRIPT`, and the training sessions of scripts."""
