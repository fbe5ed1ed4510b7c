"""The protocol of a kind of switch, as the controller uses it."""

from typing import Protocol

from innet.controller.jobs.records import Assignment
from innet.p4runtime import p4info_pb2


class Program(Protocol):
    """A program that a switch runs, with `lanes` per packet and `slots`.

    `device_config` is the field ``p4_device_config`` of P4Runtime's ForwardingPipelineConfig.
    """

    @property
    def lanes(self) -> int:
        """Return the number of 32-bit integers per packet."""

    @property
    def slots(self) -> int:
        """Return the number of chunks that can be in flight."""

    @property
    def device_config(self) -> bytes:
        """Return the program itself, in the form that the switch's P4Runtime server takes."""

    @property
    def p4info(self) -> p4info_pb2.P4Info:
        """Return the program's schema."""


class Target(Protocol):
    """A kind of switch."""

    @property
    def name(self) -> str:
        """Return the kind's name, as users write it."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables of its program that the controller fills."""

    @property
    def first_device(self) -> int:
        """Return the lowest device id that its P4Runtime server takes."""

    @property
    def seals(self) -> bool:
        """Return whether its packets to workers carry a check (docs/slot-protocol.md)."""

    @property
    def contributors(self) -> int:
        """Return the most contributors of a job: the bits of its program's bitmaps."""

    @property
    def results_begin_chunks(self) -> bool:
        """Return whether it takes a parent's result of a chunk before any contribution to the chunk.

        Otherwise it cannot be between other switches in a tree that sums without some contributors.
        """

    @property
    def clears_at_once(self) -> int:
        """Return how many packet-ins can come back to one burst of packet-outs without a loss."""

    @property
    def port_rule(self) -> str:
        """Return the rule for port numbers of workers and other switches, for people."""

    def is_port(self, number: int) -> bool:
        """Return whether a port's number follows this rule."""

    def program(self, lanes: int, artifact: str) -> Program:
        """Return its program.

        Raises UsageError if there is none with this number of lanes, or if parts of it are missing.
        """

    def objection(self, job: Assignment) -> str | None:
        """Return why it cannot sum for a job's workers at their ports, or None if it can."""

    def describe(self, device_config: bytes) -> list[str]:
        """Return the parts of a `device_config`, for people: sizes and digests, a line each."""
