"""Moved to `bertlib.estimator.estimator`. The next version removes this name."""

import sys
import warnings

from bertlib.estimator import estimator

warnings.warn("bertlib.runtime.estimator is now bertlib.estimator.estimator.",
              DeprecationWarning, stacklevel=2)
sys.modules[__name__] = estimator
