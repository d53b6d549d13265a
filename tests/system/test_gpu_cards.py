"""The memory that TensorFlow can use on known GPUs: the formula, the numbers, and their page in docs."""

import mmap
import pathlib
import platform
import re

from helpers import ROOT
import pytest
import tensorflow as tf

from bertlib.system import gpu_cards

MIB = 2**20


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks at instructions of x86-64")
def test_the_reserve_is_that_of_the_installed_tensorflow():
    reserves = {500, 1050, gpu_cards.TENSORFLOW_RESERVE, 1800}  # of the compute capabilities up to 6, 7, 8, 9
    first, *others = [(reserve * MIB).to_bytes(4, "little") for reserve in sorted(reserves)]
    library = pathlib.Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"
    with open(library, "rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as code:
        place = code.find(others[0])
        while place >= 0:  # looks for a piece of code that contains all of these numbers
            near = code[max(0, place - 120):place + 120]
            if all(constant in near for constant in (first, *others)):
                return
            place = code.find(others[0], place + 1)
    pytest.fail("TensorFlow reserves other sizes now.")


def test_a_card_has_less_memory_than_its_name_says():
    for card in gpu_cards.CARDS.values():
        nominal = int(re.search(r"(\d+) GB", card.title).group(1)) * 1024
        # The driver, the CUDA context and the reserve take at least 700 MiB and, with a display, at most 5
        # GiB.
        assert nominal - 5120 < card.usable_mib < nominal - 700
        assert f"{card.usable_mib:,}" in card.source or card.source.startswith("formula: ")
    assert gpu_cards.CARDS["a10"].usable_mib == 23028 - 1024 - 1536


def test_the_page_has_all_cards():
    page = (ROOT / "docs" / "howto" / "memory.md").read_text(encoding="utf-8")
    rows = [f"| `{name}` | {card.title} | {card.usable_mib:,} | {card.source} |"
            for name, card in gpu_cards.CARDS.items()]
    assert "\n".join(rows) in page
