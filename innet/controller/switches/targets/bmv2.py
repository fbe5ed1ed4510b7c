"""BMv2's ``simple_switch_grpc``, and ``innet-switch``, which behaves like it."""

from dataclasses import dataclass
from functools import cache

from innet.controller.jobs.records import Assignment
from innet.errors import UsageError
from innet.p4 import artifacts
from innet.wire.layout import MOST_CONTRIBUTORS

CPU_PORT = 510
"""The port that leads to the controller: a constant of the program."""


@dataclass(frozen=True)
class Bmv2:
    """A software switch. Its program is a JSON file that comes with innet."""

    name: str = "bmv2"
    tables: tuple[str, ...] = (
        "workers", "replicas", "bridge", "service", "own_addresses", "uplinks", "trees",
    )  # fmt: skip
    first_device: int = 0
    seals: bool = True
    contributors: int = MOST_CONTRIBUTORS
    results_begin_chunks: bool = True
    clears_at_once: int = 1024
    port_rule: str = f"numbers below {CPU_PORT}"

    def is_port(self, number: int) -> bool:
        """Return whether a port's number is below the CPU port."""
        return number < CPU_PORT

    def program(self, lanes: int, artifact: str) -> artifacts.Artifact:
        """Return the program that comes with innet. Raises UsageError."""
        if artifact:
            raise UsageError(
                "a software switch runs the program that comes with innet: leave out --artifact"
            )
        return _program(lanes)

    def objection(self, job: Assignment) -> str | None:  # noqa: ARG002 - all ports share all registers
        """Return None: a software switch can sum for workers at any port."""
        return None

    def describe(self, device_config: bytes) -> list[str]:
        """Return one line about the JSON file."""
        return [f"BMv2 JSON, {len(device_config)} bytes, sha256 {artifacts.digest(device_config)}"]


@cache
def _program(lanes: int) -> artifacts.Artifact:
    """Return a program, which all switches that run it share. To read it takes a quarter of a second."""
    return artifacts.artifact(lanes)
