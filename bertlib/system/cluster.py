"""Reads the environment variable TF_CONFIG, which lists the machines of a training and identifies this
machine.

Kubernetes' training operators, Vertex AI and SageMaker set TF_CONFIG on each machine, in the format that
`tf.estimator` and `tf.distribute` read:

    {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "task": {"type": "worker", "index": 0}}
"""

import dataclasses
import hashlib
import itertools
import json
import os
import re

from bertlib.system import files

_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
# The form of TF_CONFIG, see `files.has_form`.
_FORM = {"cluster": ({"*": [str]}, None), "task": ({}, None)}
# Matches "host:port". The host is a name, an IPv4 address, or "[IPv6 address]".
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s/\[\]:@]+)):([0-9]{1,5})")
# Kinds of machines that train, in the order of their replicas. Replica 0 is on the chief (or master). If
# there is no chief, replica 0 is on the first worker.
_CHIEFS, _TRAINING = ("chief", "master"), ("chief", "master", "worker")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Describes the machines that train together, and says which of them is this machine.

    Attributes:
      addresses: "host:port" of each machine that trains, the chief first.
      index: index of this machine in `addresses`; None if this machine only evaluates checkpoints.
    """

    addresses: tuple
    index: int | None

    @property
    def is_evaluator(self):
        """Returns whether this machine only evaluates the checkpoints of the other machines."""
        return self.index is None

    @property
    def coordinator(self):
        """Returns (host, port) of the chief, to which all other replicas connect."""
        return _split(self.addresses[0])

    @property
    def host(self):
        """Returns the host name by which other machines reach this machine."""
        return _split(self.addresses[self.index])[0]

    @property
    def key(self):
        """Returns the key of the run: 64 hexadecimal digits that are computed from TF_CONFIG.

        All machines of the run know the key, because TF_CONFIG contains the same addresses on all of them. A
        machine that cannot read TF_CONFIG does not know the key.
        """
        return hashlib.sha256(json.dumps(self.addresses).encode()).hexdigest()


def from_environment(environment=os.environ):
    """Returns the `Cluster` that TF_CONFIG describes; None if TF_CONFIG is missing or names no machines.

    Raises:
      ValueError: TF_CONFIG cannot be read, is contradictory, or asks for parameter servers.
    """
    text = environment.get("TF_CONFIG", "")
    try:
        config = json.loads(text) if text.strip() else {}
        _require(files.has_form(config, _FORM), "it does not have the form of the example")
        jobs = config.get("cluster") or {}
        for address in itertools.chain(*jobs.values()):
            _split(address)
        task = config.get("task") or {}
        kind = task.get("type")
        _require(not jobs.get("ps") and kind != "ps", 'it names parameter servers ("ps"), which this project '
                 "does not use. Remove them; on SageMaker, set "
                 'distribution={"multi_worker_mirrored_strategy": {"enabled": True}}')
        if not any(jobs.values()) and kind is None:
            return None
        return _place(jobs, kind, task.get("index", 0))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The environment variable TF_CONFIG cannot be used: {error}. Correct the variable "
                         f"(example: {_EXAMPLE}), or unset it to run on this machine alone.") from error


def _require(condition, otherwise):
    if not condition:
        raise ValueError(otherwise)


def _shown(value):
    """Returns a wrong value as a line of text, of which an error message shows the beginning."""
    return f"{ascii(value):.60}"


def _split(address):
    """Returns (host, port) of an address that `_ADDRESS` matches."""
    match = _ADDRESS.fullmatch(address)
    if not match or not 0 < int(match[3]) < 2**16:
        raise ValueError(f'{_shown(address)} is not an address of the form "host:port", or "[host]:port" for '
                         "IPv6")
    return match[1] or match[2], int(match[3])


def _place(jobs, kind, index):
    """Returns the `Cluster` for a machine.

    Args:
      jobs: {kind of machines: list of their addresses}.
      kind, index: kind of this machine, and its index among the machines of this kind.
    """
    unknown_kinds = set(jobs) - {*_TRAINING, "ps", "evaluator"}
    _require(not unknown_kinds, f"it names machines of an unknown kind: {_shown(sorted(unknown_kinds))}. "
             "The known kinds are chief, worker and evaluator")
    _require(sum(len(jobs.get(job, [])) for job in _CHIEFS) <= 1, "it names more than one chief")
    order = [(job, number) for job in _TRAINING for number in range(len(jobs.get(job, [])))]
    addresses = tuple(jobs[job][number] for job, number in order)
    _require(addresses, "it names no machine that trains")
    _require(len(set(addresses)) == len(addresses), "it names an address twice")
    if kind is None and len(addresses) == 1:
        return Cluster(addresses, 0)
    if kind == "evaluator":
        return Cluster(addresses, None)
    places = [f"{job} {number}" for job, number in order]
    this = f"{kind} {index}"
    _require(this in places, f'"task" says that this machine is {_shown(this)}, but "cluster" contains only '
             f"{', '.join(places):.200}")
    return Cluster(addresses, places.index(this))
