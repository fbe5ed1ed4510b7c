"""A program that runs on one port of this process, for tests that only need packets."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

from tiny_programs import program

from innet.switch.engine import Engine
from innet.switch.ports import cpu_port

ANSWERS_WITHIN = 120.0


class OnePort:
    """A running engine with port 1 connected to this object."""

    def __init__(self, engine: Engine, cable: socket.socket) -> None:
        self.engine, self._cable = engine, cable

    def ask(self, *frames: bytes) -> list[bytes]:
        """Send frames, and return the same number of frames that come back. Raises TimeoutError."""
        for frame in frames:
            self._cable.send(frame)
        return [self._cable.recv(1 << 16) for _ in frames]

    def lose(self, *frames: bytes) -> None:
        """Send frames of which none should come back."""
        for frame in frames:
            self._cable.send(frame)


@contextlib.contextmanager
def running(
    name: str,
    seed: int | None = None,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
) -> Iterator[OnePort]:
    """Run one of the tests' own programs, after a change to p4c's output for it."""
    port, cable = cpu_port(1)
    cable.settimeout(ANSWERS_WITHIN)
    document = json.loads(program(name).json)
    change(document)
    engine = Engine(json.dumps(document), seed=seed)
    with contextlib.closing(port), cable, contextlib.closing(engine):
        engine.start([port])
        yield OnePort(engine, cable)


def action(engine: Engine, name: str) -> int:
    """Return the number of the action called `name` that the first table has."""
    return next(each.id for each in engine.program.actions if each.name.rpartition(".")[2] == name)
