"""What the controller has to know of a kind of switch."""

from collections.abc import Mapping
from typing import Protocol

from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as p4rt

from innet.controller.names import Names
from innet.controller.values import Wanted


class Program(Protocol):
    """What a switch is given to run: `lanes` per packet, so many `slots`.

    `device_config` is what P4Runtime's ForwardingPipelineConfig calls ``p4_device_config``.
    """

    @property
    def lanes(self) -> int:
        """32-bit integers per packet."""

    @property
    def slots(self) -> int:
        """Chunks that can be under way."""

    @property
    def device_config(self) -> bytes:
        """The program itself, in the form that the switch's P4Runtime server takes."""

    @property
    def p4info(self) -> p4info_pb2.P4Info:
        """Its schema."""


class Target(Protocol):
    """A kind of switch."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of its program that the controller fills."""

    @property
    def first_device(self) -> int:
        """The lowest device id that its P4Runtime server takes."""

    @property
    def seals(self) -> bool:
        """Whether what it sends to workers has its check (docs/slot-protocol.md)."""

    @property
    def clears_at_once(self) -> int:
        """As many packet-ins as come back to one burst of packet-outs without a loss."""

    @property
    def port_rule(self) -> str:
        """Which ports workers and other switches can be at, for people."""

    def is_port(self, number: int) -> bool:
        """Whether this is one of them."""

    def program(self, lanes: int, artifact: str) -> Program:
        """What it runs. Raises UsageError if there is none with so many lanes, or not all of it."""

    def job_cells(self, names: Names, index: int) -> Mapping[str, p4rt.Entity]:
        """The counter cells of the job with this index, by what each counts."""

    def objection(self, job: Wanted) -> str | None:
        """Why it cannot sum for the workers of a job where they are, if it cannot."""

    def describe(self, device_config: bytes) -> list[str]:
        """What a `device_config` consists of, for people: sizes and digests, a line each."""
