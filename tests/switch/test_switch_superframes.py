"""Super-frames and partial checksums: ports on interfaces, and programs that must not notice them."""

import contextlib
import itertools
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import differential
import pytest
from compared_switches import embedded
from sanitizers import run_sanitized
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from superframes import (
    NEEDS_CHECKSUM,
    Described,
    alike,
    cases,
    completed,
    segments,
    super_frame,
)
from tiny_programs import program

from benchmarks.switch import entered
from innet.machine.sockets import UDP_SEGMENT, enlarge_buffers
from innet.switch.constants import PortKind
from innet.switch.engine import Engine
from innet.switch.engine.counts import Count
from innet.switch.ports import Port, open_port
from topologies import namespaces

SUPPORT = Path(__file__).parent.parent / "support"
PACKETS = 25
WITHIN, LONG = 120.0, 1200

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)


def run(script: str) -> str:
    """Run a script of tests/support in a network namespace of its own. Returns its output."""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(SUPPORT / script)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_root
def test_super_frames_are_cut_and_joined_as_by_the_kernel():
    assert run("superframes_check.py") == "done\n"


@needs_root
def test_connections_pass_between_hosts_with_offloads():
    """TCP, and UDP in super-frames, from socket to socket, with nothing lost on the way."""
    data = random.Random(1).randbytes(4 << 20)
    with namespaces.rack(2, offloads=True) as rack, contextlib.ExitStack() as stack:
        with entered(rack.switch):
            near = [open_port(f"{number}@packet:eth{number}") for number in (1, 2)]
        for each in near:
            stack.callback(each.close)
        engine = stack.enter_context(contextlib.closing(Engine(program("wire").json)))
        engine.start(near)
        with entered(rack.workers[0]):
            server = stack.enter_context(socket.create_server(("10.0.0.1", 7000)))
            receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            receiver.bind(("10.0.0.1", 7000))
            enlarge_buffers(receiver)
        with entered(rack.workers[1]):
            client = stack.enter_context(socket.create_connection(("10.0.0.1", 7000), WITHIN))
            sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sender.connect(("10.0.0.1", 7000))
        accepted = stack.enter_context(server.accept()[0])
        for each in (accepted, receiver):
            each.settimeout(WITHIN)
        with ThreadPoolExecutor(1) as threads:
            sending = threads.submit(client.sendall, data)
            received = bytearray()
            while len(received) < len(data):
                received += accepted.recv(1 << 20)
            sending.result()
        assert received == data
        sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, 1000)
        datagrams = [data[at : at + 1000] for at in range(0, 500_000, 1000)]
        for at in range(0, len(datagrams), 50):
            sender.send(b"".join(datagrams[at : at + 50]))
        assert [receiver.recv(2000) for _ in datagrams] == datagrams
        assert [engine.port_counts(number).send_failures for number in (1, 2)] == [0, 0]
        assert engine.drops()["offload"] == engine.drops()["too_long"] == 0


# -- programs ------------------------------------------------------------------------------------

NAMES = [name for name in differential.names() if not name.startswith(("innet", "tree", "quorum"))]
STILL = sorted({*NAMES, "innet-64", "tree-64"} - {"extern_meters", "extern_direct_meter"})
"""Programs whose results do not depend on the time."""


def described(frame: bytes, chance: random.Random) -> Described:
    """Return a frame with a partial checksum anywhere in it, or with none if it is too short."""
    if len(frame) < 20 or chance.random() < 0.1:
        return Described(0, 0, frame)
    start = chance.randrange(14, len(frame) - 2)
    offset = chance.choice((6, 16, chance.randrange(len(frame))))
    if start + offset + 2 > len(frame):
        offset = 0
    return Described(0, 0, frame, NEEDS_CHECKSUM, start, offset)


@pytest.mark.parametrize("name", STILL)
def test_a_program_does_not_notice_that_a_checksum_is_partial(name):
    """The output is the same, byte by byte, as for the frame with the computed checksum."""
    chance, running = random.Random(name), differential.load(name)
    given = differential.draw(name, 45, PACKETS)
    with embedded(running) as plain, embedded(running, described=True) as target:
        for update in given.updates:
            assert plain.write(update) == target.write(update)
        for port, frame in given.packets:
            sent = described(frame, chance)
            wanted = plain.send(port, completed(sent))
            got = target.send(port, bytes(sent))
            found = sorted(
                (out, each) for out, one in got for each in segments(Described.parse(one))
            )
            assert found == wanted, sent
        assert differential.counters(target, running.p4info) == differential.counters(
            plain, running.p4info
        )


@pytest.mark.parametrize(
    ("name", "cores"),
    [("hub", 1), ("mix_nat", 1), ("mix_router", 1), ("path_multicast", 1), ("innet-64", 1),
     ("hub", 3), ("innet-64", 3), ("mix_registers", 3)],
)  # fmt: skip
def test_a_program_gets_the_segments_of_a_super_frame(name, cores):
    running = differential.load(name)
    given = differential.draw(name, 45, 1)
    with embedded(running) as plain, embedded(running, cores, described=True) as target:
        for update in given.updates:
            assert plain.write(update) == target.write(update)
        for case, sent in cases().items():
            cut = segments(sent)
            wanted = sorted(each for frame in cut for each in plain.send(1, frame))
            got = target.send(1, bytes(sent), len(cut))
            found = sorted(
                (out, each) for out, one in got for each in segments(Described.parse(one))
            )
            assert len(found) == len(wanted), case
            assert [out for out, _ in found] == [out for out, _ in wanted], case
            assert all(alike(a, b) for (_, a), (_, b) in zip(wanted, found, strict=True)), case


# -- joining -------------------------------------------------------------------------------------


@contextlib.contextmanager
def ports(*kinds: PortKind) -> Iterator[tuple[list[Port], list[socket.socket]]]:
    """Make ports on socket pairs, and their far ends."""
    with contextlib.ExitStack() as stack:
        near, far = [], []
        for number, kind in enumerate(kinds, start=1):
            inner, outer = map(
                stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            )
            for end in (inner, outer):
                enlarge_buffers(end)
            outer.settimeout(WITHIN)
            near.append(Port(number, "pair", inner, kind, interface="lo"))
            far.append(outer)
        yield near, far


END = bytes(12) + b"\x88\xb5" + b"the end of all frames, and nothing but the end"


def passed(*sent: bytes) -> list[Described]:
    """Return what leaves a wire at which all these messages have arrived before it starts."""
    with ports(PortKind.SUPER_FRAMES, PortKind.SUPER_FRAMES) as (near, (first, second)):
        for each in (*sent, bytes(Described(0, 0, END))):
            first.send(each)
        with contextlib.closing(Engine(program("wire").json)) as engine:
            engine.start(near)
            messages = iter(lambda: Described.parse(second.recv(1 << 17)), Described(0, 0, END))
            found = list(messages)
            assert engine.port_counts(2).sent.packets == engine.port_counts(1).received.packets
            return found


def datagram(number: int, size: int = 500, **changes) -> bytes:
    """Return one of the datagrams of a train, without a UDP checksum, or with changes."""
    chance = random.Random(number)
    head = Ether(dst="02:00:00:00:00:02", src=changes.get("mac", "02:00:00:00:00:01"))
    if changes.get("vlan"):
        head /= Dot1Q(vlan=changes["vlan"])
    ip = {"src": "10.0.0.1", "dst": "10.0.0.2", "id": 7 * number}
    fields = ("tos", "ttl", "src", "flags", "chksum", "frag")
    network = IP(**ip | {name: changes[name] for name in fields if name in changes})
    udp = UDP(sport=changes.get("sport", 4000), dport=5000, chksum=changes.get("checksum", 0))
    if "length" in changes:
        udp.len = changes["length"]
    return bytes(head / network / udp / chance.randbytes(size))


def plain(frame: bytes) -> bytes:
    return bytes(Described(0, 0, frame))


def test_datagrams_without_checksums_leave_together_with_valid_ones():
    frames = [*(datagram(number) for number in range(10)), datagram(10, 77)]
    [joined] = passed(*map(plain, frames))
    assert (joined.kind, joined.size) == (5, 500)
    found = segments(joined)
    assert len(found) == 11
    # Identifications count from the first one's.
    for number, (frame, other) in enumerate(zip(frames, found, strict=True)):
        renamed = bytearray(frame)
        struct.pack_into("!HH", renamed, 18, number, 0)
        del renamed[24:26]
        changed = bytearray(other)
        changed[20:22] = bytes(2)
        del changed[24:26]
        assert alike(frame[:18] + other[18:20] + frame[20:24] + other[24:26] + frame[26:], other)


def test_what_does_not_fill_the_train_ends_it():
    sizes = [500, 500, 300, 500, 500, 600, 500]
    sent = [datagram(number, size) for number, size in enumerate(sizes)]
    assert [len(segments(each)) for each in passed(*map(plain, sent))] == [3, 2, 2]


APART = {
    "another source port": {"sport": 4001},
    "another source": {"src": "10.0.0.3"},
    "another sender": {"mac": "02:00:00:00:00:05"},
    "a congestion mark": {"tos": 3},
    "another time to live": {"ttl": 63},
    "a tag": {"vlan": 5},
    "another flag": {"flags": "DF"},
    "a fragment": {"flags": "MF"},
    "a later fragment": {"frag": 5},
    "a wrong header checksum": {"chksum": 0x1234},
    "a checksum": {"checksum": None},
    "a wrong checksum": {"checksum": 0x1234},
    "a wrong length": {"length": 300},
    "no payload": {"size": 0},
}


@pytest.mark.parametrize("case", APART)
def test_what_is_no_part_of_the_train_leaves_alone_and_unchanged(case):
    odd = datagram(2, **APART[case])
    sent = [datagram(0), datagram(1), odd, datagram(3), datagram(4)]
    first, alone, last = passed(*map(plain, sent))
    assert alone == Described(0, 0, odd)
    assert [len(segments(each)) for each in (first, last)] == [2, 2]


def test_a_zero_checksum_over_ipv6_is_left_as_it_is():
    frames = [
        bytes(
            Ether()
            / IPv6(src="fd00::1", dst="fd00::2")
            / UDP(sport=1, dport=2, chksum=0)
            / bytes([n])
        )
        for n in range(4)
    ]
    assert [each.frame for each in passed(*map(plain, frames))] == frames


def test_interleaved_flows_are_never_mixed():
    flows = [[datagram(number, sport=4000 + flow) for number in range(4)] for flow in range(3)]
    sent = [frame for group in zip(*flows, strict=True) for frame in group]
    assert [each.frame for each in passed(*map(plain, sent))] == sent


def stream(number: int, *, size: int = 500, flags: str = "A", **changes) -> bytes:
    """Return a segment of a TCP stream with a partial checksum."""
    head = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    network = IP(src="10.0.0.1", dst="10.0.0.2", id=changes.get("id", 100 + number))
    sequence = changes.get("seq", 1000 + 500 * number)
    tcp = TCP(sport=1, dport=2, seq=sequence, flags=flags, ack=5, window=changes.get("window", 9))
    packet = head / network / tcp / random.Random(number).randbytes(size)
    return bytes(replace(super_frame(packet, 0, 0), head=0))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        pytest.param({}, [5], id="a stream"),
        pytest.param({"flags": "PA"}, [3, 2], id="pushed"),
        pytest.param({"flags": "FA"}, [3, 2], id="finished"),
        pytest.param({"flags": "CA"}, [2, 3], id="reduced window"),
        pytest.param({"flags": "SA"}, [2, 1, 2], id="synchronized"),
        pytest.param({"flags": "RA"}, [2, 1, 2], id="reset"),
        pytest.param({"flags": "UA"}, [2, 1, 2], id="urgent"),
        pytest.param({"flags": "EA"}, [2, 1, 2], id="congestion echoed"),
        pytest.param({"seq": 77}, [2, 1, 2], id="out of order"),
        pytest.param({"id": 5}, [2, 1, 2], id="another identification"),
        pytest.param({"window": 8}, [2, 1, 2], id="another window"),
    ],
)
def test_segments_of_tcp_leave_together_if_the_kernel_would_cut_them_alike(changes, parts):
    sent = [stream(n, **(changes if n == 2 else {})) for n in range(5)]
    found = passed(*sent)
    assert [len(segments(each)) for each in found] == parts
    whole = [frame for each in found for frame in segments(each)]
    assert whole == [completed(Described.parse(each)) for each in sent]


def test_a_tcp_segment_with_a_whole_checksum_stays_alone():
    sent = [completed(Described.parse(stream(number))) for number in range(4)]
    assert [each.frame for each in passed(*map(plain, sent))] == sent


def test_frames_that_other_ports_get_are_cut_and_have_their_checksums():
    """A port with another kind of socket, and captures, show frames as a wire carries them."""
    for case, sent in itertools.islice(cases().items(), 6):
        with ports(PortKind.SUPER_FRAMES, PortKind.FRAMES) as (near, (first, second)):
            first.send(bytes(sent))
            with contextlib.closing(Engine(program("wire").json)) as engine:
                engine.start(near)
                wanted = segments(sent)
                assert [second.recv(1 << 17) for _ in wanted] == wanted, case
                size = sum(map(len, wanted))
                assert engine.port_counts(1).received == Count(len(wanted), size)


def test_captures_show_frames_with_their_checksums(tmp_path):
    sent = cases()["UDP, IPv4"]
    files = [
        (tmp_path / f"{number}{way}").open("wb", buffering=0) for number in "12" for way in "io"
    ]
    with ports(PortKind.SUPER_FRAMES, PortKind.SUPER_FRAMES) as (near, (first, second)):
        near[0].captures, near[1].captures = tuple(files[:2]), tuple(files[2:])
        first.send(bytes(sent))
        with contextlib.closing(Engine(program("wire").json)) as engine:
            engine.start(near)
            found = []
            while len(found) < len(segments(sent)):
                found += segments(Described.parse(second.recv(1 << 17)))
    assert found == segments(sent)
    for file in (files[0], files[3]):
        content = Path(file.name).read_bytes()
        for frame in segments(sent):
            assert frame in content
    for file in files:
        file.close()


EVIL = {
    "no size": replace(cases()["UDP, IPv4"], size=0),
    "another protocol": replace(cases()["UDP, IPv4"], kind=1),
    "another version": replace(cases()["TCP, IPv4"], kind=4),
    "an unknown kind": replace(cases()["UDP, IPv4"], kind=3),
    "a checksum elsewhere": replace(cases()["UDP, IPv4"], start=50),
    "a checksum behind the end": Described(0, 0, datagram(1), NEEDS_CHECKSUM, 500, 60),
    "a checksum at the beginning": Described(0, 0, datagram(1), NEEDS_CHECKSUM, 0, 6),
    "no IP": replace(cases()["UDP, IPv4"], frame=bytes(14) + bytes(2000)),
    "headers alone": replace(cases()["UDP, IPv4"], frame=cases()["UDP, IPv4"].frame[:42]),
    "tens of thousands of segments": replace(cases()["UDP, IPv4, as long as can be"], size=1),
    "a tunnel": replace(cases()["UDP, IPv4"], start=84),
}


@pytest.mark.parametrize("case", EVIL)
def test_a_description_that_does_not_fit_its_frame_is_dropped_and_counted(case):
    with ports(PortKind.SUPER_FRAMES, PortKind.SUPER_FRAMES) as (near, (first, second)):
        first.send(bytes(EVIL[case]))
        first.send(plain(END))
        with contextlib.closing(Engine(program("wire").json)) as engine:
            engine.start(near)
            assert Described.parse(second.recv(1 << 17)) == Described(0, 0, END)
            assert engine.drops()["offload"] == 1


def test_a_message_shorter_than_its_description_is_no_frame():
    with ports(PortKind.SUPER_FRAMES, PortKind.SUPER_FRAMES) as (near, (first, second)):
        first.send(bytes(9))
        first.send(plain(END))
        with contextlib.closing(Engine(program("wire").json)) as engine:
            engine.start(near)
            assert Described.parse(second.recv(1 << 17)) == Described(0, 0, END)
            assert engine.drops()["offload"] == 1
            assert engine.port_counts(1).received == Count(1, len(END))


def test_a_size_above_the_payload_makes_one_frame():
    sent = replace(cases()["UDP, IPv4"], size=60_000)
    [found] = passed(bytes(sent))
    assert [completed(found)] == segments(sent)


def test_a_segment_longer_than_any_frame_is_dropped_and_counted():
    longest = cases()["UDP, IPv4, as long as can be"]
    sent = replace(longest, size=65_535, frame=longest.frame + bytes(65_540 - len(longest.frame)))
    with ports(PortKind.SUPER_FRAMES, PortKind.SUPER_FRAMES) as (near, (first, second)):
        first.send(bytes(sent))
        first.send(plain(END))
        with contextlib.closing(Engine(program("wire").json)) as engine:
            engine.start(near)
            assert Described.parse(second.recv(1 << 17)) == Described(0, 0, END)
            assert engine.drops()["too_long"] == 1


@pytest.mark.timeout(LONG)
def test_no_description_makes_the_switch_do_what_c_leaves_undefined():
    done = run_sanitized("sanitized_superframes.py", 7, 1000)
    assert done.returncode == 0, done.stderr[-5000:]
    lines = [line for line in done.stdout.splitlines() if line.endswith(": clean")]
    assert lines == ["wire: clean", "mix_nat: clean", "innet-64: clean"]
