"""Runs scripts (`python -m tf1 SCRIPT`), and extends the Estimator and its sessions for scripts."""
