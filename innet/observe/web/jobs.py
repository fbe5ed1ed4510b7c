"""The table of jobs, as rows of the page's table."""

from typing import Any

from innet.observe.rates import Rates
from innet.observe.view import JobView
from innet.rpc.words import slots_text

COLUMNS = (
    "job", "switch", "path", "workers", "slots", "term", "recoveries", "MB/s", "exchanges/s", "lost/s",
    "repeated/s", "round trip", "stuck", "waits",
)  # fmt: skip
"""The names of the columns. The first identifies a row."""


def row(view: JobView) -> dict[str, Any]:
    """Return the cells of a job, by column."""
    job = view.job
    outage = ["the controller hears no worker"] if job.outage else []
    cells = (
        job.name, job.switch, "; ".join([view.path, *outage]), f"{len(job.joined)} of {job.workers}",
        slots_text(job), job.term, job.recoveries, *_rates(view.rates, job.lanes),
        f"{view.round_trip_s * 1e3:.2f} ms", f"{view.stuck_s:.1f} s", view.wait or "-",
    )  # fmt: skip
    return dict(zip(COLUMNS, cells, strict=True))


def _rates(rates: Rates | None, lanes: int) -> list[str]:
    if rates is None:
        return ["-"] * 4
    return [
        f"{rates.payload(lanes) / 1e6:.2f}", f"{rates.exchanges:.1f}", f"{rates.losses:,.0f}",
        f"{rates.retransmissions:,.0f}",
    ]  # fmt: skip
