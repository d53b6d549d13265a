"""Metrics of multiple choice, computed from NumPy arrays: C endings for each of N questions."""

import numpy as np

# The probability of a random choice among C endings is 1 / C. The endings of a question count as equally
# probable if the largest probability exceeds 1 / C by less than this number.
_MIN_ADVANTAGE = 0.01


def evaluate(labels, scores, losses):
    """Returns the metrics, {name: number}.

    Args:
      labels: int [N], the numbers of the right endings.
      scores: float32 [N, C].
      losses: float32 [N].
    """
    return {"eval_accuracy": float(np.mean(np.argmax(scores, axis=-1) == labels)),
            "eval_loss": float(np.mean(losses, dtype=np.float64))}


def probabilities(scores):
    """Returns the softmax of scores [..., C], a float32 array of the same shape."""
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def equal_scores_warning(scores):
    """Returns a warning (str) if the endings of each question have almost equal probabilities, else None.

    The accuracy does not show this problem: by chance, the accuracy of such a model can be above 1 / C.

    Args:
      scores: float32 [N, C].
    """
    advantage = float(probabilities(scores).max()) - 1 / np.shape(scores)[-1]
    if advantage >= _MIN_ADVANTAGE:
        return None
    return (f"In all {len(scores)} questions, the endings have almost equal probabilities: the largest "
            f"probability is only {advantage:.2g} above that of a random choice. The model does not "
            "distinguish the endings, and the accuracy has no meaning.")
