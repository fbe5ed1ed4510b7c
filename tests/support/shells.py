"""p4runtime-shell, for tests."""

import pytest

from innet.errors import InnetError
from innet.shell import environment


def shell_python() -> list[str]:
    """Return the Python that can import p4runtime-shell. Skip the test if it cannot be installed."""
    try:
        return environment.python()
    except InnetError as problem:
        pytest.skip(str(problem))
