"""Moved to `bertlib.estimator.step_config`. The next version removes this name."""

import warnings

from bertlib.estimator.step_config import GB, RECOMPUTE  # noqa: F401  old names

warnings.warn("bertlib.runtime.training_step.TrainingStep is now bertlib.estimator.step_config.StepConfig.",
              DeprecationWarning, stacklevel=2)
