"""Parts of a rack that can be killed and restarted at the same addresses, and breakable connections."""

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from preforked import NAMES, Process
from racks import Rack
from switches import STOPS_WITHIN

from innet.controller.server import ControllerServer
from innet.local.ports import free_cables, free_tcp_port, port_options, shared_cables
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated


class Mortal:
    """A process that prints its address. After it was killed it can be started again.

    It is one of innet's commands, given by its name, or another program. It logs to the file `log`, or to
    the log of this process.
    """

    def __init__(self, *command: str, log: Path | None = None) -> None:
        self._command, self._log = command, log
        self.process: Process | subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        """Start it, and return when it serves."""
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self._log.open("a")).fileno() if self._log else None
            if self._command[0] in NAMES:
                self.process = Process(*self._command, stdout=subprocess.PIPE, stderr=log)
            else:
                self.process = subprocess.Popen(
                    self._command, stdout=subprocess.PIPE, stderr=log, text=True
                )
        assert self.process.stdout.readline(), "it did not start"

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal, by default SIGKILL, and wait for its end."""
        self.process.send_signal(number)
        self.process.wait()
        self.process.stdout.close()

    def stop(self) -> None:
        """Ask it to end, and check that it does so within a bounded time."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                assert self.process.wait(STOPS_WITHIN) == 128 + signal.SIGTERM
            finally:
                self.kill()


class MortalSwitch(Mortal):
    """innet-switch with cables made of UDP, or in shared memory, for which it needs a folder.

    `links` are the workers' ends, and `options` more options.
    """

    def __init__(self, ports: int, *options: str, folder: Path | None = None) -> None:
        cables = shared_cables(ports, folder) if folder else free_cables(ports)
        self.address = f"127.0.0.1:{free_tcp_port()}"
        self.ports = range(1, ports + 1)
        self.links = [each.link for each in cables]
        interfaces = port_options(each.interface for each in cables)
        address = ("--grpc-server-addr", self.address)
        super().__init__("innet-switch", "--no-p4", *address, *interfaces, *options)


class MortalController(Mortal):
    """The command ``innet controller`` at an address of its own."""

    def __init__(self, *options: str, log: Path | None = None) -> None:
        self.address = f"127.0.0.1:{free_tcp_port()}"
        super().__init__("innet", "controller", "--address", self.address, *options, log=log)


class Forwarder:
    """A TCP port that leads to another one, until its connections are cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections. New ones are possible."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            _shut(end)

    def close(self) -> None:
        """Break all connections, and accept no more."""
        _shut(self._server)
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError), self._server:
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    self._ends += [near, far]
                there = threading.Thread(target=_pass_on, args=(near, far), daemon=True)
                back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
                there.start()
                back.start()
                threading.Thread(target=_close, args=(there, back, near, far), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for end in (source, sink):
        _shut(end)


def _close(there: threading.Thread, back: threading.Thread, *ends: socket.socket) -> None:
    there.join()
    back.join()
    for end in ends:
        end.close()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def mortal_switch(ports: int, *options: str) -> Iterator[MortalSwitch]:
    """Run a switch that can be killed. If it is alive at the end, it has to stop cleanly."""
    switch = MortalSwitch(ports, *options)
    try:
        yield switch
    finally:
        switch.stop()


@contextlib.contextmanager
def rack_of(switch: MortalSwitch, address: str = "", lanes: int = 0, **more) -> Iterator[Rack]:
    """Yield a rack with this switch, reached at its own address or another.

    Packets have so many lanes, or the controller's default. `more` are arguments of
    :class:`ControllerServer`.
    """
    server = ControllerServer("127.0.0.1:0", **more)
    with contextlib.closing(server), serving_rack(f"127.0.0.1:{server.port}", switch) as rack:
        add_switch(rack, switch, address, lanes)
        yield rack


@contextlib.contextmanager
def serving_rack(controller: str, switch: MortalSwitch) -> Iterator[Rack]:
    """Yield a rack of a controller that already serves."""
    channel, stub = connect(controller)
    with contextlib.closing(channel):
        yield Rack(switch, controller, stub, list(switch.links))


def add_switch(rack: Rack, switch: MortalSwitch, address: str = "", lanes: int = 0) -> None:
    """Put the rack's controller in charge of the switch."""
    with translated("add the switch"):
        rack.stub.AddSwitch(
            pb.AddSwitchRequest(
                name="tor",
                grpc_address=address or switch.address,
                ports=switch.ports,
                lanes=lanes,
            )
        )


@contextlib.contextmanager
def controlled(switch: MortalSwitch, *options: str) -> Iterator[tuple[Rack, MortalController]]:
    """Yield a rack whose controller is a process that the test can kill."""
    controller = MortalController(*options)
    try:
        with serving_rack(controller.address, switch) as rack:
            add_switch(rack, switch)
            yield rack, controller
    finally:
        controller.stop()


def open_job(rack: Rack) -> str:
    """Create a job for two workers that nobody deletes."""
    request = pb.CreateJobRequest(name="job", switch="tor", workers=2, slots=32)
    rack.tokens["job"] = rack.stub.CreateJob(request).token
    return "job"
