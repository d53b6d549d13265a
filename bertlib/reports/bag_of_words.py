"""A program that trains a linear model of scikit-learn on the TF-IDF of words, and predicts with it.

It is a separate process for two reasons: its CPU time can be limited, and the training process does not load
scikit-learn. `baselines` starts it. It reads its arguments as JSON from stdin, and writes JSON to stdout.
"""

import json
import resource
import sys

import numpy as np


def predict(texts, labels, splits):
    """Trains a model, and returns its answers for the examples of each split, {split: list}. The answers have
    the form of `labels`.

    Args:
      texts: list of lists with one or two str, the training examples. The two texts of a pair have separate
        features.
      labels: list of int for classes, of float for scores, or of lists with 0 or 1 for several labels.
      splits: {split: list like `texts`}.

    Raises:
      ValueError: scikit-learn cannot train on these examples, for example because they contain no words.
    """
    # scikit-learn is loaded here, because its import changes the environment of the process.
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    labels = np.array(labels)
    features = ColumnTransformer([(str(column), TfidfVectorizer(), column)
                                  for column in range(len(texts[0]))])
    linear = LogisticRegression() if labels.dtype.kind == "i" else Ridge()
    model = make_pipeline(features, OneVsRestClassifier(linear) if labels.ndim > 1 else linear)
    model.fit(_table(texts), labels)
    return {split: model.predict(_table(rows)).reshape(-1, *labels.shape[1:]).tolist()
            for split, rows in splits.items()}


def _table(texts):
    return np.array(texts, dtype=object)


if __name__ == "__main__":
    arguments = json.load(sys.stdin)
    limit = arguments.pop("cpu_seconds")
    if limit:
        # The operating system kills the process when it has used this time.
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    json.dump(predict(**arguments), sys.stdout)
