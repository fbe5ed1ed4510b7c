"""The caller's side of cables with faults: it starts the process that carries packets, and directs it."""

import contextlib
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from innet.errors import InnetError
from innet.local.faults.fates import DOWN, UP, Fate, FateCounts, Faults, Line
from innet.local.ports import free_udp_ports
from innet.machine.scratch import scratch_folder

_STOPS_WITHIN = 10.0
_SHARED = "shm:"


class Wiring:
    """Some cables with faults. `links` are their near ends, for agents.

    A request applies to packets sent later. Counts include all packets sent before.
    """

    def __init__(self, links: list[str], control: Connection) -> None:
        self.links = links
        self._control = control

    def script(self, cable: int, direction: int, fates: Mapping[int, Fate]) -> None:
        """Set the fates of the next packets of a direction, numbered from 0."""
        self._ask("script", cable, direction, dict(fates))

    def chance(self, faults: Faults) -> None:
        """Set the probability of faults from now on, on all cables, in both directions."""
        self._ask("chance", faults)

    def cut(self, cable: int) -> None:
        """Let nothing through in either direction, until the cable is mended."""
        self._ask("chance", Faults(drop=1.0), cable)

    def mend(self, cable: int) -> None:
        """Repair a cable."""
        self._ask("chance", Faults(), cable)

    def release(self) -> None:
        """Release all held packets."""
        self._ask("release")

    def inject(self, cable: int, direction: int, packets: Sequence[bytes]) -> None:
        """Send packets out of one end, as if they had come in at the other."""
        self._ask("inject", cable, direction, packets)

    def recent(self, cable: int, direction: int) -> list[bytes]:
        """Return the last packets that have gone in, up to 256."""
        found: list[bytes] = self._ask("recent", cable, direction)
        return found

    def counts(self, cable: int, direction: int) -> FateCounts:
        """Return the counts of one cable in one direction."""
        found: FateCounts = self._ask("counts", cable, direction)
        return found

    def total(self) -> FateCounts:
        """Return the counts of all cables in both directions, added up."""
        each = [
            asdict(self.counts(cable, direction))
            for cable in range(len(self.links))
            for direction in (UP, DOWN)
        ]
        return FateCounts(**{name: sum(one[name] for one in each) for name in each[0]})

    def _ask(self, *question: Any) -> Any:
        self._control.send(question)
        return self._control.recv()


def _ends(links: Sequence[str], folder: Path) -> tuple[list[Any], list[Any]]:
    """Return the addresses or paths of each cable's ends, for the switch and for the agent."""
    from innet.host.link import parse_endpoints  # with NumPy, which the other process does not need

    if all(link.startswith(_SHARED) for link in links):
        switches = [Path(link.removeprefix(_SHARED)) for link in links]
        return switches, [folder / str(number) for number in range(len(links))]
    return [parse_endpoints(link) for link in links], free_udp_ports(len(links))


@contextlib.contextmanager
def faulty(
    links: Sequence[str],
    seed: int,
    up: Faults | None = None,
    down: Faults | None = None,
    line: Line | None = None,
) -> Iterator[Wiring]:
    """Lengthen free cables by a stretch with faults; `line` bounds the rate of each direction.

    The stretch is made of UDP, or in shared memory, as the cables are. The seed determines the
    faults of each packet.
    """
    ours, theirs = multiprocessing.Pipe()
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from innet.local.faults.carrier import carry; "
        f"carry({theirs.fileno()})"
    )
    with (
        scratch_folder() as folder,
        ours,
        theirs,
        subprocess.Popen(
            [sys.executable, "-c", program], pass_fds=[theirs.fileno()]
        ) as process,
    ):  # fmt: skip
        theirs.close()
        try:
            ends = _ends(links, folder)
            ours.send((*ends, seed, up or Faults(), down or Faults(), line))
            yield Wiring(ours.recv(), ours)
            ours.close()  # this tells the process to end
            if code := process.wait(_STOPS_WITHIN):
                raise InnetError(
                    f"the process that carries the packets ended with exit code {code}"
                )
        finally:
            process.kill()
