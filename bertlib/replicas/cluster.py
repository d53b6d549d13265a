"""Reads the environment variable TF_CONFIG, which lists the machines of a training and identifies this
machine.

Kubernetes' training operators, Vertex AI and SageMaker set TF_CONFIG on each machine, in the format that
`tf.estimator` and `tf.distribute` read:

    {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "task": {"type": "worker", "index": 0}}
"""

import dataclasses
import hashlib
import ipaddress
import itertools
import json
import os

_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
# Limits for error messages: the largest number of characters of a wrong value, and the largest number of
# values in a list.
_SHOWN, _LISTED = 60, 20
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
        _require(isinstance(config, dict), "its content is not a JSON object")
        _require("sparseCluster" not in config, "it contains a sparseCluster, which lists only some of the "
                 "machines. Remove enableDynamicWorker from the TFJob")
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        _require(isinstance(cluster, dict), '"cluster" is not an object')
        _require(isinstance(task, dict), '"task" is not an object')
        jobs = {job: _addresses(job, members) for job, members in cluster.items()}
        kind = task.get("type")
        _refuse_parameter_servers(jobs, kind)
        if not any(jobs.values()) and kind is None:
            return None
        return _place(jobs, kind, task.get("index", 0))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"The environment variable TF_CONFIG cannot be used: {reason}. Correct the variable "
                         f"(example: {_EXAMPLE}), or unset it to run on this machine alone.") from error


def _shown(value):
    """Returns a wrong value as one line of text for an error message, with at most `_SHOWN` characters."""
    text = value if isinstance(value, str) and value.isalnum() and value.isascii() else ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _listed(values):
    shown = [_shown(value) for value in itertools.islice(values, _LISTED)]
    return ", ".join(shown + ["…"] * (len(values) > _LISTED))


def _require(condition, otherwise):
    if not condition:
        raise ValueError(otherwise)


def _addresses(job, members):
    """Returns the list of a job's addresses. `members` is a list, or a dict {"0": address, …}."""
    if isinstance(members, dict):
        numbers = [str(number) for number in range(len(members))]
        _require(set(members) == set(numbers), f'the members of "{job}" must be numbered {_listed(numbers)}, '
                 f"but they are {_listed(members)}")
        members = [members[number] for number in numbers]
    _require(isinstance(members, list), f'"{job}" is not a list of addresses')
    for address in members:
        _split(address)
    return members


def _split(address):
    """Returns (host, port) of "host:port". The host is a name, an IPv4 address, or "[IPv6 address]"."""
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not (_is_host(host) and port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 2**16):
        raise ValueError(f'{ascii(address)[:_SHOWN]} is not an address of the form "host:port", or '
                         '"[host]:port" for IPv6')
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_host(text):
    """Returns whether a text can be the host in "host:port"."""
    if text.startswith("[") and text.endswith("]"):
        try:
            return bool(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            return False
    try:
        text.encode("idna")  # the name of a host cannot be resolved if it cannot be encoded as IDNA
    except UnicodeError:
        return False
    return bool(text) and not any(character in "/[]:@" or character.isspace() or not character.isprintable()
                                  for character in text)


def _refuse_parameter_servers(jobs, kind):
    if jobs.get("ps") or kind == "ps":
        raise ValueError(
            'it names parameter servers ("ps"), but this project exchanges gradients without parameter '
            "servers. In a TFJob, remove PS. On Vertex AI, remove the third worker pool. On SageMaker, "
            "replace "
            'parameter_server by distribution={"multi_worker_mirrored_strategy": {"enabled": True}}')


def _place(jobs, kind, index):
    """Returns the `Cluster` for a machine.

    Args:
      jobs: {kind of machines: list of their addresses}.
      kind, index: kind of this machine, and its index among the machines of this kind.
    """
    unknown = set(jobs) - {*_TRAINING, "ps", "evaluator"}
    _require(not unknown, f"it names machines of an unknown kind: {_listed(sorted(unknown))}. The known "
             "kinds are chief, worker and evaluator")
    chiefs = [job for job in _CHIEFS if jobs.get(job)]
    _require(sum(len(jobs[job]) for job in chiefs) <= 1, "it names more than one chief")
    order = [(job, number) for job in _TRAINING for number in range(len(jobs.get(job, [])))]
    addresses = tuple(jobs[job][number] for job, number in order)
    _require(addresses, "it names no machine that trains")
    twice = {address for address in addresses if addresses.count(address) > 1}
    _require(not twice, f"it names {', '.join(sorted(twice))} twice")
    if kind is None and len(addresses) == 1:
        return Cluster(addresses, 0)
    _require(isinstance(kind, str), 'the part {"task": {"type": …, "index": …}}, which identifies this '
             "machine, is missing")
    if kind == "evaluator":
        return Cluster(addresses, None)
    places = [f"{job} {number}" for job, number in order]
    this = f"{kind} {index}" if type(index) in (int, str) else None
    if this not in places:
        raise ValueError(f'"task" says that this machine is {_shown(kind)} {_shown(index)}, but "cluster" '
                         "contains only "
                         f"{', '.join(places[:_LISTED])}{', …' if len(places) > _LISTED else ''}")
    return Cluster(addresses, places.index(this))
