"""The findings of the egress of a program in ``path_*.p4`` about each packet."""

import struct
from dataclasses import dataclass

import pytest
from clone_sessions import ROOM
from compared_switches import Target

from innet.p4runtime import p4runtime_pb2 as p4rt

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICA, RESUBMITTED = 0, 1, 2, 4, 5, 6

REST = b"the rest"


@dataclass(frozen=True)
class Seen:
    """The metadata that the egress found."""

    kind: int
    instance: int
    size: int
    came: int
    left: int
    kept: int
    lost: int


def insert(target: Target, *entities: p4rt.Entity) -> None:
    for entity in entities:
        assert target.write(p4rt.Update(type=p4rt.Update.INSERT, entity=entity))


def on(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("target", [name], indirect=True)


def seen(outputs: list[tuple[int, bytes]], header: int) -> list[tuple[Seen, bytes, bytes]]:
    """Return the egress's metadata for every packet, with the header in front of it and the rest."""
    return [
        (
            Seen(*struct.unpack_from("!B6H", frame, header)),
            frame[:header],
            frame[header + len(ROOM) :],
        )
        for _, frame in outputs
    ]
