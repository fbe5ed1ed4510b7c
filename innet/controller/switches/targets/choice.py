"""The table of all kinds of switch."""

from innet.controller.switches.targets.bmv2 import Bmv2
from innet.controller.switches.targets.interface import Target
from innet.controller.switches.targets.packing import Sde, Stratum
from innet.controller.switches.targets.tofino import Tofino
from innet.errors import UsageError

DEFAULT = "bmv2"

_ALL: tuple[Target, ...] = (
    Bmv2(),
    Tofino("tofino", "tofino", Stratum(), first_device=1),
    Tofino("tofino2", "tofino2", Stratum(), first_device=1),
    Tofino("tofino-sde", "tofino", Sde(), first_device=0),
    Tofino("tofino2-sde", "tofino2", Sde(), first_device=0),
)
TARGETS = {each.name: each for each in _ALL}


def find(name: str) -> Target:
    """Return the kind of switch with this name, by default a software switch. Raises UsageError."""
    if (name or DEFAULT) not in TARGETS:
        raise UsageError(f"target {name[:40]!r}: there are {', '.join(TARGETS)}")
    return TARGETS[name or DEFAULT]
