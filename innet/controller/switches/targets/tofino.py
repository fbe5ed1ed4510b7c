"""Tofino 1 and Tofino 2, behind Stratum or an SDE's own P4Runtime server.

docs/tofino.md describes the differences of the program itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from innet.controller.jobs.records import Assignment, rank_in_group
from innet.controller.switches.targets.packing import PipelineForm
from innet.errors import UsageError
from innet.p4 import binaries, tofino
from innet.p4runtime import p4info_pb2

_PIPE_BITS, _PORT_BITS = 2, 7  # a port's number consists of its pipe and its number there
_LAST_PORT = (1 << _PIPE_BITS + _PORT_BITS) - 1


class Ports(NamedTuple):
    """Special ports of a chip, and those in the CPU port's pipe that can have cables.

    `cpu` and `recirculation` are CPU_PORT and RECIRCULATION_PORT of target.p4.
    """

    cpu: int
    recirculation: tuple[int, ...]
    beside_cpu: range


PORTS = {
    "tofino": Ports(
        192, tuple((pipe << _PORT_BITS) + 68 for pipe in range(1 << _PIPE_BITS)), range(128, 192)
    ),
    "tofino2": Ports(0, (), range(1, 128)),
}


@dataclass(frozen=True)
class TofinoProgram:
    """The program for a Tofino, with the chip's binary in `device_config`."""

    lanes: int
    slots: int
    device_config: bytes
    p4info: p4info_pb2.P4Info


@dataclass(frozen=True)
class Tofino:
    """A chip, and the form in which its P4Runtime server takes a pipeline.

    Ports are the chip's own numbers (D_P; gNMI's ``ifindex`` in Stratum). The program's P4Info asks
    for no translation, and then Stratum passes numbers on unchanged (its README.run.md, "Port
    Numbers"). Stratum accepts device ids from 1 on (``p4_service.cc``), and keeps 128 packet-ins
    for a slow controller (``bfrt_packetio_manager.cc``).
    """

    name: str
    chip: str
    packing: PipelineForm
    first_device: int
    tables: tuple[str, ...] = (
        "workers", "replicas", "bridge", "service", "own_addresses", "uplinks", "trees",
    )  # fmt: skip
    seals: bool = False
    contributors: int = 32
    clears_at_once: int = 128

    @property
    def results_begin_chunks(self) -> bool:
        """Return whether its program has a stage for `sequence` behind that of `trees`."""
        return self.chip != "tofino"

    @property
    def port_rule(self) -> str:
        """Return the rule: numbers of nine bits, except for CPU and recirculation ports."""
        special = sorted((PORTS[self.chip].cpu, *PORTS[self.chip].recirculation))
        return f"the chip's own numbers up to {_LAST_PORT} but for {', '.join(map(str, special))}"

    def is_port(self, number: int) -> bool:
        """Return whether a cable can be attached to a port."""
        special = PORTS[self.chip]
        return number <= _LAST_PORT and number not in (special.cpu, *special.recirculation)

    def program(self, lanes: int, artifact: str) -> TofinoProgram:
        """Return the program, made of the files in the folder `artifact`. Raises UsageError."""
        if lanes != tofino.LANES:
            raise UsageError(
                f"{lanes} lanes are not possible: the program for {self.chip} has {tofino.LANES}"
            )
        info = tofino.p4info(self.chip)
        made = binaries.load(self.chip, artifact, [each.preamble.name for each in info.tables])
        slots = tofino.CHIPS[self.chip].slots
        return TofinoProgram(lanes, slots, self.packing.pack(made), info)

    def objection(self, job: Assignment) -> str | None:
        """Return why the chip cannot sum for a job, or None if it can.

        Each pipe has registers of its own. CLEAR packets come from the CPU port and reach only one
        pipe's registers.
        """
        cpu, ports = PORTS[self.chip].cpu, PORTS[self.chip].beside_cpu
        for who, port in _whereabouts(job):
            if _pipe(port) != _pipe(cpu):
                return (
                    f"{who} is at port {port}, in pipe {_pipe(port)}: of this chip only pipe "
                    f"{_pipe(cpu)}, with the CPU port, can sum; attach it to one of the ports "
                    f"{ports[0]} to {ports[-1]}"
                )
        return None

    def describe(self, device_config: bytes) -> list[str]:
        """Return the packed files, a line each."""
        return self.packing.describe(device_config)


def _whereabouts(job: Assignment) -> Iterator[tuple[str, int]]:
    """Yield the port of every worker and switch whose packets change a job's cells."""
    for rank, where in sorted(job.workers.items()):
        yield f"worker {rank_in_group(job.group_ranks, rank)}", where.port
    for share in job.shares:
        for each in share.contributors:
            yield "a switch below", each.where.port  # a worker among them is named above
        if share.uplink:
            yield f"the parent {share.uplink.parent!r}", share.uplink.port


def _pipe(port: int) -> int:
    return port >> _PORT_BITS
