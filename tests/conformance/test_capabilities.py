"""No capability is lost: the commands, flags, Python names and messages in tests/data/ are still in the code.

`python tests/conformance/capabilities.py --write` writes the lists again.
"""

import json
import re

import capabilities

_WRITE = "`python tests/conformance/capabilities.py --write`"
_REMOVED = (f"are in {{file}}, but not in the code. Users lose them: restore them. If the removal is a "
            f"decision, name it in CHANGELOG.md and run {_WRITE}.")
_ADDED = f"are in the code, but not in {{file}}. Run {_WRITE} to extend the list."
# A message counts as kept if this share of its words is in one message of the code, because messages are
# written again more often than removed.
_KEPT_SHARE = 0.5


def flatten(lists, *path):
    """Returns {path of an entry, such as "flags run_squad Task do_train bool = false"} of nested lists.

    Parameters of functions are numbered. So a parameter may be added at the end, but not in between.
    """
    if isinstance(lists, dict) and lists:
        return set().union(*(flatten(value, *path, name) for name, value in lists.items()))
    if isinstance(lists, list) and path[0] == "python":
        return {" ".join(path), *(f"{' '.join(path)} {number} {name}" for number, name in enumerate(lists))}
    if isinstance(lists, list):
        return {f"{' '.join(path)} {name}" for name in lists}
    return {" ".join([*path, lists or ""])}


def check(kind, stored, found, file):
    """Compares two sets of texts. Fails with the texts that only one of the sets contains."""
    for texts, words in ((stored - found, _REMOVED), (found - stored, _ADDED)):
        assert not texts, f"These {kind} {words.format(file=file.name)}\n" + "\n".join(sorted(texts)[:20])


def test_commands_flags_and_python_names_are_those_of_the_list(scripts, tmp_path):
    done = scripts.run("tests/conformance/capabilities.py", cwd=tmp_path)
    assert done.code == 0, done.err
    check("capabilities", flatten(json.loads(capabilities.CAPABILITIES.read_text(encoding="utf-8"))),
          flatten(json.loads(done.out)), capabilities.CAPABILITIES)


def words_of(message):
    return set(re.findall(r"[^\W\d_]{2,}", message.lower()))


def lost_messages(stored, found):
    """Returns the messages of which no message in `found` contains enough words."""
    words = list(map(words_of, found))
    return {message for message in stored - found
            if not any(len(words_of(message) & other) >= _KEPT_SHARE * len(words_of(message))
                       for other in words)}


def test_messages_of_the_list_are_in_the_code():
    stored = set(capabilities.MESSAGES.read_text(encoding="utf-8").splitlines())
    found = set(capabilities.list_messages())
    # New messages are not compared: the next `--write` adds them.
    check("messages", lost_messages(stored, found), set(), capabilities.MESSAGES)
