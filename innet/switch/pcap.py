"""Captures of all frames at the ports, in two files per interface, as BMv2's ``--pcap`` writes them."""

import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from innet.errors import UsageError
from innet.switch.ports import Port

_MAGIC, _VERSION, _SNAPLEN, _ETHERNET = 0xA1B2C3D4, (2, 4), 1 << 18, 1
_HEADER = struct.pack("=IHHiIII", _MAGIC, *_VERSION, 0, 0, _SNAPLEN, _ETHERNET)


def capture(folder: Path, ports: Iterable[Port]) -> None:
    """Capture all frames that pass the ports to files in `folder`. Raises UsageError.

    Interface X has the files X_in.pcap and X_out.pcap. A port N that is not an interface is called
    portN.
    """
    if not folder.is_dir():
        raise UsageError(f"--pcap {folder}: there is no such folder")
    for port in ports:
        plain = re.fullmatch(r"[\w.-]+", port.interface)
        name = port.interface if plain else f"port{port.number}"
        port.captures = tuple(
            _open(folder / f"{name}_{direction}.pcap") for direction in ("in", "out")
        )


def _open(path: Path) -> BinaryIO:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(number, "wb", buffering=0)
    except OSError as problem:
        raise UsageError(f"cannot write {path}: {problem.strerror}") from None
    file.write(_HEADER)
    return file
