"""The tasks that BERT is trained for: what all of them share, and the driver that runs any task.

The modules of a task make features from text, build the head, and compute answers and scores.
"""

from bertlib import runs  # noqa: F401  raises an error if Python finds the `modeling` of another project
