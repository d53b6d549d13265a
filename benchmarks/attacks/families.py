"""Lists the kinds of random test cases for which the attack knows the exact result.

Each kind has a function, which takes a `Trial`, and a weight. A kind with a larger weight is drawn more
often.
"""

from attacks import (
    choosing,
    classifying,
    directories,
    files_and_servers,
    later_kills,
    readers,
    surroundings,
    tagging,
)
from attacks.trial import Bad

_FILES = 10  # number of files in a case of `all_readers`


def all_readers(trial):
    """Makes random files, and reads each of them in all ways that the module `readers` compares, such as
    training and predict.py. All ways must give the same content."""
    seed, found = trial.chance.randrange(10**6), []
    trial.command = "readers.py"
    trial.note(f"{_FILES} files")
    trial.commands.append(f"python {readers.ROOT / 'benchmarks/attacks/readers.py'} --seed={seed} "
                          f"--count={_FILES}")
    readers.compare(range(_FILES), seed, found.append)
    if found:
        raise Bad("wrong result", "\n".join(found)[:1500])


_FAMILIES = {
    "readers": (all_readers, 2),
    "rows": (classifying.rows, 22),
    "lines of text": (files_and_servers.text_lines, 2),
    "GLUE's files": (files_and_servers.glue_files, 1),
    "near ties": (tagging.near_ties, 1),
    "sentences": (tagging.sentences, 5),
    "words to tag": (tagging.lines, 2),
    "questions": (tagging.questions, 2),
    "questions with endings": (choosing.questions_with_endings, 3),
    "vectors": (files_and_servers.vectors, 1),
    "run.json": (directories.records, 8),
    "vocabularies": (directories.vocabularies, 4),
    "pre-trained vocabularies": (directories.pretrained_vocabularies, 1),
    "contradicting flags": (directories.contradictions, 2),
    "unfinished trainings": (directories.unfinished, 2),
    "dev rows": (directories.dev_rows, 4),
    "splits": (directories.splits, 1),
    "collisions": (directories.collisions, 1),
    "outputs": (surroundings.outputs, 4),
    "closed outputs": (surroundings.closed_outputs, 1),
    "TF_CONFIG": (surroundings.tf_configs, 5),
    "replicas": (surroundings.replicas, 0.5),
    "machines": (surroundings.machines, 1),
    "exports": (surroundings.exports, 2),
    "two exports": (surroundings.two_exports, 0.5),
    "conversions": (files_and_servers.conversions, 2),
    "downloads": (files_and_servers.downloads, 3),
    "submissions": (files_and_servers.submissions, 1),
    "commands killed": (later_kills.kill, 1),
}
WEIGHTS = {kind: weight for kind, (_, weight) in _FAMILIES.items()}


def run(kind, trial):
    """Runs one case of an attack. Raises `trial.Bad` if the case finds a fault."""
    _FAMILIES[kind][0](trial)
