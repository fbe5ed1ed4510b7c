"""A process that sends every frame of some interfaces back, in one of the ways that Linux offers.

:mod:`benchmarks.switch` starts it beside switches, in place of one::

    python -m benchmarks.reflector recvmmsg eth1 eth2
"""

import ctypes
import enum
from pathlib import Path

import typer

from innet.machine.packaged import read
from innet.native.compiler import compile_library


class Way(enum.StrEnum):
    """The functions of reflector.c, without their prefix."""

    RECVMMSG = "recvmmsg"
    TPACKET = "tpacket"
    AF_XDP = "af_xdp"
    PROGRAM = "program"
    SUPER_FRAMES = "super_frames"
    NOTHING = "nothing"


def main(way: Way, interfaces: list[str]) -> None:
    """Send every frame of the interfaces back, until the process is ended."""
    sources = {name: read("innet.switch", f"runtime/{name}") for name in ("xdp.c", "xdp.h")}
    sources["reflector.c"] = Path(__file__).with_suffix(".c").read_bytes()
    flags = ("-std=gnu11", "-O2", "-march=native", "-fPIC")
    library = ctypes.CDLL(str(compile_library(flags, sources.values(), lambda: sources)))
    names = (ctypes.c_char_p * len(interfaces))(*(each.encode() for each in interfaces))
    getattr(library, f"reflect_{way}")(names, ctypes.c_uint32(len(interfaces)))


if __name__ == "__main__":
    typer.run(main)
