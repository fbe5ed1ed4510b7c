"""A port of one of a job's switches, as the rules about ports see it."""

from dataclasses import dataclass

from innet.observe.sample import PORT_COUNTERS, Observation


@dataclass(frozen=True)
class ObservedPort:
    """A port of one of the job's switches."""

    observation: Observation
    switch: str
    port: int

    @property
    def label(self) -> str:
        """Return the port's name for findings."""
        return f"port {self.port} of {self.switch}"

    @property
    def has_worker(self) -> bool:
        """Return whether a worker of the job is attached to it."""
        return any(
            member.HasField("address")
            and member.port == self.port
            and (member.switch or self.observation.now.job.switch) == self.switch
            for member in self.observation.now.job.members
        )

    @property
    def down(self) -> bool:
        """Return whether the switch reports that the port is down."""
        return self.observation.now.ports[self.switch, self.port].down

    @property
    def has_uplink(self) -> bool:
        """Return whether an uplink of the switch begins at this port."""
        switch = self.observation.now.switches.get(self.switch)
        return any(link.port == self.port for link in (switch.uplinks if switch else ()))

    @property
    def grown_counters(self) -> dict[str, int]:
        """Return the counters that have grown, and by how much."""
        growth = {
            name: self.observation.port_growth(self.switch, self.port, name)
            for name in PORT_COUNTERS
        }
        return {name: count for name, count in growth.items() if count}

    @property
    def nonzero_counters(self) -> dict[str, int]:
        """Return the counters that are not 0."""
        counters = self.observation.now.ports[self.switch, self.port]
        counts = {name: int(getattr(counters, name)) for name in PORT_COUNTERS}
        return {name: count for name, count in counts.items() if count}
