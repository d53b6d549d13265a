"""`python -m tf1 --check`: reads a program and says which of its lines will not run."""
