"""The controller's web page in a real browser, with a real rack behind it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, browser, needs_browser
from mortal import MortalController, MortalSwitch
from racks import TIMEOUTS, means

from innet.host.agent import Agent
from innet.host.join import join
from innet.local.ports import free_tcp_port
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, connected

pytestmark = needs_browser


@dataclass
class Scene:
    """A rack of two workers with its controller, and its page in a browser."""

    switch: MortalSwitch
    controller: MortalController
    stub: Any
    page: Browser

    @contextlib.contextmanager
    def workers(self, name: str) -> Iterator[list[Agent]]:
        """Yield the workers of a job of their own."""
        request = pb.CreateJobRequest(name=name, switch="tor", workers=2, slots=32)
        token = self.stub.CreateJob(request).token
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context(
                    join(self.controller.address, name, rank, link, token=token, timeouts=TIMEOUTS)
                )
                for rank, link in enumerate(self.switch.links)
            ]
        self.stub.DeleteJob(pb.DeleteJobRequest(name=name))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="module")
def scene(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        switch = MortalSwitch(2)
        stack.callback(switch.kill)
        page = f"127.0.0.1:{free_tcp_port()}"
        log = tmp_path_factory.mktemp("log") / "controller.log"
        controller = MortalController("--web", page, log=log)
        stack.callback(controller.kill)
        channel, stub = connect(controller.address)
        stack.callback(channel.close)
        stub.AddSwitch(
            pb.AddSwitchRequest(name="tor", grpc_address=switch.address, ports=switch.ports)
        )
        chromium.open(f"http://{page}/")
        yield Scene(switch, controller, stub, chromium)


def test_the_page_shows_a_job_with_its_hosts_and_loads(scene: Scene):
    with scene.workers("train") as agents:
        means(agents, *[np.ones(100_000, np.float32)] * 2)
        shown = scene.page.wait_for(
            "switch tor · ready",
            "train worker 0 · ↑",
            "train worker 1 · ↑",
            "2 of 2",
            "worker joined",
        )
        assert "port 1 · 10." in shown
        assert "CreateJob name=train" in shown
    scene.page.wait_for("no jobs", "DeleteJob name=train")


def test_the_page_shows_who_is_waited_for(scene: Scene):
    with scene.workers("halted") as agents:
        first = agents[0].submit(np.ones(1000, np.float32))
        scene.page.wait_for("halted", "s for worker 1")
        agents[1].submit(np.ones(1000, np.float32))
        first.result(TIMEOUTS.workers)
        scene.page.wait_for("halted", without="s for worker 1")


def test_the_page_shows_the_death_and_the_return_of_a_switch(scene: Scene):
    with scene.workers("struck") as agents:
        means(agents, *[np.ones(1000, np.float32)] * 2)
        scene.page.wait_for("switch tor · ready", "struck")
        scene.switch.kill()
        scene.page.wait_for("switch tor · lost: ", "switch lost", without="switch tor · ready")
        scene.switch.start()
        scene.page.wait_for("switch tor · ready", "switch ready", without="switch tor · lost")
        means(agents, *[np.ones(1000, np.float32)] * 2)


def test_over_tls_and_behind_a_token_the_page_is_the_same(
    chromium: Browser, folder: Path, tmp_path: Path
):
    page, file = f"127.0.0.1:{free_tcp_port()}", tmp_path / "token"
    options = ["--tls", str(folder), "--web", page, "--web-token-file", str(file)]
    controller = MortalController(*options, log=tmp_path / "controller.log")
    try:
        chromium.open(f"https://{page}/")
        chromium.wait_for("Token:")
        chromium.fill("token", file.read_text().strip())
        chromium.wait_for(" UTC\n", "no switches", "no jobs", "links are encrypted")
    finally:
        controller.kill()


def test_after_a_take_over_the_page_is_the_stand_by_s(chromium: Browser, tmp_path: Path):
    """Both controllers have the same address for the page, and the browser keeps it open."""
    page = f"127.0.0.1:{free_tcp_port()}"
    options = ["--web", page, "--state", str(tmp_path / "state"), "--standby"]
    with contextlib.ExitStack() as stack:
        logs = [tmp_path / "first.log", tmp_path / "second.log"]
        first, second = (MortalController(*options, log=log) for log in logs)
        stack.callback(second.kill)
        switch = MortalSwitch(2)
        stack.callback(switch.kill)
        with connected(first.address, None) as stub:
            stub.AddSwitch(
                pb.AddSwitchRequest(name="tor", grpc_address=switch.address, ports=switch.ports)
            )
        chromium.open(f"http://{page}/")
        chromium.wait_for("switch tor · ready", "AddSwitch name=tor", without="taking over")
        first.kill()
        chromium.wait_for("switch tor · ready", "taking over", "state restored")
        with connected(second.address, None) as stub:
            stub.CreateJob(pb.CreateJobRequest(name="after", switch="tor", workers=2, slots=32))
        chromium.wait_for("after", "CreateJob name=after", "0 of 2")
        switch.kill()
        chromium.wait_for("switch tor · lost: ")
        assert "cannot serve" not in logs[1].read_text()
