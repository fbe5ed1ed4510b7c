"""Peers of a cable in shared memory who misuse what they share: nobody but themselves may suffer."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tiny_programs import program
from waiting import WITHIN, until

from innet.host import node
from innet.host.link import open_link
from innet.switch.engine import EgressHook, Engine, cables
from innet.switch.ports import Port, open_port
from innet.wire.frames import Address

RING_BYTES, DATA, TAIL, ASLEEP = 1 << 20, 128, 64, 72
RING = DATA + RING_BYTES
FULL = 2**64 - 2  # the most that an eventfd holds
BACK_OF = struct.Struct("!BHHH")  # a header of the program, which sends each frame to port 2
FRAME = BACK_OF.pack(0, 0, 0, 0) + bytes(range(20))
MOST_FRAMES = 500


class Peer:
    """A process at the other end of a port's cable, which can do what it likes."""

    def __init__(self, port: Port) -> None:
        self.files: list[int] = []
        while not self.files:  # the port may have had another worker just now
            self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.connection.settimeout(WITHIN)
            self.connection.connect(str(port.path))
            with contextlib.suppress(ConnectionError):
                _, self.files, *_ = socket.recv_fds(self.connection, 64, 65)
            if not self.files:
                self.connection.close()
        self.memory = mmap.mmap(self.files[0], 0)

    def sleeps(self) -> None:
        """Ask for a wake-up when the next frame comes."""
        struct.pack_into("=I", self.memory, RING + ASLEEP, 1)

    def reads(self) -> list[bytes]:
        """Return the frames in its ring, and give their room back."""
        [head] = struct.unpack_from("=Q", self.memory, RING)
        [at] = struct.unpack_from("=Q", self.memory, RING + TAIL)
        found = []
        while at < head:
            [size] = struct.unpack_from("=I", self.memory, RING + DATA + at)
            start = RING + DATA + at + 8
            found.append(self.memory[start : start + size])
            at += 8 + -(-size // 8) * 8
        struct.pack_into("=Q", self.memory, RING + TAIL, at)
        return found

    def leave(self) -> None:
        """End the connection, but keep the files."""
        self.connection.close()

    def close(self) -> None:
        """End the connection and close the files."""
        self.leave()
        self.memory.close()
        for each in self.files:
            os.close(each)


@contextlib.contextmanager
def switch(folder: Path, hook: EgressHook | None = None) -> Iterator[tuple[Engine, Port, Port]]:
    """Yield a running switch with two ports, which sends all frames to the second port."""
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(
                contextlib.closing(open_port(f"{number}@shm:{folder / str(number)}"))
            )
            for number in (1, 2)
        ]
        engine = Engine(program("path_truncate").json, egress_hook=hook)
        stack.enter_context(contextlib.closing(engine))
        engine.start(ports)
        yield engine, *ports


def goes_on(engine: Engine, frames: int = 1) -> bool:
    """Return whether the switch sends frames to port 2, and does not wait for anybody."""
    done = threading.Event()

    def send() -> None:
        for _ in range(frames):
            engine.exercise(1, FRAME, 1)
        done.set()

    threading.Thread(target=send, daemon=True).start()
    return done.wait(WITHIN)


def make_blocking(file: int) -> None:
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_NONBLOCK)


@pytest.mark.parametrize("content", [0, FULL])
def test_a_worker_that_changes_its_files_stops_nobody(tmp_path, content):
    with switch(tmp_path) as (engine, _, port), contextlib.closing(Peer(port)) as peer:
        for bell in peer.files[1:]:
            os.eventfd_read(bell)
            os.eventfd_write(bell, content)
            make_blocking(bell)
        for _ in range(MOST_FRAMES):  # more wake-ups than the connection has room for
            peer.sleeps()
            assert goes_on(engine)
        assert engine.port_counts(2).sent.packets == MOST_FRAMES


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR])
def test_a_worker_that_shuts_its_connection_down_is_gone(tmp_path, how):
    with switch(tmp_path) as (engine, _, port), contextlib.closing(Peer(port)) as peer:
        peer.connection.shutdown(how)
        peer.sleeps()
        assert goes_on(engine)
        if how != socket.SHUT_RD:
            with contextlib.closing(Peer(port)) as following:
                assert goes_on(engine)
                assert following.reads() == [FRAME]


def test_a_worker_that_takes_its_memory_away_loses_only_its_own_frames(tmp_path):
    with switch(tmp_path) as (engine, _, port), contextlib.closing(Peer(port)) as peer:
        for _ in range(100):
            peer.memory.madvise(mmap.MADV_REMOVE)
            assert goes_on(engine)
        for call in (
            lambda: os.ftruncate(peer.files[0], 0),
            lambda: os.ftruncate(peer.files[0], 1 << 24),
        ):
            with pytest.raises(PermissionError):
                call()


def test_a_worker_that_has_ended_keeps_no_memory_of_the_switch(tmp_path):
    with switch(tmp_path) as (_, _, port), contextlib.ExitStack() as stack:
        for _ in range(3):
            peer = stack.enter_context(contextlib.closing(Peer(port)))
            assert os.fstat(peer.files[0]).st_blocks * 512 >= 2 * RING_BYTES
            peer.leave()
            until(lambda file=peer.files[0]: os.fstat(file).st_blocks == 0)


def test_a_process_that_connects_in_a_loop_gets_few_cables_and_stops_nobody(tmp_path):
    with switch(tmp_path) as (engine, other, port):
        with contextlib.closing(Peer(port)) as peer:
            began, taken = time.monotonic(), 0
            while taken < 5:
                with contextlib.closing(Peer(other)):
                    taken += 1
                assert goes_on(engine)
                assert peer.reads()
        assert time.monotonic() - began > 4 * cables._BREATHER_S


def lingering() -> tuple[socket.socket, socket.socket]:
    """Return a TCP connection whose last descriptor takes long to close."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    near.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(bytes(1 << 16))
    near.setblocking(True)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 2 * int(WITHIN)))
    return near, far


@pytest.mark.parametrize("passes_rights", [False, True])
def test_files_that_take_long_to_close_stop_only_their_own_port(
    tmp_path, monkeypatch, passes_rights
):
    """With `passes_rights` it is as on a kernel that cannot forbid to send files."""
    monkeypatch.setattr(cables, "_ENDS_WITHIN_S", 0.1)
    if passes_rights:
        monkeypatch.setattr(cables, "_SO_PASSRIGHTS", 0x7FFF)
    near, far = lingering()
    with switch(tmp_path) as (engine, bad, port), far:
        with contextlib.closing(Peer(bad)) as peer:
            try:
                socket.send_fds(peer.connection, [b"x"], [near.fileno()])
            except PermissionError:  # Linux forbids it
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            near.close()
        for _ in range(3):
            with contextlib.closing(Peer(port)) as peer:
                assert goes_on(engine)
                assert peer.reads() == [FRAME]
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # let it end


def test_the_hook_judges_and_sends_what_no_peer_can_change(tmp_path):
    seen: list[tuple[bytes, bytes]] = []
    peers: list[Peer] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8), ctypes.c_uint32)
    def judge(_context, frame, size):
        before = bytes(frame[:size])
        peers[0].memory[RING + DATA :] = bytes([255]) * RING_BYTES  # the peer writes meanwhile
        seen.append((before, bytes(frame[:size])))
        frame[size - 1] = 77

    hook = EgressHook(ctypes.cast(judge, ctypes.c_void_p).value or 0, 0)
    with switch(tmp_path, hook) as (engine, _, port), contextlib.closing(Peer(port)) as peer:
        peers.append(peer)
        for _ in range(3):
            assert goes_on(engine)
            assert peer.reads() == [FRAME[:-1] + bytes([77])]
        assert seen == [(FRAME, FRAME)] * 3


def test_a_switch_that_changes_its_files_does_not_stop_a_worker(tmp_path):
    memory = os.memfd_create("cable", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 2 * RING)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    bell = os.eventfd(FULL & 0xFFFFFFFF)
    os.eventfd_write(bell, FULL - (FULL & 0xFFFFFFFF))
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
        mmap.mmap(memory, 0) as shared,
        ThreadPoolExecutor(1) as pool,
    ):
        server.bind(str(tmp_path / "1"))
        server.listen()
        opening = pool.submit(
            open_link,
            f"shm:{tmp_path / '1'}",
            Address("02:00:00:00:00:fe", "10.0.255.254", 19790),
            64,
        )
        peer, _ = server.accept()
        with peer:
            socket.send_fds(peer, [struct.pack("=II", cables._VERSION, 2 * RING)], [memory, bell])
            with contextlib.closing(opening.result(WITHIN)) as link:
                done = threading.Event()

                def send() -> None:
                    for _ in range(10):
                        struct.pack_into("=I", shared, ASLEEP, 1)
                        link.send(np.zeros(1, link.dtype))
                    done.set()

                threading.Thread(target=send, daemon=True).start()
                assert done.wait(WITHIN)
    for each in (memory, bell):
        os.close(each)


def test_a_stranger_at_a_nodes_entrance_does_not_hold_up_its_workers(monkeypatch):
    """The entrance is in no file system, so every user can connect to it."""
    monkeypatch.setattr(node, "_is_ours", lambda _: False)
    near, far = lingering()
    with far, contextlib.closing(node.Entrance()) as entrance:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(f"\0{entrance.name}")
            socket.send_fds(stranger, [b"x"], [near.fileno()])
            near.close()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            entrance.meet(node.Place([0, 1], 0, 2), ["", ""], 0.2)
        assert time.monotonic() - began < WITHIN
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
