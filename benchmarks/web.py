"""The web page: its delay when a switch dies and returns, and its cost for the controller.

Debian's packages chromium and chromium-driver have to be installed, and the Python package selenium. No
root is needed::

    python -m benchmarks.web

Two racks and a spine run on this machine, with 64 workers in two jobs that sum a little every second.
A browser without a screen reads the page. The share of a core that the controller uses is measured while
the browser shows the page and while it does not, in turns. Then one of the racks' switches is killed and
started again. The first delay is from the kill until the page shows the death. The second is from the
switch's first line, which says that it serves again, until the page shows the return.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from innet.host.agent import Agent
from innet.host.join import join
from innet.local.ports import free_cables, free_tcp_port, port_options
from innet.local.processes import announced, command, serving, spawned, stop
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

RACKS, RACK_WORKERS = ("left", "right"), 32
JOBS = ("train", "tune")
GONE_WITHIN = 60.0


class Switch:
    """A switch that can be killed and started again."""

    def __init__(self, interfaces: list[str]) -> None:
        self.address = f"127.0.0.1:{free_tcp_port()}"
        switch = [*command("innet.switch.cli"), "--no-p4", "--grpc-server-addr", self.address]
        self._command = [*switch, *port_options(interfaces)]
        self._running = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        """Start the switch, and return when it serves."""
        process = spawned(self._command, stderr=subprocess.DEVNULL)
        self._process = self._running.enter_context(process)
        announced(self._process, "P4Runtime")

    def kill(self) -> None:
        """Kill the switch with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the switch."""
        stop(self._process)
        self._running.close()


class Cluster:
    """Two racks below a spine, their controller with its page, and 64 workers in two jobs."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        uplinks = free_cables(len(RACKS))
        hosts = [free_cables(RACK_WORKERS) for _ in RACKS]
        ports = [[each.interface for each in uplinks]]
        ports += [
            [each.interface for each in mine] + [up.link]
            for mine, up in zip(hosts, uplinks, strict=True)
        ]
        self.switches = [Switch(mine) for mine in ports]
        for each in self.switches:
            stack.callback(each.close)
        self.page = f"127.0.0.1:{free_tcp_port()}"
        start = [
            *command("innet.cli"),
            "controller",
            "--address",
            "127.0.0.1:0",
            "--web",
            self.page,
        ]
        process, self.address = stack.enter_context(serving("controller", start))
        self.controller = process.pid
        channel, self._stub = connect(self.address)
        stack.callback(channel.close)
        self._add_switches()
        links = [[each.link for each in mine] for mine in hosts]
        self.agents = {
            job: self._join(stack, job, number, links) for number, job in enumerate(JOBS)
        }

    def _add_switches(self) -> None:
        spine, *racks = self.switches
        self._stub.AddSwitch(
            pb.AddSwitchRequest(name="spine", grpc_address=spine.address, ports=[1, 2])
        )
        for number, (name, switch) in enumerate(zip(RACKS, racks, strict=True), start=1):
            link = pb.Uplink(parent="spine", port=RACK_WORKERS + 1, parent_port=number)
            self._stub.AddSwitch(
                pb.AddSwitchRequest(
                    name=name, grpc_address=switch.address, uplinks=[link],
                    ports=range(1, RACK_WORKERS + 2),
                )
            )  # fmt: skip

    def _join(
        self, stack: contextlib.ExitStack, job: str, number: int, links: list[list[str]]
    ) -> list[Agent]:
        """Join a job with half of the workers of each rack."""
        half = RACK_WORKERS // 2
        mine = [link for rack in links for link in rack[number * half : (number + 1) * half]]
        request = pb.CreateJobRequest(name=job, switch="spine", workers=len(mine), slots=128)
        token = self._stub.CreateJob(request).token
        return [
            stack.enter_context(join(self.address, job, rank, link, token=token))
            for rank, link in enumerate(mine)
        ]

    @contextlib.contextmanager
    def summing(self, elements: int) -> Iterator[None]:
        """Let each job sum a vector every second."""
        ended = threading.Event()

        def run(agents: list[Agent]) -> None:
            vector = np.ones(elements, np.float32)
            while not ended.wait(1.0):
                for future in [agent.submit(vector) for agent in agents]:
                    future.result()

        threads = [threading.Thread(target=run, args=(each,)) for each in self.agents.values()]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def browser() -> Iterator["Chrome"]:
    """Start a browser without a screen. Raises ModuleNotFoundError without selenium."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    for each in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
    ):
        options.add_argument(each)
    options.binary_location = str(shutil.which("chromium"))
    driver = Chrome(options, ChromeService(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def cpu_share(process: int, seconds: float) -> float:
    """Return the share of a core that a process uses over some seconds."""

    def used() -> float:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before, started = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - started)


def text(driver: "Chrome") -> str:
    """Return the text that the page shows."""
    return str(driver.execute_script("return document.body.innerText"))


def delay(driver: "Chrome", shown: Callable[[str], bool]) -> float:
    """Return the seconds until the page's text is as wanted. Raises TimeoutError."""
    started = time.monotonic()
    while time.monotonic() < started + GONE_WITHIN:
        if shown(text(driver)):
            return time.monotonic() - started
        time.sleep(0.01)
    raise TimeoutError(f"the page shows: {text(driver)}")


def main(
    rounds: Annotated[int, typer.Option(help="Rounds of the two situations, and deaths.")] = 5,
    seconds: Annotated[float, typer.Option(help="Seconds of each measurement of the cost.")] = 15.0,
    elements: Annotated[int, typer.Option(help="Elements of the vectors.")] = 4000,
    screenshot: Annotated[
        Path | None, typer.Option(help="Write a picture of the page to this file.")
    ] = None,
) -> None:
    """Measure the page's delays, and its cost for the controller."""
    console = Console()
    shares: dict[str, list[float]] = {"not shown": [], "shown": []}
    deaths, returns = [], []
    with contextlib.ExitStack() as stack:
        driver = stack.enter_context(browser())
        cluster = Cluster(stack)
        with cluster.summing(elements):
            for _ in track(range(rounds), "measuring", console=console, transient=True):
                driver.get("about:blank")
                cpu_share(cluster.controller, 5.0)  # the page's process forgets the browser
                shares["not shown"].append(cpu_share(cluster.controller, seconds))
                driver.get(f"http://{cluster.page}/")
                delay(driver, lambda shown: "tune worker 31 · ↑" in shown)
                shares["shown"].append(cpu_share(cluster.controller, seconds))
            if screenshot:
                driver.save_screenshot(str(screenshot))
        switch = cluster.switches[1]
        for _ in track(range(rounds), "killing", console=console, transient=True):
            switch.kill()
            deaths.append(delay(driver, lambda shown: "switch left · lost" in shown))
            switch.start()
            returns.append(delay(driver, lambda shown: "switch left · ready" in shown))
    table = Table("measured", "median", "most")
    for name, found in shares.items():
        table.add_row(
            f"controller, page {name}",
            *(f"{each:.2%}" for each in (statistics.median(found), max(found))),
        )
    for name, found in (("death", deaths), ("return", returns)):
        table.add_row(
            f"{name} shown after",
            *(f"{each:.2f} s" for each in (statistics.median(found), max(found))),
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
