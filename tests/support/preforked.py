"""innet's commands in processes that are forked from one with their modules.

Each is a process of its own, with its own session, arguments, environment and output, and it ends as any
interpreter does. Only the imports are done already, which are most of a command's start.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Self

NAMES = ("innet", "innet-switch")
"""The commands that can be forked."""

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_LARGEST_REQUEST = 1 << 20
_DESCRIPTORS = 4
"""A request's descriptors: standard input, output and error output, and the process's control socket."""


class Process:
    """A running command: ``innet`` or ``innet-switch``.

    It has the methods of :class:`subprocess.Popen` that tests use. `stdout` and `stderr` are descriptors,
    :data:`subprocess.PIPE`, or None for those of this process. It ends at the latest with this process.
    """

    def __init__(
        self,
        command: str,
        *arguments: str,
        stdout: int | None = None,
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.args = [command, *arguments]
        self.returncode: int | None = None
        self._pidfd = -1
        request = {
            "command": command, "arguments": arguments, "folder": str(Path.cwd()),
            "environment": {**os.environ, **(environment or {})},
        }  # fmt: skip
        with contextlib.ExitStack() as stack:
            self.stdout, out = _output(stdout, 1, stack)
            self.stderr, err = _output(stderr, 2, stack)
            null = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, null)
            self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(far)
            data = json.dumps(request).encode()
            socket.send_fds(_server(), [data], [null, out, err, far.fileno()])
        number, [self._pidfd], _, _ = socket.recv_fds(self._control, 64, 1)
        self.pid = int(number)

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of a signal; None if it still runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code. Raises TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it writes until its end. It is killed if that does not come in time."""
        with ThreadPoolExecutor(2) as readers:
            said = [readers.submit(each.read) for each in (self.stdout, self.stderr) if each]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        out, err = (each.result() for each in said)
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.wait()
        for each in (self.stdout, self.stderr):
            if each:
                each.close()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
            self._control.close()

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1000):
                said = self._control.recv(64)
                assert said, "the process that forks commands has ended"
                self.returncode = int(said)
                self._close()
        return self.returncode


def _output(
    wanted: int | None, own: int, stack: contextlib.ExitStack
) -> tuple[IO[str] | None, int]:
    """Return the end of a pipe to read from, if a pipe is wanted, and the descriptor for the command."""
    if wanted != subprocess.PIPE:
        return None, own if wanted is None else wanted
    near, far = os.pipe()
    stack.callback(os.close, far)
    return os.fdopen(near), far


@functools.cache
def _server() -> socket.socket:
    """Start the process that forks commands, and return the socket for requests."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_REQUEST)
    with far:
        process = subprocess.Popen(
            [sys.executable, __file__, str(far.fileno())],
            pass_fds=[far.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
            # Without other threads, a fork leaves nothing behind. NumPy's libraries start some otherwise.
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
    atexit.register(_end, near, process)
    return near


def _end(requests: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    requests.close()
    process.wait()


def _await_request(requests: socket.socket) -> dict[str, Any] | None:
    """Fork a process for every request. Return the request in that process, and None at the end."""
    children: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == requests.fileno():
                data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, _DESCRIPTORS)
                if not data:
                    return None
                assert _threads() == 1, "a thread would be lost in the fork"
                child = os.fork()
                if child == 0:
                    requests.close()
                    for pidfd, (_, control) in children.items():
                        os.close(pidfd)
                        control.close()
                    _become(descriptors)
                    return dict(json.loads(data))
                control = socket.socket(fileno=descriptors.pop())
                for each in descriptors:
                    os.close(each)
                pidfd = os.pidfd_open(child)
                children[pidfd] = child, control
                poll.register(pidfd, select.POLLIN)
                socket.send_fds(control, [str(child).encode()], [pidfd])
            else:
                child, control = children.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _, status = os.waitpid(child, 0)
                with control, contextlib.suppress(BrokenPipeError):
                    control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _become(descriptors: Sequence[int]) -> None:
    """Give this fresh process its session and its standard input and output."""
    os.setsid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for descriptor, target in zip(descriptors, (0, 1, 2), strict=False):
        os.dup2(descriptor, target)
    for each in descriptors:
        os.close(each)


def _main(requests: socket.socket) -> None:
    import innet.cli
    import innet.controller.server
    import innet.host.join
    import innet.switch.cli
    import innet.switch.engine.library
    import innet.switch.p4runtime.device
    import innet.switch.p4runtime.service

    gc.collect()
    gc.freeze()  # a search for garbage in a forked process would copy all of this
    request = _await_request(requests)
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    command = request["command"]
    sys.argv = [str(Path(sys.executable).with_name(command)), *request["arguments"]]
    sys.exit(innet.cli.main() if command == "innet" else innet.switch.cli.main())


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: the commands do not see the modules of the tests
    _main(socket.socket(fileno=int(sys.argv[1])))
