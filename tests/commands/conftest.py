"""The row of the tests of a module, see `trained`, `copy` and `untrained` in tests/conftest.py."""

import pytest
from rows import ROWS


@pytest.fixture
def row(request):
    """The row with the name `ROW` of the test module; by default, the pairs."""
    return ROWS[getattr(request.module, "ROW", "pairs")]
