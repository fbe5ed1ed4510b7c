"""The two forms in which P4Runtime servers of a Tofino take its pipeline.

Both are made of the files that the compiler and its assembler leave in a folder
(:mod:`innet.p4.binaries`).
"""

import struct
from collections.abc import Sequence
from typing import Protocol

from google.protobuf.message import DecodeError

from innet.controller.switches.targets import pipeline_pb2 as pb
from innet.errors import UsageError
from innet.p4.artifacts import digest
from innet.p4.binaries import Binaries

PROGRAM = "innet"
"""The program's name for the compiler, which takes it from the source file."""

_PROFILE = "pipe"  # the name of the Pipeline in innet.p4
_PIPES = (0, 1, 2, 3)
_LENGTH = struct.Struct("<I")


class PipelineForm(Protocol):
    """One of the forms."""

    def pack(self, binaries: Binaries) -> bytes:
        """Return the pipeline as a ``p4_device_config``."""

    def describe(self, device_config: bytes) -> list[str]:
        """Return its parts, a line each. Raises UsageError if it has another form."""


class Stratum:
    """A serialized ``BfPipelineConfig``.

    The message is defined in ``stratum/hal/lib/barefoot/bf.proto`` of stratum/stratum. Stratum
    parses it in ``bf_pipeline_utils.cc`` (ExtractBfPipelineConfig). Its ``bf_pipeline_builder``
    makes it from the compiler's .conf file. In that file, p4lang/p4c's
    ``backends/tofino/scripts/p4c-gen-conf`` assigns one profile to four pipes, whether the chip has
    two or four of them.
    """

    def pack(self, binaries: Binaries) -> bytes:
        """Return a message with one profile for all pipes."""
        message = pb.BfPipelineConfig(p4_name=PROGRAM, bfruntime_info=binaries.bfrt)
        message.profiles.add(
            profile_name=_PROFILE,
            context=binaries.context,
            binary=binaries.binary,
            pipe_scope=_PIPES,
        )
        return message.SerializeToString(deterministic=True)

    def describe(self, device_config: bytes) -> list[str]:
        """Return the message's fields, a line each."""
        try:
            message = pb.BfPipelineConfig.FromString(device_config)
        except DecodeError as problem:
            raise UsageError(f"this is no BfPipelineConfig: {problem}") from None
        found = [
            f"BfPipelineConfig, p4_name {message.p4_name}",
            _line("bfruntime_info", message.bfruntime_info),
        ]
        for each in message.profiles:
            found.append(
                f"profile {each.profile_name}, pipes {', '.join(map(str, each.pipe_scope))}"
            )
            found += [_line("context", each.context), _line("binary", each.binary)]
        return found


class Sde:
    """Name, binary and context, each after its length in 32 bits, little-endian.

    The SDE's older P4Runtime server, p4lang/PI, took this form. Stratum's ``stratum_bf``, which
    used PI as well, made it from a BfPipelineConfig until it was removed
    (BfPipelineConfigToPiConfig, last in commit d0cb857d of stratum/stratum).
    """

    def pack(self, binaries: Binaries) -> bytes:
        """Return the parts, one after the other."""
        parts = (PROGRAM.encode(), binaries.binary, binaries.context)
        return b"".join(_LENGTH.pack(len(part)) + part for part in parts)

    def describe(self, device_config: bytes) -> list[str]:
        """Return the parts, a line each."""
        name, binary, context = _parts(device_config)
        return [
            f"lengths and parts, p4_name {name.decode(errors='replace')}",
            _line("binary", binary),
            _line("context", context),
        ]


def _parts(packed: bytes) -> Sequence[bytes]:
    parts, at = [], 0
    while at + _LENGTH.size <= len(packed):
        [length] = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        parts.append(packed[at : at + length])
        at += length
    if at != len(packed) or len(parts) != 3:
        raise UsageError("this is not name, binary and context, each behind its length")
    return parts


def _line(name: str, content: bytes) -> str:
    return f"{name}, {len(content)} bytes, sha256 {digest(content)}"
