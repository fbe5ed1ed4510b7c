"""The switch's traces and captures of packets: ``--log-console`` and ``--pcap``."""

import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from clone_sessions import ELECTIONS, ROOM, session
from p4runtime_client import Controller, Names, group
from scapy.utils import RawPcapReader
from switches import COMMAND, Switch, receive, running_switch
from tiny_programs import FOLDER, program

from innet.switch import bmv2json
from innet.switch.codegen import generate
from topologies import namespaces

LINE = re.compile(
    r"\[(\d\d:){2}\d\d\.\d{3}\] \[innet\] \[([A-Z])\] \[thread \d+\] \[(\d+\.\d+)\] \[cxt 0\] (.*)"
)
ROUTER = Names(program("router").p4info)


def told(switch: Switch, last: str) -> list[tuple[str, str, str]]:
    """Return the level, packet and message of each line until one ends with `last`.

    The lines that follow a message belong to it.
    """
    lines: list[tuple[str, str, str]] = []
    for text in iter(switch.process.stdout.readline, ""):
        found = LINE.fullmatch(text.rstrip("\n"))
        if found:
            lines.append((found[2], found[3], found[4]))
        else:
            level, packet, message = lines.pop()
            lines.append((level, packet, f"{message}\n{text.rstrip()}"))
        if lines[-1][2].endswith(last):
            return lines
    pytest.fail(f"the switch ended before it said {last!r}")


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with running_switch(3, "--log-console") as running:
        yield running


@pytest.fixture
def controller(switch: Switch, request) -> Iterator[Controller]:
    # The stream of the previous test may still be open.
    with Controller(switch.address, next(ELECTIONS)) as primary:
        primary.configure(program(request.param))
        yield primary


def running(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("controller", [name], indirect=True)


@running("router")
def test_a_packet_is_followed_through_parser_tables_actions_and_deparser(switch, controller):
    match = {"destination": (0x0A010200, 24)}
    controller.insert(ROUTER.entry("routes", match, "forward", next_hop=0x0200_0000_0102, port=2))
    ethernet = bytes.fromhex("0200000000fe 020000000001 0800")
    ip = bytes.fromhex("45000014 00010000 4006 64df 0a000001 0a010203")
    switch.hosts[0].send(ethernet + ip)
    lines = told(switch, "out of port 2")
    messages = [message for _, _, message in lines]
    assert {packet for _, packet, _ in lines} == {"0.0"}
    assert messages[:9] == [
        "Processing packet received on port 1",
        "Parser 'parser': start",
        "Parser 'parser' entering state 'start'",
        "Extracting header 'ethernet'",
        "Parser state 'start': key is 0800",
        "Bytes parsed: 14",
        "Parser 'parser' entering state 'parse_ipv4'",
        "Extracting header 'ipv4'",
        "Parser state 'parse_ipv4': key is 0405",
    ]
    at = messages.index("Applying table 'RouterIngress.routes'")
    assert messages[at + 1] == "Looking up key:\n* destination         : 0a010203\n"
    assert re.fullmatch(r"Table 'RouterIngress.routes': hit with handle \d+", messages[at + 2])
    assert messages[at + 3 : at + 5] == [
        "Action entry is RouterIngress.forward - 020000000102,0002,",
        "Action RouterIngress.forward",
    ]
    step = re.compile(r"router\.p4\(\d+\) Primitive standard\.egress_spec = port")
    assert any(map(step.fullmatch, messages))
    assert messages[-5:] == [
        "Deparser 'deparser': start",
        "Deparsing header 'ethernet'",
        "Deparsing header 'ipv4'",
        "Deparser 'deparser': end",
        "Transmitting packet of size 34 out of port 2",
    ]
    assert receive(switch.hosts[1])[:6] == bytes.fromhex("020000000102")


@running("path_exit")
def test_misses_conditions_and_ends_are_told(switch, controller):
    switch.hosts[0].send(struct.pack("!BH", 4, 0))
    messages = [message for _, _, message in told(switch, "out of port 2")]
    assert "Table 'PathExitIngress.ends': miss" in messages
    assert any(
        re.fullmatch(
            r'path_exit\.p4\(\d+\) Condition "hdr\.probe\.command == 4" \(.*\) is true', each
        )
        for each in messages
    )
    end = messages.index("Packet is marked for exit, interrupting pipeline")
    assert messages[end + 1 : end + 4] == [
        "Pipeline 'ingress': end",
        "Egress port is 2",
        "Pipeline 'egress': start",
    ]


@running("path_metadata")
def test_a_parser_s_error_is_told_by_its_name(switch, controller):
    switch.hosts[0].send(bytes(3))
    lines = told(switch, "Parser 'parser': end")
    assert [message for level, _, message in lines if level == "E"] == [
        "Exception while parsing: PacketTooShort"
    ]
    told(switch, "Dropping packet at the end of ingress")


@running("path_effects")
def test_every_copy_of_a_packet_has_a_number_of_its_own(switch, controller):
    controller.insert(session(5, (3, 9)), group(5, (1, 1), (2, 2)))
    switch.hosts[0].send(struct.pack("!HHB", 1 | 1 << 5 | 1 << 10, 5, 0) + ROOM)
    sent = []
    lines = []
    while len(sent) < 3:
        lines += told(switch, "Pipeline 'egress': end")
        sent = {packet for _, packet, text in lines if text == "Pipeline 'egress': end"}
    messages = {message for _, _, message in lines}
    assert {"Cloning packet at ingress", "Multicast requested for packet"} <= messages
    assert {"Replicating packet on port 3", "Replicating packet on port 1"} <= messages
    assert "Recirculating packet" in messages


def test_only_a_program_that_traces_has_code_for_it():
    loaded = bmv2json.load(program("router").json)
    plain, tracing = generate(loaded), generate(loaded, tracing=True)
    assert "rt_trace" not in plain
    assert "rt_trace" in tracing


# -- captures ------------------------------------------------------------------------------------


def captured(folder: Path, name: str) -> list[bytes]:
    """Return the frames of a capture file."""
    with RawPcapReader(str(folder / f"{name}.pcap")) as reader:
        assert reader.linktype == 1  # Ethernet
        return [frame for frame, _ in reader]


def test_a_port_that_is_no_interface_is_captured_by_its_number(tmp_path):
    frames = [bytes([0, 0, *bytes(2), number]) for number in range(3)]
    with (
        running_switch(2, f"--pcap={tmp_path}", program=FOLDER / "path_drop.json") as switch,
    ):
        for frame in [
            *frames,
            bytes([1, 0, 0, 0]),
            bytes([3, 3, 3, 3]),
        ]:  # the last two are dropped
            switch.hosts[0].send(frame)
        for frame in frames:
            assert receive(switch.hosts[1]) == frame
    assert captured(tmp_path, "port1_in") == [*frames, bytes([1, 0, 0, 0]), bytes([3, 3, 3, 3])]
    assert captured(tmp_path, "port2_out") == frames
    assert captured(tmp_path, "port1_out") == captured(tmp_path, "port2_in") == []


def test_captures_go_on_when_another_program_comes(tmp_path):
    with (
        running_switch(2, f"--pcap={tmp_path}") as switch,
        Controller(switch.address, 1) as controller,
    ):
        for name in ("path_drop", "path_exit"):
            controller.configure(program(name))
            switch.hosts[0].send(bytes(4))
            receive(switch.hosts[1])
    assert len(captured(tmp_path, "port1_in")) == len(captured(tmp_path, "port2_out")) == 2


def test_a_folder_for_captures_has_to_exist(tmp_path):
    missing = tmp_path / "missing"
    command = [COMMAND, "--no-p4", "--grpc-server-addr", "127.0.0.1:0", f"--pcap={missing}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 2
    assert "there is no such folder" in done.stderr


BMV2 = "simple_switch_grpc"
THROW = "from scapy.sendrecv import sendp; sendp(bytes(60), iface='eth0', verbose=False)"


@pytest.mark.parametrize("command", [COMMAND, BMV2])
def test_captures_of_interfaces_are_named_as_bmv2_names_them(command, tmp_path):
    if reason := namespaces.unavailable():
        pytest.skip(reason)
    if not shutil.which(command):
        pytest.skip(f"there is no {command} on the PATH")
    with namespaces.rack(2) as rack:
        address = f"unix:{tmp_path}/p4runtime"
        options = ["-i", "1@eth1", "-i", "2@eth2", f"--pcap={tmp_path}"]
        program_and_options = [str(FOLDER / "path_drop.json"), *options]
        switch = [command, *program_and_options, "--", "--grpc-server-addr", address]
        with subprocess.Popen(
            [*namespaces.inside(rack.switch), *switch], stdout=subprocess.DEVNULL
        ) as process:
            try:
                with grpc.insecure_channel(address) as channel:
                    grpc.channel_ready_future(channel).result(30)
                throw = [*namespaces.inside(rack.workers[0]), sys.executable, "-c", THROW]
                subprocess.run(throw, check=True)
                while command == COMMAND and not captured(tmp_path, "eth2_out"):
                    pass  # BMv2 writes later
            finally:
                process.terminate()
    names = {f"eth{n}_{direction}.pcap" for n in (1, 2) for direction in ("in", "out")}
    assert {path.name for path in tmp_path.glob("*.pcap")} == names
    if command == COMMAND:
        assert captured(tmp_path, "eth2_out") == captured(tmp_path, "eth1_in") == [bytes(60)]
