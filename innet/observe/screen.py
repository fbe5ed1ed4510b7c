"""The tables of ``innet top``."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from innet.host.stragglers import named
from innet.observe.diagnosis import held_up
from innet.observe.overview import Overview
from innet.observe.rates import Rates, RateTracker
from innet.observe.sample import PORT_COUNTERS, Observation, Sample
from innet.observe.stalls import STALLED_S
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import PATHS, left_out, reachable
from innet.terminal.tables import FittingTable

_TREE_COUNTERS = ("completed", "waiting", "raised", "pending")


class Screen:
    """The tables on the screen, with the earlier samples that rates need."""

    def __init__(self) -> None:
        self._rates = RateTracker()
        self._before: Overview | None = None

    def show(self, now: Overview) -> RenderableType:
        """Return the tables of a moment. Rates appear from the second moment on."""
        for sample in now.samples:
            self._rates.update(sample)
        tables: list[RenderableType] = [self._jobs(now.samples), self._switches(now)]
        if now.detailed:
            tables[1:1] = [self._members(sample) for sample in now.samples]
            tables[2:2] = [self._tree(sample) for sample in now.samples if sample.job.tree]
        if sentence := left_out(now.left_out):
            tables.append(Text(sentence))
        self._before = now
        return Group(*tables)

    def _jobs(self, samples: Iterable[Sample]) -> FittingTable:
        table = FittingTable(
            "job", "switch", "path", "term", "workers", "quorum", "slots", "exchanges/s",
            "chunks/s", "MB/s", "repeated/s", "round trip", "stuck",
            optional=("quorum", "term", "slots", "chunks/s", "switch", "round trip", "repeated/s"),
        )  # fmt: skip
        for sample in samples:
            job, progress = sample.job, [each.progress for each in sample.members.values()]
            table.add_row(
                job.name, job.switch, _path(job), str(job.term),
                f"{len(job.joined)} of {job.workers}", f"{job.quorum} of {job.workers}",
                str(job.slots), *_rates(self._rates.of_job(sample), job.lanes),
                _milliseconds(max((each.round_trip_s for each in progress), default=0.0)),
                _seconds(max((_stuck(each) for each in progress), default=0.0)),
            )  # fmt: skip
        return table

    def _members(self, sample: Sample) -> FittingTable:
        table = FittingTable(
            "worker", "port", "address", "exchange", "chunks left", "exchanges/s", "chunks/s",
            "MB/s", "repeated/s", "window", "round trip", "stuck", "heard",
            optional=(
                "window", "chunks/s", "exchanges/s", "address", "round trip", "port", "repeated/s",
            ),
        )  # fmt: skip
        for rank, member in sorted(sample.members.items()):
            progress, address = member.progress, member.address
            left = f"{progress.remaining} of {progress.chunks}" if progress.busy else "-"
            where = f"{address.ip}:{address.udp_port}" if member.HasField("address") else "-"
            table.add_row(
                str(rank), str(member.port), where, str(progress.exchange), left,
                *_rates(self._rates.of_worker(sample.job.name, rank), sample.job.lanes),
                str(progress.window), _milliseconds(progress.round_trip_s),
                _seconds(_stuck(progress)), f"{member.silent_s:.1f} s ago",
            )  # fmt: skip
        return table

    def _tree(self, sample: Sample) -> FittingTable:
        """Return the table of a job's switches, with what holds sums up there."""
        table = FittingTable(
            "switch of the job", "sums go to", "workers", *_TREE_COUNTERS, "held up",
            optional=("pending", "waiting", "workers"),
        )  # fmt: skip
        before = next((each for each in self._samples if each.job.name == sample.job.name), sample)
        for each, cause in zip(sample.job.tree, held_up(Observation(before, sample)), strict=True):
            counters = [f"{getattr(each.counters, name):,}" for name in _TREE_COUNTERS]
            table.add_row(
                each.switch, ", ".join(each.parents) or "-",
                ", ".join(map(str, each.workers)) or "-", *counters, cause,
            )  # fmt: skip
        return table

    @property
    def _samples(self) -> tuple[Sample, ...]:
        return self._before.samples if self._before else ()

    def _switches(self, now: Overview) -> FittingTable:
        table = FittingTable("switch", "controlled", "slots in use", "port", *PORT_COUNTERS)
        for switch in now.switches:
            taken = f"{switch.slots - switch.free_slots} of {switch.slots}"
            ports = list(self._ports(switch, now.at)) or [["-"] * (1 + len(PORT_COUNTERS))]
            for number, cells in enumerate(ports):
                first = (switch.name, reachable(switch), taken) if not number else ("", "", "")
                table.add_row(*first, *cells)
        return table

    def _ports(self, switch: pb.Switch, at: float) -> Iterator[list[str]]:
        """Yield the ports with a count above 0."""
        before = self._counters_before(switch.name)
        for port in switch.port_counters:
            counts = [int(getattr(port, name)) for name in PORT_COUNTERS]
            if any(counts):
                earlier = before.get(port.port, pb.PortCounters())
                yield [
                    str(port.port),
                    *(
                        _count(count, count - int(getattr(earlier, name)), self._seconds_to(at))
                        for name, count in zip(PORT_COUNTERS, counts, strict=True)
                    ),
                ]

    def _counters_before(self, name: str) -> dict[int, pb.PortCounters]:
        switches = self._before.switches if self._before else ()
        return {
            port.port: port
            for switch in switches
            if switch.name == name
            for port in switch.port_counters
        }

    def _seconds_to(self, at: float) -> float | None:
        return at - self._before.at if self._before else None


def _path(job: pb.Job) -> str:
    path = PATHS[job.path]
    parts = [f"{path}: {job.reason}" if job.reason else path]
    if job.waiting_s >= STALLED_S:
        parts.append(f"waits {job.waiting_s:.0f} s for {named(job.waiting_for)}")
    if job.outage:
        parts.append("the controller hears no worker")
    return "; ".join(parts)


def _rates(rates: Rates | None, lanes: int) -> list[str]:
    if rates is None:
        return ["-"] * 4
    again = f"{rates.retransmissions:.0f}"
    if rates.packets and rates.retransmissions:
        again += f" ({rates.retransmissions / rates.packets:.1%})"
    return [
        f"{rates.exchanges:.1f}",
        f"{rates.chunks:,.0f}",
        f"{rates.payload(lanes) / 1e6:.1f}",
        again,
    ]


def _stuck(progress: pb.Progress) -> float:
    return float(progress.stuck_s) if progress.busy else 0.0


def _count(total: int, grown: int, seconds: float | None) -> str:
    if not seconds or grown <= 0:
        return f"{total:,}"
    return f"{total:,} (+{grown / seconds:,.0f}/s)"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"
