"""Moved to `bertlib.estimator.training_step`. The next version removes this name."""

import sys
import warnings

from bertlib.estimator import training_step

warnings.warn("bertlib.runtime.training_step is now bertlib.estimator.training_step.",
              DeprecationWarning, stacklevel=2)
sys.modules[__name__] = training_step
