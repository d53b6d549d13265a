"""Simple baselines that guess the labels of sentence pairs: from overlaps, lengths and bags of words.

`sample.py` uses this module. A pair is (label 0 or 1, first sentence, second sentence). A baseline is fitted
on some pairs, and its accuracy on other pairs is computed.
"""

import itertools
import re

import numpy as np

# Words that occur in sentences about any topic.
STOP_WORDS = set(re.findall(r"\w+", """
    a about after all an and any are as at be because been before but by can do does for from get had
    has have he her his how i if in into is it its me more my no not of on one or she should so than
    that the their them there they this to was we were what when where which while who why will with you
    your"""))


def words(sentence):
    """Returns the set of the words of a sentence, in lower case."""
    return set(re.findall(r"[a-z0-9]+(?:[.,'][a-z0-9]+)*", sentence.lower()))


def jaccard(a, b):
    """Returns the share of the elements of two sets that are in both sets; 0 if both sets are empty."""
    return len(a & b) / max(len(a | b), 1)


def containment(a, b):
    """Returns the share of the elements of the smaller set that are in the other set; 0 if a set is empty."""
    return len(a & b) / max(min(len(a), len(b)), 1)


def same_start(first, second):
    """Returns the number of equal words at the beginning of both sentences."""
    same = [a == b for a, b in zip(first.lower().split(), second.lower().split())]
    return (same + [False]).index(False)


def longest_run(first, second):
    """Returns the number of words in the longest sequence of words that occurs in both sentences."""
    a, b = first.lower().split(), second.lower().split()
    return max((same_start(" ".join(a[i:]), " ".join(b[j:])) for i in range(len(a)) for j in range(len(b))
                if a[i] == b[j]), default=0)


# --- One number for a pair, and a threshold -----------------------------------------------------------------

OVERLAPS = {
    "Jaccard overlap": lambda a, b: jaccard(words(a), words(b)),
    "overlap / shorter sentence": lambda a, b: containment(words(a), words(b)),
    "Jaccard overlap without stop words": lambda a, b: jaccard(words(a) - STOP_WORDS, words(b) - STOP_WORDS),
}
ORDERS = {"words that both begin with": same_start, "longest passage in both": longest_run}
LENGTHS = {
    "length of the first": lambda a, b: len(a.split()),
    "length of the second": lambda a, b: len(b.split()),
    "length of both": lambda a, b: len(a.split()) + len(b.split()),
    "difference of the lengths": lambda a, b: abs(len(a.split()) - len(b.split())),
}
RULES = {**OVERLAPS, **ORDERS, **LENGTHS}


def accuracy_of_rule(scored, threshold, sign):
    """Returns the accuracy of the rule "1 if and only if sign * score >= sign * threshold".

    `scored` is a list of (score, label).
    """
    return sum((sign * score >= sign * threshold) == bool(label) for score, label in scored) / len(scored)


def best_rule(scored):
    """Returns the most accurate (threshold, sign) on `scored`. The thresholds +-99 give constant answers."""
    candidates = sorted({score for score, _ in scored} | {-99, 99})
    scores, labels = np.array(scored, float).T
    thresholds, signs = np.array(list(itertools.product(candidates, (1, -1))), float).T
    answers = signs[:, None] * scores >= (signs * thresholds)[:, None]
    best = (answers == (labels == 1)).sum(1).argmax()
    return thresholds[best], signs[best]


def rule_accuracy(rule, train, test):
    """Returns the accuracy of a rule on `test`. Its threshold and sign are the best ones on `train`."""
    scored = [[(rule(first, second), label) for label, first, second in part] for part in (train, test)]
    return accuracy_of_rule(scored[1], *best_rule(scored[0]))


# --- Bags of words ------------------------------------------------------------------------------------------


def bag(first, second):
    """Returns the words of both sentences."""
    return words(first) | words(second)


def bag_of_matches(first, second):
    """Returns ("both", word) for words in both sentences, and ("one", word) for words in one of them."""
    a, b = words(first), words(second)
    return {("both", word) for word in a & b} | {("one", word) for word in a ^ b}


def bag_of_all(first, second):
    """Returns the words, the matches, and the rounded score of every rule."""
    steps = {(name, int(10 * rule(first, second))) for name, rule in OVERLAPS.items()}
    steps |= {(name, min(rule(first, second), 5)) for name, rule in ORDERS.items()}
    steps |= {(name, rule(first, second) // 3) for name, rule in LENGTHS.items()}
    return bag(first, second) | bag_of_matches(first, second) | steps


BAGS = {"bag of words": bag, "bag of matches": bag_of_matches, "all of these": bag_of_all}


def logistic_regression(x, y, penalty=1.0, steps=6):
    """Minimizes the logistic loss + penalty/2 · ‖weights‖² by Newton's method.

    The best weights are a weighted sum of the examples (representer theorem). So each step solves for one
    number for each example.

    Args:
      x: float array [examples, features].
      y: array [examples] of 0 and 1.

    Returns:
      (weights [features], bias).
    """
    count = len(x)
    kernel, a, bias = x @ x.T, np.zeros(count), 0.0
    system = np.zeros([count + 1, count + 1])
    system[:count, count] = system[count, :count] = 1
    for _ in range(steps):
        margin = kernel @ a + bias
        p = 1 / (1 + np.exp(-margin))
        curvature = np.maximum(p * (1 - p), 1e-9)
        system[:count, :count] = kernel + np.diag(penalty / curvature)
        solved = np.linalg.solve(system, np.append(margin + (y - p) / curvature, 0))
        a, bias = solved[:count], solved[count]
    return x.T @ a, bias


def bag_accuracy(features, train, test):
    """Returns the accuracy on `test` of a logistic regression on a bag of features, fitted on `train`."""
    bags = [[features(first, second) for _, first, second in part] for part in (train, test)]
    columns = {word: column for column, word in enumerate(sorted(set().union(*bags[0]), key=repr))}
    x, x_test = (np.zeros([len(part), len(columns)]) for part in bags)
    for matrix, part in ((x, bags[0]), (x_test, bags[1])):
        for row, found in enumerate(part):
            matrix[row, [columns[word] for word in found if word in columns]] = 1
    weights, bias = logistic_regression(x, np.array([label for label, _, _ in train]))
    return float(np.mean((x_test @ weights + bias > 0) == [bool(label) for label, _, _ in test]))


def accuracies(train, test):
    """Returns {name: accuracy on `test`} of every baseline, fitted on `train`.

    The baseline "larger class" always answers with the more frequent label of `train`.
    """
    majority = 2 * sum(label for label, _, _ in train) >= len(train)
    return {"larger class": float(np.mean([bool(label) == majority for label, _, _ in test])),
            **{name: rule_accuracy(rule, train, test) for name, rule in RULES.items()},
            **{name: bag_accuracy(features, train, test) for name, features in BAGS.items()}}


def folded_accuracies(pairs, folds=10):
    """Returns {name: accuracy over all pairs} by cross-validation: each fold is predicted from the others."""
    found = {}
    for fold in range(folds):
        train = [pair for number, pair in enumerate(pairs) if number % folds != fold]
        for name, accuracy in accuracies(train, pairs[fold::folds]).items():
            found[name] = found.get(name, 0) + accuracy * len(pairs[fold::folds]) / len(pairs)
    return found
