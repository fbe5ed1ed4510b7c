"""Every cell of SECURITY.md's table for the parameter server, tried."""

import contextlib
from collections.abc import Iterator

import pytest
from parameter_server_acts import PARAMETERS, member
from security_scene import cells

from innet.servers import pbox


@pytest.fixture(scope="module")
def parameters() -> Iterator[pbox.Server]:
    """Run a server with two jobs of two workers, whose other ranks are free."""
    with pbox.Server(memory_bytes=1 << 24) as server, contextlib.ExitStack() as stack:
        for name in "ab":
            stack.enter_context(member(server, name, 0, f"token of {name}"))
        yield server


TOKENS = {"no token": "", "job A's token": "token of a"}


@cells("parameter server")
def test_the_parameter_server(parameters: pbox.Server, who: str, what: str, cell: str):
    assert PARAMETERS[what](parameters, TOKENS[who]) == (cell == "yes")
