"""A process that delays the packets of UDP cables, as a long fiber does.

:mod:`benchmarks.sharing` starts it with the delay in milliseconds and four ports for each cable: its own
and the switch's at one end, its own and the worker's at the other::

    python -m benchmarks.delay_line 10 20001 20002 20003 20004
"""

import ctypes
from pathlib import Path

import typer

from innet.native.compiler import compile_library


def main(delay_ms: float, ports: list[int]) -> None:
    """Carry packets until the process is ended."""
    sources = {"delay_line.c": Path(__file__).with_suffix(".c").read_bytes()}
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC")
    library = ctypes.CDLL(str(compile_library(flags, sources.values(), lambda: sources)))
    numbers = (ctypes.c_uint16 * len(ports))(*ports)
    library.delay_line(
        numbers, ctypes.c_uint32(len(ports) // 4), ctypes.c_int64(int(delay_ms * 1e6))
    )


if __name__ == "__main__":
    typer.run(main)
