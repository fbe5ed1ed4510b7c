"""The compiled programs that innet comes with, by lanes per packet."""

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from google.protobuf import text_format

from innet.errors import UsageError
from innet.machine.packaged import read
from innet.p4runtime import p4info_pb2

SLOTS = {64: 8192, 256: 1024, 1024: 1024}
"""Lanes per packet of the committed programs, and the slots of each."""


@dataclass(frozen=True)
class Artifact:
    """A compiled program: the JSON that a switch runs, and its schema for P4Runtime."""

    lanes: int
    slots: int
    json: bytes
    p4info: p4info_pb2.P4Info

    @property
    def device_config(self) -> bytes:
        """Return P4Runtime's ``p4_device_config``."""
        return self.json


def artifact(lanes: int) -> Artifact:
    """Return the program for this many lanes per packet.

    Raises UsageError if there is none, or IncompleteInstallation if its files are missing.
    """
    if lanes not in SLOTS:
        *few, last = SLOTS
        have = f"{', '.join(map(str, few))} and {last}"
        raise UsageError(f"there is no program for {lanes} lanes, only for {have}")
    text = read("innet.p4", f"compiled/innet-{lanes}.p4info.txtpb").decode()
    return Artifact(
        lanes,
        SLOTS[lanes],
        read("innet.p4", f"compiled/innet-{lanes}.json"),
        parse_p4info(text),
    )


def parse_p4info(text: str) -> p4info_pb2.P4Info:
    """Return a new message with the content of a P4Info in text format. Raises text_format.ParseError."""
    return p4info_pb2.P4Info.FromString(_binary(text))


@functools.lru_cache(maxsize=16)
def _binary(text: str) -> bytes:
    """Return a P4Info in the binary format, which is read in a tenth of the time."""
    return bytes(text_format.Parse(text, p4info_pb2.P4Info()).SerializeToString())


def folder() -> Traversable:
    """Return the folder of the artifacts."""
    return resources.files("innet.p4") / "compiled"


def digest(content: bytes) -> str:
    """Return the SHA-256 of `content`, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
