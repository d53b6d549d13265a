"""Running scripts (`python -m tf1 SCRIPT`), and their training sessions."""
