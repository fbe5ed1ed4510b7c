"""The command ``innet``, run as a user runs it: what it prints, and the code it ends with."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import refuse, run, serving
from racks import PATIENCE, WITHIN, free_cables
from switches import Switch, running_switch

from innet.cli import parse_ports
from innet.errors import UsageError
from innet.host.agent import join


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(2) as running:
        yield running


@pytest.fixture(scope="module")
def controller(switch: Switch) -> Iterator[str]:
    with serving() as (_, address):
        add = ["switch", "add", "tor", switch.address, "--ports", "1-2", "--controller", address]
        done = run("innet", *add)
        assert done.stdout == "switch tor: 8192 slots of 64 lanes, at 10.255.255.254\n", done.stderr
        yield address


def test_switches_and_jobs_are_added_shown_and_deleted(switch: Switch, controller: str):
    def innet(*arguments: str) -> str:
        done = run("innet", *arguments, INNET_CONTROLLER=controller)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    created = innet("job", "create", "mnist", "--switch", "tor", "--workers", "2", "--slots", "64")
    assert created.splitlines() == [
        "job mnist: 2 workers, slots 0 to 63 of tor, 64 lanes",
        f"workers find it with INNET_CONTROLLER={controller} INNET_JOB=mnist",
    ]
    listed = innet("switch", "list")
    for word in ("tor", switch.address, "1,2", "10.255.255.254", "8128 of 8192"):
        assert word in listed
    assert re.search(r"mnist\W+tor\W+2\W+0\W+64\W+64\b", innet("job", "list"))
    shown = innet("job", "show", "mnist")
    for name in ("waiting", "completed", "answered", "pending", "stale"):
        assert re.search(rf"{name}\W+0\b", shown)
    assert re.search(r"workers\W+2; joined: none", shown)
    assert innet("job", "delete", "mnist") == "job mnist deleted\n"
    assert "mnist" not in innet("job", "list")
    assert "8192 of 8192" in innet("switch", "list")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("job create j --switch tor --workers 33", "33 workers: .* as the bitmap has bits"),
        ("job create j --switch tor --workers 0", "0 workers"),
        ("job create j --switch spine --workers 2", "no switch 'spine'; there is: tor"),
        ("job create j --switch tor --workers 2 --slots 100", "100 slots: .* a power of two"),
        ("job show nowhere", "no job 'nowhere'; there is: "),
        ("job delete nowhere", "no job 'nowhere'"),
        ("switch add tor 127.0.0.1:1 --ports 1", "there is a switch 'tor'"),
        ("switch add new 127.0.0.1:1 --ports 1 --lanes 65", "no program for 65 lanes"),
        ("switch add new 127.0.0.1:1 --ports 1 --service-ip ten", "'ten' are no MAC and IPv4"),
        ("switch add new 127.0.0.1:1 --ports one", "ports 'one': write them as in 1-4,7"),
    ],
)
def test_what_the_controller_cannot_do_ends_with_code_2(controller: str, arguments: str, why: str):
    refuse(why, "innet", *arguments.split(), "--controller", controller)


def test_a_controller_that_is_not_there_ends_with_code_2():
    why = "no controller answers at 127.0.0.1:1: start one with `innet controller`"
    refuse(why, "innet", "switch", "list", "--controller", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("innet controller --address", "cannot serve at {}: is the port in use"),
        ("innet-switch --no-p4 --grpc-server-addr", "cannot serve P4Runtime at {}: is the port"),
    ],
)
def test_an_address_in_use_ends_with_code_2(command: str, why: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refuse(why.format(address), *command.split(), address)


@pytest.mark.parametrize("text", ["", "P4", "{}", "[1]", '{"pipelines": 3}', "\xff", "null"])
def test_a_program_that_is_not_bmv2s_ends_with_code_2(tmp_path: Path, text: str):
    program = tmp_path / "program.json"
    program.write_bytes(text.encode("latin-1"))
    refuse("not a BMv2 JSON", "innet-switch", str(program), "--grpc-server-addr", "127.0.0.1:0")


@pytest.mark.parametrize("text", ["", "1-", "-1", "a", "1-x", "1,,2", "1-2-3", "4-1", "²", "1;2"])
def test_ports_are_numbers_and_ranges(text: str):
    with pytest.raises(UsageError, match="write them as in 1-4,7"):
        parse_ports(text)


def test_ranges_of_ports_include_both_ends():
    assert parse_ports("1-4,7,9-9") == [1, 2, 3, 4, 7, 9]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_controller_stops_when_told_even_with_workers(number: signal.Signals):
    with running_switch(1) as switch, serving() as (process, address):
        for arguments in (
            ["switch", "add", "tor", switch.address, "--ports", "1"],
            ["job", "create", "job", "--switch", "tor", "--workers", "1"],
        ):
            assert run("innet", *arguments, "--controller", address).returncode == 0
        with join(address, "job", 0, free_cables(switch)[0], patience=PATIENCE) as agent:
            process.send_signal(number)
            assert process.wait(WITHIN) == 0
            assert "Traceback" not in process.stderr.read()
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
            assert agent.all_reduce(np.ones(100, np.float32)).tolist() == [1.0] * 100
