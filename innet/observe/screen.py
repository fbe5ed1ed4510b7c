"""The tables of ``innet top``."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from innet.observe.overview import Overview
from innet.observe.rates import Rates
from innet.observe.sample import PORT_COUNTERS
from innet.observe.view import CounterReading, JobView, SwitchView, Viewer
from innet.rpc.words import left_out, reachable, slots_text
from innet.terminal.tables import FittingTable

_TREE_COUNTERS = ("completed", "waiting", "raised", "pending")


class Screen:
    """The tables on the screen, with the earlier samples that rates need."""

    def __init__(self) -> None:
        self._viewer = Viewer()

    def show(self, now: Overview, lines: int | None = None) -> RenderableType:
        """Return the tables of a moment. Rates appear from the second moment on.

        With `lines`, they have no more rows than fit a screen, which takes thousands of rows too long.
        """
        view = self._viewer.see(now)
        tables: list[RenderableType] = [_jobs(view.jobs[:lines]), _switches(view.switches)]
        if view.detailed:
            tables[1:1] = [_members(job, lines) for job in view.jobs]
            tables[2:2] = [_tree(job) for job in view.jobs if job.job.tree]
        if sentence := left_out(view.left_out):
            tables.append(Text(sentence))
        return Group(*tables)


def _jobs(jobs: Iterable[JobView]) -> FittingTable:
    table = FittingTable(
        "job", "switch", "path", "term", "workers", "quorum", "slots", "exchanges/s",
        "chunks/s", "MB/s", "repeated/s", "round trip", "stuck",
        optional=("quorum", "term", "slots", "chunks/s", "switch", "round trip", "repeated/s"),
    )  # fmt: skip
    for each in jobs:
        job = each.job
        table.add_row(
            job.name, job.switch, _path(each), str(job.term),
            f"{len(job.joined)} of {job.workers}", f"{job.quorum} of {job.workers}",
            slots_text(job), *_rates(each.rates, job.lanes),
            _milliseconds(each.round_trip_s), _seconds(each.stuck_s),
        )  # fmt: skip
    return table


def _members(job: JobView, lines: int | None) -> FittingTable:
    table = FittingTable(
        "worker", "port", "address", "exchange", "chunks left", "exchanges/s", "chunks/s",
        "MB/s", "repeated/s", "window", "round trip", "stuck", "heard",
        optional=(
            "window", "chunks/s", "exchanges/s", "address", "round trip", "port", "repeated/s",
        ),
    )  # fmt: skip
    for each in job.workers[:lines]:
        member, progress, address = each.status, each.status.progress, each.status.address
        left = f"{progress.remaining} of {progress.chunks}" if progress.busy else "-"
        port, where = "-", "-"
        if member.HasField("address"):
            port, where = str(member.port), f"{address.ip}:{address.udp_port}"
        table.add_row(
            str(each.rank), port, where, str(progress.exchange), left,
            *_rates(each.rates, job.job.lanes),
            str(progress.window), _milliseconds(progress.round_trip_s),
            _seconds(each.stuck_s), f"{member.silent_s:.1f} s ago",
        )  # fmt: skip
    return table


def _tree(job: JobView) -> FittingTable:
    """Return the table of a job's switches, with what holds sums up there."""
    table = FittingTable(
        "switch of the job", "sums go to", "workers", *_TREE_COUNTERS, "held up",
        optional=("pending", "waiting", "workers"),
    )  # fmt: skip
    for each, cause in zip(job.job.tree, job.held_up, strict=True):
        known = each.HasField("counters")  # if the switch has answered
        counters = [
            f"{getattr(each.counters, name):,}" if known else "-" for name in _TREE_COUNTERS
        ]
        table.add_row(
            each.switch, ", ".join(each.parents) or "-",
            ", ".join(map(str, each.workers)) or "-", *counters, cause,
        )  # fmt: skip
    return table


def _switches(switches: Iterable[SwitchView]) -> FittingTable:
    table = FittingTable("switch", "controlled", "slots in use", "port", *PORT_COUNTERS)
    for each in switches:
        switch = each.switch
        taken = f"{switch.slots - switch.free_slots} of {switch.slots}"
        ports = [[str(port), *map(_count, counts)] for port, counts in each.ports.items()]
        for number, cells in enumerate(ports or [["-"] * (1 + len(PORT_COUNTERS))]):
            first = (switch.name, reachable(switch), taken) if not number else ("", "", "")
            table.add_row(*first, *cells)
    return table


def _path(job: JobView) -> str:
    parts = [job.path]
    if job.wait:
        parts.append(f"waits {job.wait}")
    if job.job.outage:
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


def _count(count: CounterReading) -> str:
    grown = f" (+{count.per_second:,.0f}/s)" if count.per_second and count.per_second > 0 else ""
    return f"{count.total:,}{grown}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"
