"""No capability is lost: the commands, flags, Python names and messages in tests/data/ are still in the code.

`python tests/conformance/capabilities.py --write` writes the lists again.
"""

import json
import re

import capabilities

_ADVICE = ("Run `python tests/conformance/capabilities.py --write`. Users lose everything that is removed: "
           "restore it, or name the decision in CHANGELOG.md.")
# A message counts as kept if this share of its words is in one message of the code, because messages are
# written again more often than removed.
_KEPT_SHARE = 0.5


def test_commands_flags_and_python_names_are_those_of_the_list(scripts, tmp_path):
    done = scripts.run("tests/conformance/capabilities.py", cwd=tmp_path)
    assert done.code == 0, done.err
    stored = json.loads(capabilities.CAPABILITIES.read_text(encoding="utf-8"))
    assert json.loads(done.out) == stored, _ADVICE


def words_of(message):
    return set(re.findall(r"[^\W\d_]{2,}", message.lower()))


def test_messages_of_the_list_are_in_the_code():
    """New messages are not compared: the next `--write` adds them."""
    found, stored = set(capabilities.list_messages()), set(
        capabilities.MESSAGES.read_text(encoding="utf-8").splitlines())
    words = list(map(words_of, found))
    lost = [message for message in stored - found
            if not any(len(words_of(message) & other) >= _KEPT_SHARE * len(words_of(message))
                       for other in words)]
    assert not lost, _ADVICE
