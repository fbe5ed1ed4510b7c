"""The report of an emulation, on a screen and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from innet.emulation.launch import HostExit
from innet.emulation.plan import PlannedLink
from innet.emulation.sums import SwitchSums
from innet.emulation.traffic import LinkCounters
from innet.errors import UsageError
from innet.terminal.console import PlainConsole


@dataclass(frozen=True)
class LinkTraffic:
    """A link and its traffic. `rate` is its cap in bits per second, None if it has none."""

    link: str
    rate: int | None
    traffic: LinkCounters

    @classmethod
    def of(cls, link: PlannedLink, traffic: LinkCounters) -> "LinkTraffic":
        """Return the traffic of a link of the plan."""
        return cls(link.name, link.spec.rate, traffic)


@dataclass(frozen=True)
class EmulationReport:
    """The results of an emulation. `seconds` runs from the command's start to the last host's end."""

    topology: str
    command: Sequence[str]
    seconds: float
    hosts: Sequence[HostExit]
    switches: Sequence[SwitchSums]
    links: Sequence[LinkTraffic]
    offloads: bool

    @property
    def failures(self) -> list[HostExit]:
        """Return the hosts whose command has failed, in the order of `hosts`."""
        return [host for host in self.hosts if host.failed]

    def write(self, path: Path) -> None:
        """Write the report as JSON. Raises UsageError."""
        try:
            path.write_text(json.dumps(asdict(self), indent=2) + "\n")
        except OSError as problem:
            raise UsageError(f"cannot write to {path}: {problem.strerror}") from None

    def show(self, console: PlainConsole) -> None:
        """Print the report as tables."""
        links = Table("link", "rate", "up, bytes", "down, bytes", "up, frames", "down, frames")
        for each in self.links:
            crossed = each.traffic
            links.add_row(
                each.link, rate_text(each.rate), f"{crossed.up_bytes:,}", f"{crossed.down_bytes:,}",
                f"{crossed.up_frames:,}", f"{crossed.down_frames:,}",
            )  # fmt: skip
        console.print(links)
        console.print(f"offloads {'on' if self.offloads else 'off'}")
        if self.switches:
            sums = Table("switch", "kind", "sums", "contributions", "repeated")
            for switch in self.switches:
                sums.add_row(
                    switch.switch, switch.kind, f"{switch.sums:,}", f"{switch.contributions:,}",
                    f"{switch.repeated:,}",
                )  # fmt: skip
            console.print(sums)
        if self.hosts:
            others = ", ".join(f"{each.host} {each}" for each in self.hosts if each.code != 0)
            ends = others or f"all {len(self.hosts)} hosts ended with exit code 0"
            console.print(f"{ends}, after {self.seconds:.1f} s")


def rate_text(rate: int | None) -> str:
    """Return a rate in the largest unit in which it is at least 1."""
    if rate is None:
        return "-"
    for unit, size in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if rate >= size:
            return f"{rate / size:g}{unit}"
    return f"{rate}bit"
