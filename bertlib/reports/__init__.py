"""Shows and compares results: HTML reports, significance tests, sweeps, and repetitions of a training."""
