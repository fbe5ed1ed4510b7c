"""The compiled programs that innet comes with, by lanes per packet."""

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from google.protobuf import text_format
from p4.config.v1 import p4info_pb2

from innet.errors import UsageError

SLOTS = {64: 8192, 256: 1024}
"""Lanes per packet of the committed programs, and how many slots each has."""


@dataclass(frozen=True)
class Artifact:
    """A compiled program: what a switch is given to run, and its schema for P4Runtime."""

    lanes: int
    slots: int
    json: bytes
    p4info: p4info_pb2.P4Info

    @property
    def device_config(self) -> bytes:
        """What P4Runtime calls ``p4_device_config``."""
        return self.json


def artifact(lanes: int) -> Artifact:
    """The program for this many lanes per packet. Raises UsageError if there is none."""
    if lanes not in SLOTS:
        have = " and ".join(str(each) for each in SLOTS)
        raise UsageError(f"there is no program for {lanes} lanes, only for {have}")
    text = (folder() / f"aggregate-{lanes}.p4info.txtpb").read_text()
    return Artifact(
        lanes,
        SLOTS[lanes],
        (folder() / f"aggregate-{lanes}.json").read_bytes(),
        text_format.Parse(text, p4info_pb2.P4Info()),
    )


def manifest() -> dict[str, Any]:
    """Which sources, options and compiler the artifacts come from, and their digests."""
    found: dict[str, Any] = json.loads((folder() / "manifest.json").read_text())
    return found


def folder() -> Traversable:
    """Where the artifacts lie."""
    return resources.files("innet.p4") / "compiled"


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
