"""BMv2's ``simple_switch_grpc``, and ``innet-switch``, which behaves like it."""

from collections.abc import Mapping
from dataclasses import dataclass

from innet.controller.jobs.records import Assignment
from innet.controller.switches.names import Names
from innet.errors import UsageError
from innet.p4 import artifacts
from innet.p4runtime import p4runtime_pb2 as p4rt

CPU_PORT = 510
"""The port that leads to the controller: a constant of the program."""

_COUNTERS = ("waiting", "completed", "answered", "pending", "stale", "raised", "ignored")


@dataclass(frozen=True)
class Bmv2:
    """A software switch. Its program is a JSON file that comes with innet."""

    name: str = "bmv2"
    tables: tuple[str, ...] = (
        "workers", "replicas", "bridge", "service", "own_addresses", "uplinks", "trees",
    )  # fmt: skip
    first_device: int = 0
    seals: bool = True
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
        return artifacts.artifact(lanes)

    def job_cells(self, names: Names, index: int) -> Mapping[str, p4rt.Entity]:
        """Return one counter cell of the job for each outcome."""
        return {each: names.counter(each, index) for each in _COUNTERS}

    def objection(self, job: Assignment) -> str | None:  # noqa: ARG002 - all ports share all registers
        """Return None: a software switch can sum for workers at any port."""
        return None

    def describe(self, device_config: bytes) -> list[str]:
        """Return one line about the JSON file."""
        return [f"BMv2 JSON, {len(device_config)} bytes, sha256 {artifacts.digest(device_config)}"]
