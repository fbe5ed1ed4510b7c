"""A cable made of UDP on which datagrams get lost, come twice and overtake each other."""

import contextlib
import random
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from switches import free_udp_ports, udp_socket

from innet.host.link import parse_endpoints

_LOST, _REPEATED, _HELD_BACK = 0.05, 0.10, 0.15  # where each share of the unit interval ends


@dataclass
class Accidents:
    """What has happened to datagrams so far."""

    lost: int = 0
    repeated: int = 0
    held_back: int = 0


@contextlib.contextmanager
def unreliable(link: str, seed: int, most: int = 1000) -> Iterator[tuple[str, Accidents]]:
    """Lengthen a free cable by an unreliable stretch. Yields the new end's link, and what happens.

    After `most` accidents the cable is a good one. The seed decides which datagrams they happen to.
    """
    near, switch = parse_endpoints(link)
    accidents = Accidents()
    stop = threading.Event()
    with (
        udp_socket() as inner,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outer,
    ):
        [agent_port] = free_udp_ports(1)
        inner.connect(("127.0.0.1", agent_port))
        outer.bind(near)
        outer.connect(switch)
        arguments = (inner, outer, random.Random(seed), accidents, most, stop)
        thread = threading.Thread(target=_pass_on, args=arguments)
        thread.start()
        try:
            yield f"udp:127.0.0.1:{agent_port}/127.0.0.1:{inner.getsockname()[1]}", accidents
        finally:
            stop.set()
            thread.join()


def _pass_on(
    inner: socket.socket,
    outer: socket.socket,
    chance: random.Random,
    accidents: Accidents,
    most: int,
    stop: threading.Event,
) -> None:
    others = {inner: outer, outer: inner}
    waiting: dict[socket.socket, list[bytes]] = {inner: [], outer: []}
    while not stop.is_set():
        for source in select.select(list(others), [], [], 0.05)[0]:
            with contextlib.suppress(ConnectionRefusedError):  # nobody is there yet, or any more
                datagrams = [source.recv(1 << 16), *waiting[source]]
                waiting[source] = []
                fate = 1.0 if most <= sum(vars(accidents).values()) else chance.random()
                if fate < _LOST:
                    accidents.lost += 1
                    del datagrams[0]
                elif fate < _REPEATED:
                    accidents.repeated += 1
                    datagrams.append(datagrams[0])
                elif fate < _HELD_BACK:
                    accidents.held_back += 1
                    waiting[source] = [datagrams.pop(0)]
                for datagram in datagrams:
                    others[source].send(datagram)
