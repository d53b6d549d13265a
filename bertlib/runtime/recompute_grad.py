"""Moved to `bertlib.graph.recompute_grad`. The next version removes this name."""

import sys
import warnings

from bertlib.graph import recompute_grad

warnings.warn("bertlib.runtime.recompute_grad is now bertlib.graph.recompute_grad.",
              DeprecationWarning, stacklevel=2)
sys.modules[__name__] = recompute_grad
