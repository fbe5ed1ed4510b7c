"""A switch's cutting and joining of super-frames, beside the kernel's own.

Run by test_switch_superframes.py with ``unshare --net``. The kernel cuts a super-frame on its way
through a pair of interfaces without offloads. All segments that the switch makes have to be the same,
byte by byte, and so have those of the super-frames that the switch joins. Prints what differs.
"""

import contextlib
import socket
from collections.abc import Iterator

from superframes import Described, cases, connect, ip, segments, take, tap, turn_off_offloads
from tiny_programs import program

from innet.switch.constants import PortKind
from innet.switch.engine import Engine
from innet.switch.ports import Port, open_port

APART = {
    "UDP, IPv4, as long as can be": "longer than the kernel's limit for a link, which cuts it itself",
    "UDP, IPv6, as long as can be": "the same",
    "UDP, IPv6 with an extension": "not joined",
}
"""The cases that do not leave as one super-frame, with the reason."""

END = bytes(12) + b"\x88\xb5" + b"the end of the frames of a case, and nothing but the end"


def cut_by_kernel(sender: socket.socket, receiver: socket.socket, *sent: bytes) -> list[bytes]:
    """Return the frames that the kernel makes of messages."""
    for each in sent:
        sender.send(each)
    sender.send(bytes(Described(0, 0, END)))
    return take(receiver, END, described=False)


def through(
    sender: socket.socket, receiver: socket.socket, sent: Described, *, described: bool = False
) -> list[bytes]:
    """Return what comes of a super-frame behind a switch."""
    sender.send(bytes(sent))
    sender.send(bytes(Described(0, 0, END)))
    return take(receiver, END, described=described)


@contextlib.contextmanager
def plain_port(number: int) -> Iterator[tuple[Port, socket.socket]]:
    """Make a port that takes no super-frames, and its other end."""
    inner, outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with inner, outer:
        for end in (inner, outer):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        outer.settimeout(60.0)
        yield Port(number, "pair", inner, PortKind.FRAMES), outer


def say(problem: str) -> None:
    print(problem, flush=True)  # noqa: T201


def compare(name: str, wanted: list[bytes], found: list[bytes]) -> None:
    """Say where frames differ."""
    if len(wanted) != len(found):
        say(f"{name}: {len(found)} frames, and not {len(wanted)}")
    for number, (a, b) in enumerate(zip(wanted, found, strict=False)):
        if a != b:
            where = [at for at in range(min(len(a), len(b))) if a[at] != b[at]]
            say(f"{name}: frame {number}, {len(b)} bytes and not {len(a)}, differs at {where[:20]}")


def main() -> None:
    connect(("k1", "k2"), ("s1", "h1"), ("s2", "h2"), ("s3", "h3"))
    turn_off_offloads("k1")
    with contextlib.ExitStack() as stack:
        described = {
            name: stack.enter_context(tap(name, described=True))
            for name in ("k1", "h1", "h2", "h3")
        }
        plain = stack.enter_context(tap("k2", described=False))
        ports = [open_port(each) for each in ("1@packet:s1", "2@packet:s2", "1@packet:s3")]
        for each in ports:
            stack.callback(each.close)
        other, far = stack.enter_context(plain_port(2))
        joining, cutting = (Engine(program("wire").json) for _ in range(2))
        stack.enter_context(contextlib.closing(joining)).start(ports[:2])
        stack.enter_context(contextlib.closing(cutting)).start(
            [Port(1, "s3", ports[2].socket, ports[2].kind, interface="s3"), other]
        )
        for name, case in cases().items():
            wanted = cut_by_kernel(described["k1"], plain, bytes(case))
            compare(f"{name}: in Python", wanted, segments(case))
            compare(f"{name}: cut", wanted, through(described["h3"], far, case))
            joined = through(described["h1"], described["h2"], case, described=True)
            compare(f"{name}: joined", wanted, cut_by_kernel(described["k1"], plain, *joined))
            if len(joined) != 1 and name not in APART:
                say(f"{name}: {len(joined)} super-frames")
        # Frames that the link cannot carry are lost, and the last one is shorter.
        ip("link", "set", "s2", "mtu", "1000")
        sent = cases()["UDP, IPv4, a short end"]
        left = through(described["h1"], described["h2"], sent, described=True)
        found = [frame for each in left for frame in segments(Described.parse(each))]
        compare("too long for the link", segments(sent)[-1:], found)
        failures = joining.port_counts(2).send_failures
        if failures != len(segments(sent)) - 1:
            say(f"{failures} frames were counted as too long for the link")
    say("done")


if __name__ == "__main__":
    main()
