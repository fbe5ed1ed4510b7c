"""The machine's requirements for an emulation: root, Mininet, and the commands that it calls."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from innet.errors import UsageError
from innet.switch.ports import carries_super_frames

_DEBIAN = Path("/usr/lib/python3/dist-packages/mininet")
"""The folder of Debian's package, which a virtual environment's Python does not search."""

_PACKAGES = {
    "mnexec": "mininet",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ifconfig": "net-tools",
}
BMV2 = "simple_switch_grpc"


def missing(kinds: Iterable[str] = ()) -> str | None:
    """Return the reason why these kinds of switches cannot be emulated here, or None if they can."""
    if os.geteuid():
        return "an emulation needs root, because it creates networks: run it with sudo"
    lacking = {package for command, package in _PACKAGES.items() if not shutil.which(command)}
    if not _mininet():
        lacking.add("mininet")
    if lacking:
        return f"an emulation needs Debian's packages: apt-get install {' '.join(sorted(lacking))}"
    if "bmv2" in kinds and not shutil.which(BMV2):
        return f"a switch is of kind bmv2, but {BMV2} is not on the PATH"
    return None


def offloads(kinds: Iterable[str]) -> bool:
    """Return whether hosts leave checksums and the cutting of super-frames to these kinds of switches.

    They do if all of them take super-frames: innet-switch does, where the kernel does.
    """
    return carries_super_frames() and "bmv2" not in kinds


def require(kinds: Iterable[str] = ()) -> None:
    """Make Mininet importable. Raises UsageError if something is missing."""
    if why := missing(kinds):
        raise UsageError(why)
    _mininet()


def _mininet() -> bool:
    if "mininet" in sys.modules or importlib.util.find_spec("mininet"):
        return True
    # Import this one package of the system, and nothing else beside it.
    spec = importlib.util.spec_from_file_location(
        "mininet", _DEBIAN / "__init__.py", submodule_search_locations=[str(_DEBIAN)]
    )
    if not (spec and spec.loader and (_DEBIAN / "net.py").exists()):
        return False
    sys.modules["mininet"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return True
