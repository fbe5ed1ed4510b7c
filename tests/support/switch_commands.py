"""The command innet-switch as a process, and frames for its ports."""

from pathlib import Path

import commands
import pytest
from switches import Switch


def memory(switch: Switch) -> int:
    """Return the resident bytes of the switch's memory."""
    status = Path(f"/proc/{switch.process.pid}/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from Linux's /proc")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def frame(kind: int) -> bytes:
    return bytes(12) + kind.to_bytes(2, "big")


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the standard error of a switch that does not start."""
    done = commands.run("innet-switch", *arguments)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr
