"""Ports on network interfaces: the same frames through AF_XDP and through packet sockets."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from linked_switches import inside, ip, linked_namespace, refused, watched
from tiny_programs import FOLDER

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)

EXCHANGE = """
import socket
ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2)]
for end, name in zip(ends, ("h1", "h2")):
    end.bind((name, 0x88b5))
    end.settimeout(120)
head = bytes.fromhex("ffffffffffff 020000000001 88b5")
for sender, receiver in (ends, ends[::-1]):
    for size in (60, 61, 350, 1100, 1514):
        for number in range(40):
            sender.send(head + bytes([number]) * (size - 14))
        for number in range(40):
            assert receiver.recv(2000) == head + bytes([number]) * (size - 14)
"""
SENT = 5 * 40
TAGGED = """
import ctypes, platform, socket, struct
SYS_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
libc = ctypes.CDLL(None)

def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(144, bytes(1)), 144)
    return libc.syscall(SYS_BPF, command, buffer, 144)

def push_tags(interface):  # beside the frame, as a VLAN interface does for most cards
    set_to, call, leave, push_tag = 0xb7, 0x85, 0x95, 18
    push = [(set_to, 2, socket.htons(0x8100)), (set_to, 3, 5)]
    push += [(call, 0, push_tag), (set_to, 0, 0), (leave, 0, 0)]
    code = b"".join(struct.pack("=BBhi", what, register, 0, value) for what, register, value in push)
    code, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    program = bpf(5, struct.pack("=IIQQ", 3, len(push), *map(ctypes.addressof, (code, licence))))
    return bpf(28, struct.pack("=IIII", program, socket.if_nametoindex(interface), 47, 0))

near, far = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2))
near.bind(("h1", 3))
far.setsockopt(263, 8, 1)
far.bind(("h2", 3))
far.settimeout(120)
tag = bytes.fromhex("81000005")
if BESIDE:
    tag = b""
    if push_tags("h1") < 0:
        print("the kernel has no tcx")
        raise SystemExit
addresses, rest = bytes.fromhex("ffffffffffff 020000000001"), bytes.fromhex("88b5") + bytes(46)
near.send(addresses + tag + rest)
while True:
    frame, control, *_ = far.recvmsg(2000, 1000)
    if frame == addresses + rest:
        break
[(_, _, about)] = control
assert struct.unpack("=12x2HHH", about)[2:] == (5, 0x8100), about
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    with linked_namespace() as name:
        yield name


def turn_off_offloads(namespace: str, interface: str) -> None:
    inside(
        namespace, f"from topologies.namespaces import *; turn_off_checksum_offload('{interface}')"
    )


def xdp_interfaces(namespace: str) -> set[str]:
    """Return the interfaces with an XDP program."""
    shown = subprocess.run(
        ["ip", "-n", namespace, "-o", "link"], capture_output=True, text=True, check=True
    )
    lines = [line.split(": ") for line in shown.stdout.splitlines() if " xdp " in line]
    return {line[1].split("@")[0] for line in lines}


def counted(lines: list[str], interface: str) -> float:
    [line] = [line for line in lines if f'{interface}"' in line]
    return float(line.rsplit(maxsplit=1)[1])


@pytest.mark.parametrize("way", ["xdp:", "packet:"])
def test_every_frame_passes_unchanged_and_is_counted_and_captured(namespace, way, tmp_path):
    with watched(namespace, f"--pcap={tmp_path}", way=way) as switch:
        assert xdp_interfaces(namespace) == ({"s1", "s2"} if way == "xdp:" else set())
        before = switch.metric("innet_switch_port_receive_packets_total")
        inside(namespace, EXCHANGE)
        after = switch.metric("innet_switch_port_receive_packets_total")
        assert {path.name for path in tmp_path.glob("*")} == {
            f"s{number}_{direction}.pcap" for number in (1, 2) for direction in ("in", "out")
        }
        for name in ("s1", "s2"):  # the kernel's own frames may be among them
            assert counted(after, name) - counted(before, name) >= SENT
            assert len((tmp_path / f"{name}_in.pcap").read_bytes()) > SENT * 600
    assert not xdp_interfaces(namespace)


@pytest.mark.parametrize("way", ["xdp:", "packet:"])
def test_vlan_tags_stay_in_frames_wherever_the_kernel_keeps_them(namespace, way):
    with watched(namespace, way=way):
        for beside in (False, True):
            if reason := inside(namespace, TAGGED.replace("BESIDE", str(beside))):
                pytest.skip(reason)


NEXT_PROGRAM = """
import socket
from pathlib import Path
from innet.switch.engine import Engine
from innet.switch.ports import open_port
near, far = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2))
near.bind(("h1", 0x88b5))
far.bind(("h2", 0x88b5))
far.settimeout(120)
ports = [open_port(f"{number}@WAYs{number}") for number in (1, 2)]
for number in range(3):
    frame = bytes.fromhex("ffffffffffff 020000000001 88b5") + bytes([number]) * 46
    near.send(frame)
    engine = Engine(Path("PROGRAM").read_text())
    engine.start(ports)
    assert far.recv(2000) == frame
    engine.close()
"""


@pytest.mark.parametrize("way", ["xdp:", "packet:"])
def test_frames_wait_in_the_ports_for_the_next_program(namespace, way):
    program = str(FOLDER / "wire.json")
    inside(namespace, NEXT_PROGRAM.replace("WAY", way).replace("PROGRAM", program))


EMPTY = """
import socket
from pathlib import Path
from innet.switch.engine import Engine
from innet.switch.ports import open_port
near, far = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2))
near.bind(("h1", 0x88b5))
far.bind(("h2", 0x88b5))
far.settimeout(120)
engine = Engine(Path("PROGRAM").read_text())
engine.start([open_port(f"{number}@xdp:s{number}") for number in (1, 2)])
plain = bytes.fromhex("00ffffffffff 020000000001 88b5") + bytes(46)
for _ in range(10):
    near.send(bytes.fromhex("010000") + plain[3:])
near.send(plain)
assert far.recv(2000) == plain
counts = engine.port_counts(2)
assert (counts.sent.packets, counts.send_failures) == (1, 10), counts
engine.close()
"""


def test_an_empty_frame_is_not_given_to_xdp(namespace):
    """The kernel sends no empty frame. Some kernels do not give its memory back either."""
    inside(namespace, EMPTY.replace("PROGRAM", str(FOLDER / "path_truncate.json")))


def test_a_switch_that_is_killed_leaves_no_program_behind(namespace):
    with watched(namespace, way="xdp:") as switch:
        assert xdp_interfaces(namespace) == {"s1", "s2"}
        switch.process.kill()
        switch.process.wait()
        assert not xdp_interfaces(namespace)


def test_an_interface_without_xdp_becomes_a_port_all_the_same(namespace):
    for end in ("s1", "h1"):
        ip("-n", namespace, "link", "set", end, "mtu", "9000")
    turn_off_offloads(namespace, "s1")
    ip("-n", namespace, "address", "add", "192.0.2.1/24", "dev", "s2")
    with watched(namespace) as switch:
        switch.says("packet socket instead of XDP", "interface=s1", "is too large for XDP")
        switch.says(
            "packet socket instead of XDP", "interface=s2", "the machine has an IP address there"
        )
        assert not xdp_interfaces(namespace)
        switch.forwards()


def test_a_veth_with_offloads_carries_super_frames_and_one_without_uses_xdp(namespace):
    turn_off_offloads(namespace, "s2")
    with watched(namespace) as switch:
        why = "a veth with offloads carries super-frames"
        switch.says("packet socket instead of XDP", "interface=s1", why)
        assert xdp_interfaces(namespace) == {"s2"}
        switch.forwards()


REFUSALS = """
import json, socket, subprocess
from innet.switch.xdp import Xdp, open_xdp, other_use

def ip(*words): subprocess.run(["ip", *words], check=True)
def veth(name): ip("link", "add", "name", name, "type", "veth", "peer", "name", f"p{name}")

said = {"nothing": other_use("s1")}
first = open_xdp("s1")
said["nothing"] += "" if isinstance(first, Xdp) else first
said["program"] = open_xdp("s1")
said["loopback"] = open_xdp("lo")
veth("address"); ip("address", "add", "192.0.2.1/24", "dev", "address")
veth("member"); ip("link", "add", "name", "br", "type", "bridge")
ip("link", "set", "member", "master", "br")
veth("below"); ip("link", "add", "link", "below", "name", "above", "type", "macvlan")
veth("shaped")
subprocess.run("tc qdisc add dev shaped root tbf rate 1gbit burst 10k limit 10k".split(), check=True)
said |= {name: other_use(name) for name in ("address", "member", "below", "shaped")}
print(json.dumps(said))
"""


@pytest.mark.skipif(not shutil.which("tc"), reason="needs tc (iproute2)")
def test_what_keeps_an_interface_from_xdp(namespace):
    assert json.loads(inside(namespace, REFUSALS)) == {
        "nothing": "",
        "program": "it has an XDP program already",
        "loopback": "its driver does not run XDP programs",
        "address": "the machine has an IP address there",
        "member": "it belongs to another interface",
        "below": "another interface stands on it",
        "shaped": "its queueing discipline is tbf",
    }


def test_xdp_by_name_is_an_error_where_it_is_impossible(namespace):
    said = refused(namespace, "1@xdp:lo")
    assert "port '1@xdp:lo': lo cannot use XDP: its driver does not run XDP programs" in said
