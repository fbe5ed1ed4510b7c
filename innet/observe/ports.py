"""The case of a port of one of a job's switches, for the rules about ports."""

from dataclasses import dataclass

from innet.observe.sample import PORT_COUNTERS, View


@dataclass(frozen=True)
class PortCase:
    """A port of one of the job's switches."""

    view: View
    switch: str
    port: int

    @property
    def subject(self) -> str:
        """Return the port's name for findings."""
        return f"port {self.port} of {self.switch}"

    @property
    def taken(self) -> bool:
        """Return whether a worker of the job is attached to it."""
        return any(
            member.HasField("address")
            and member.port == self.port
            and (member.switch or self.view.now.job.switch) == self.switch
            for member in self.view.now.job.members
        )

    def grown(self) -> dict[str, int]:
        """Return the counters that have grown, and by how much."""
        growth = {
            name: self.view.port_growth(self.switch, self.port, name) for name in PORT_COUNTERS
        }
        return {name: count for name, count in growth.items() if count}

    def counted(self) -> dict[str, int]:
        """Return the counters that are not 0."""
        counters = self.view.now.ports[self.switch, self.port]
        counts = {name: int(getattr(counters, name)) for name in PORT_COUNTERS}
        return {name: count for name, count in counts.items() if count}
