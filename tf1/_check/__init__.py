"""`python -m tf1 --check`: reads a program and reports the lines that will not run."""
