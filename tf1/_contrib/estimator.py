"""tf.contrib.estimator: evaluation while training goes on, clipping for an optimizer."""

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator, evaluation
from tf1._names.wrapped_optimizer import WrappedOptimizer


class InMemoryEvaluatorHook(tf.train.SessionRunHook):
    """Evaluates the weights that training has: before its first step, every so many steps and at its end.

    The results go where `Estimator.evaluate` puts them. The weights pass through a temporary file, so that
    the training has no other checkpoints than without this hook.
    """

    def __init__(self, estimator, input_fn, steps=None, hooks=None, name=None, every_n_iter=100):
        """Creates a hook for `Estimator.train`.

        Args:
          estimator: the `Estimator` that trains.
          input_fn, steps, hooks, name: of its evaluation.
          every_n_iter: steps between two evaluations.

        Raises:
          ValueError: every_n_iter is not positive, or estimator is none.
        """
        if every_n_iter is None or every_n_iter <= 0:
            raise ValueError(f"InMemoryEvaluatorHook: invalid every_n_iter={every_n_iter}; it must be "
                             "positive.")
        _check(estimator)
        self._estimator, self._evaluation = estimator, (input_fn, steps, hooks)
        self._name, self._every = name, every_n_iter
        self._weights = None
        self._steps = self._evaluated = 0

    def begin(self):
        self._weights = evaluation.SessionWeights()
        self._steps = self._evaluated = 0

    def after_create_session(self, session, coord):
        self._evaluate(session)

    def after_run(self, run_context, run_values):
        self._steps += 1
        if self._steps - self._evaluated >= self._every:
            self._evaluate(run_context.session)

    def end(self, session):
        self._evaluate(session)

    def _evaluate(self, session):
        self._evaluated = self._steps
        with self._weights.saved(session) as checkpoint:
            self._estimator.evaluate(*self._evaluation, checkpoint_path=checkpoint, name=self._name)


def _check(value):
    if not isinstance(value, estimator.Estimator):
        raise ValueError(f"This hook is for a tf.estimator.Estimator, not {type(value).__name__}.")


class _ClippedOptimizer(WrappedOptimizer):
    """An optimizer that clips each gradient by its norm before it applies it."""

    def __init__(self, optimizer, clip_norm):
        super().__init__(optimizer, "TransformGradients")
        self._norm = clip_norm

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        clipped = [(gradient if gradient is None else tf.clip_by_norm(gradient, self._norm), variable)
                   for gradient, variable in grads_and_vars]
        return super().apply_gradients(clipped, global_step, name)


def clip_gradients_by_norm(optimizer, clip_norm):
    """Returns an optimizer that clips each gradient for itself to at most that norm.

    Args:
      optimizer: a `tf.train.Optimizer`.
      clip_norm: the norm.
    """
    return _ClippedOptimizer(optimizer, clip_norm)
