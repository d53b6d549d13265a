"""The kinds of cases that bring an oracle, functions of a `trial.Trial`, and how often each is drawn."""

from attacks import classifying

_FAMILIES = {
    "rows": (classifying.rows, 12),
}
WEIGHTS = {kind: weight for kind, (_, weight) in _FAMILIES.items()}


def run(kind, trial):
    """Runs a case; raises `trial.Bad` for a finding."""
    _FAMILIES[kind][0](trial)
