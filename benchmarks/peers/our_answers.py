"""Measures the CPU time and the wall time of this project's predictions, for benchmarks/serving.py.

    python benchmarks/peers/our_answers.py MODEL_DIR PAIRS CALLS

PAIRS is a JSON file with a list of pairs of texts. CALLS is the number of calls with one pair.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from clock import measure

from bertlib import serving


def second(answer):
    """Returns the probability of the second label."""
    return list(answer["probabilities"].values())[1]


measure(serving.load, lambda predictor, pair: second(predictor(*pair)),
        lambda predictor, pairs: list(map(second, predictor.answer([predictor.prepare(*pair)
                                                                    for pair in pairs]))))
