"""The regular updates of ``innet top``, on the screen or as JSON."""

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from innet.errors import ControllerUnreachable
from innet.observe.overview import Overview
from innet.observe.rates import Rates
from innet.observe.screen import Screen
from innet.observe.view import View, Viewer
from innet.rpc.plain import as_plain
from innet.terminal.console import PlainConsole, say_json

Take = Callable[[], Overview]


def run(take: Take, console: PlainConsole, interval: float, *, once: bool) -> None:
    """Update the tables until Ctrl-C. With `once`, take two samples and show the second.

    If the controller does not answer after the first sample, the last tables stay until it does.
    """
    screen = Screen()

    def lines() -> int | None:
        return console.height if console.is_terminal and not once else None

    shown: RenderableType = screen.show(take(), lines())
    if once:
        time.sleep(interval)
        console.print(screen.show(take()))
        return
    with contextlib.ExitStack() as stack:
        show: Callable[[RenderableType], object] = console.print
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
            show = partial(live.update, refresh=True)
        show(shown)
        while True:
            time.sleep(interval)
            try:
                shown = screen.show(take(), lines())
                show(shown)
            except ControllerUnreachable as problem:
                show(Group(Text(f"{problem}; these tables are old", "bold red"), shown))


def run_as_json(take: Take, interval: float, *, once: bool) -> None:
    """Print a line of JSON for each update, until Ctrl-C. With `once`, print one line.

    A job's rates need two samples, so the first line comes after `interval`.
    """
    viewer = Viewer()
    viewer.see(take())
    while True:
        time.sleep(interval)
        now = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        try:
            say_json({**now, **plain(viewer.see(take()))})
        except ControllerUnreachable as problem:
            if once:
                raise
            say_json({**now, "problem": str(problem)})
        if once:
            return


def plain(view: View) -> dict[str, Any]:
    """Return all jobs with their rates, and all switches, as plain values."""
    jobs = []
    for each in view.jobs:
        lanes = each.job.lanes
        members = {str(worker.rank): _per_second(worker.rates, lanes) for worker in each.workers}
        total = _per_second(each.rates, lanes)
        jobs.append({**as_plain(each.job), "rates": total, "member_rates": members})
    switches = [as_plain(each.switch) for each in view.switches]
    return {"jobs": jobs, "switches": switches, "jobs_left_out": view.left_out}


def _per_second(rates: Rates | None, lanes: int) -> dict[str, float] | None:
    if rates is None:
        return None
    return {
        "exchanges_per_s": rates.exchanges,
        "chunks_per_s": rates.chunks,
        "bytes_per_s": rates.payload(lanes),
        "packets_per_s": rates.packets,
        "retransmissions_per_s": rates.retransmissions,
        "losses_per_s": rates.losses,
    }
