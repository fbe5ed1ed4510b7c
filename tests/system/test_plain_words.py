"""Every command shows text of others unchanged, and harms no terminal."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from rich.table import Table

from innet.cli import app
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.terminal.app import run as run_app
from innet.terminal.console import PlainConsole, printable

HOSTILE = ("[/x]", "[red]a[/red]", ":smile:", "\x1b[2J\x1b]0;title\x07", "a\rb", "\u202eabc", "[")
ALL = "".join(HOSTILE)


def tree(name: str) -> list[pb.JobSwitch]:
    return [
        pb.JobSwitch(switch=name),
        pb.JobSwitch(switch="below " + name, parents=[name], workers=[0]),
    ]


def job(name: str) -> pb.Job:
    address = pb.Address(mac=name, ip=name, udp_port=20_000)
    progress = pb.Progress(busy=True, chunks=3, remaining=1, exchange=1)
    member = pb.WorkerStatus(rank=0, port=1, address=address, progress=progress, switch=name)
    return pb.Job(
        name=name, switch=name, workers=2, quorum=2, slots=32, joined=[0], reason=name,
        members=[member], tree=tree(name), worker_lease_s=0.01,
    )  # fmt: skip


def switch(name: str) -> pb.Switch:
    uplink = pb.Uplink(parent=name, port=1, parent_port=2, found=name)
    return pb.Switch(
        name=name, grpc_address=name, ports=[1], service=pb.Address(ip=name, mac=name),
        target=name, uplinks=[uplink], port_counters=[pb.PortCounters(port=1, refused=1)],
    )  # fmt: skip


class HostileController(rpc.ControllerServicer):
    """A controller that gives everything the same name."""

    name = ALL

    def AddSwitch(self, *_: Any) -> pb.Switch:  # noqa: N802
        return switch(self.name)

    def ListSwitches(self, *_: Any) -> pb.ListSwitchesResponse:  # noqa: N802
        return pb.ListSwitchesResponse(switches=[switch(self.name)])

    def GetSwitch(self, *_: Any) -> pb.Switch:  # noqa: N802
        return switch(self.name)

    def CreateJob(self, *_: Any) -> pb.CreateJobResponse:  # noqa: N802
        return pb.CreateJobResponse(job=job(self.name), token="the-token")  # noqa: S106

    def ListJobs(self, *_: Any) -> pb.ListJobsResponse:  # noqa: N802
        return pb.ListJobsResponse(jobs=[job(self.name)])

    def GetJob(self, *_: Any) -> pb.Job:  # noqa: N802
        return job(self.name)

    def DeleteJob(self, _: Any, context: Any) -> Any:  # noqa: N802
        context.abort(grpc.StatusCode.NOT_FOUND, self.name)


@pytest.fixture(scope="module")
def hostile() -> Iterator[tuple[HostileController, str]]:
    server = grpc.server(ThreadPoolExecutor(2))
    controller = HostileController()
    rpc.add_ControllerServicer_to_server(controller, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield controller, f"127.0.0.1:{port}"
    server.stop(None)


@pytest.fixture
def innet(hostile: tuple[HostileController, str], capsys) -> Callable[..., str]:
    """Return a function that runs a command of innet, and returns its output."""

    def run(line: str) -> str:
        with pytest.raises(SystemExit):
            run_app(app, [*line.split(), "--controller", hostile[1]])
        said = capsys.readouterr()
        return said.out + said.err

    return run


@pytest.mark.parametrize(
    "command",
    [
        "switch add tor 127.0.0.1:1 --ports 1", "switch list", "switch show tor",
        "job create train --switch tor --workers 2", "job list", "job show train",
        "job delete train", "top --once --interval 0.1", "top --once --interval 0.1 --job train",
        "doctor train --interval 0.1",
    ],
)  # fmt: skip
def test_every_command_shows_hostile_words_literally(innet: Callable[..., str], command: str):
    said = innet(command)
    assert printable(ALL) in said
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(said)
    assert "Traceback" not in said
    if command.startswith("job create"):
        assert "INNET_TOKEN=the-token\n" in said


def test_a_job_whose_name_is_a_command_is_shown_as_one_word_of_a_shell(
    hostile: tuple[HostileController, str], innet: Callable[..., str], monkeypatch
):
    monkeypatch.setattr(hostile[0], "name", "$(touch /tmp/pwn)")
    assert "INNET_JOB='$(touch /tmp/pwn)' " in innet("job create train --switch tor --workers 2")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_terminal_gets_no_other_control_characters_than_our_own_styles(name: str):
    paper = io.StringIO()
    terminal = PlainConsole(file=paper, force_terminal=True, width=200, color_system=None)
    table = Table("column")
    table.add_row(name)
    terminal.print(name, table)
    said = paper.getvalue()
    assert said.count(printable(name)) == 2
    assert "\x1b" not in said


@pytest.mark.parametrize("address", ["[fe80::1]:7000", "[/x]:7000"])
def test_a_status_line_shows_an_address_in_brackets(address: str):
    paper = io.StringIO()
    terminal = PlainConsole(file=paper, force_terminal=True, width=200, color_system=None)
    with terminal.status(f"asking {address}"):
        pass
    assert f"asking {address}" in paper.getvalue()


def test_printable_keeps_what_people_write():
    text = "Größe 3 µs, 数, line\nline\ttab"
    assert printable(text) == text
    assert printable("\x1b[2J\udc80") == "\\x1b[2J\\udc80"
