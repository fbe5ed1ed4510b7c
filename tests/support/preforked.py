"""Interpreters that are forked from one with their modules: innet's commands, and Python with PyTorch.

Each is a process of its own, with its own session, arguments, environment and output, and it ends as any
interpreter does. Only the imports are done already, which are most of its start, and at the end the
imported libraries are left as they are.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Self

import fork_server
from libraries import QUIET
from sharing import alone

NAMES = ("innet", "innet-switch")
"""The commands that can be forked."""

_BIN = Path(sys.executable).parent
_CLIENT = Path(__file__).with_name("forked_python.py")
OF_COMMANDS = (
    "innet.cli", "innet.controller.server", "innet.emulation.run", "innet.host.join",
    "innet.observe.checklist", "innet.observe.top", "innet.rpc.certificates",
    "innet.servers.pbox.server", "innet.switch.cli",
    "innet.switch.engine.library", "innet.switch.p4runtime.device",
    "innet.switch.p4runtime.service", "numpy.random", "pydantic.fields", "pydantic.type_adapter",
)  # fmt: skip
"""Typer imports pydantic when it has read the arguments."""

OF_TRAININGS = (
    "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.run", "sklearn.datasets",
    "innet.host.join",
)  # fmt: skip
"""PyTorch's optimizers and DistributedDataParallel import its compiler."""

_SHARED = "FORK_SERVERS"
"""The variable with the folder of the servers that several processes share."""

_LIFETIME = "lifetime"

_OF_SERVERS = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}  # fmt: skip
"""The libraries of NumPy and Arrow start no threads, so a fork loses none. PyTorch loads no backend."""


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
        environment = {**os.environ, **(environment or {})}
        with contextlib.ExitStack() as stack:
            self.stdout, out = _output(stdout, 1, stack)
            self.stderr, err = _output(stderr, 2, stack)
            null = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, null)
            self._forked = fork_server.Forked(
                _server(sys.executable, OF_COMMANDS),
                [str(_BIN / command), *arguments],
                environment,
                {0: null, 1: out, 2: err},
            )
        self.pid = self._forked.pid

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
                signal.pidfd_send_signal(self._forked.pidfd, number)

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
        if self.returncode is None and hasattr(self, "_forked"):
            self._forked.close()

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._forked.control, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1000):
                self.returncode = self._forked.wait()
                self._forked.close()
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
def forked_programs(
    folder: Path = _BIN,
    modules: tuple[str, ...] = OF_TRAININGS,
    names: tuple[str, ...] = ("python", "torchrun", "accelerate", *NAMES),
) -> Path:
    """Return a folder with forked programs in the place of those in an environment's `folder`.

    Python has these modules, and `sys.executable` is the folder's python, too. innet's commands are those
    of the environment, or of the tests' if it has none.
    """
    made = Path(tempfile.mkdtemp(prefix="innet-fork-"))
    atexit.register(shutil.rmtree, made)
    real = str(folder / "python")
    owner = folder if (folder / "innet").exists() else _BIN
    addresses = f"{_server(str(owner / 'python'), OF_COMMANDS)} {_server(real, modules)}"
    runs = f"{real} -ES {_CLIENT} {addresses} {made}/python {real}"
    for name in names:
        script = "" if name == "python" else f" {folder / name}"
        (made / name).write_text(f'#!/bin/sh\nexec {runs}{script} "$@"\n')
        (made / name).chmod(0o755)
    return made


def share() -> None:
    """Let all processes of a run use the same servers: the first that needs one starts it.

    The servers end with this process.
    """
    os.environ[_SHARED] = str(_folder())


@functools.cache
def _folder() -> Path:
    """Return the folder of the servers' addresses. It has a FIFO that is open as long as they may run."""
    if shared := os.environ.get(_SHARED):
        return Path(shared)
    folder = Path(tempfile.mkdtemp(prefix="innet-fork-"))
    os.mkfifo(folder / _LIFETIME)
    os.open(folder / _LIFETIME, os.O_RDWR)  # this process's end closes it
    atexit.register(shutil.rmtree, folder)
    return folder


@functools.cache
def _server(python: str, modules: tuple[str, ...]) -> str:
    """Return the address of a process that forks interpreters with these modules."""
    name = hashlib.sha256(" ".join((python, *modules)).encode()).hexdigest()[:16]
    address = _folder() / name
    with alone(address):
        if not address.exists():
            _start(python, modules, address)
    return str(address)


def _start(python: str, modules: tuple[str, ...], address: Path) -> None:
    """Start a process that forks interpreters with these modules."""
    # A test that looks for its processes marks them with a variable of innet's.
    others = {name: value for name, value in os.environ.items() if not name.startswith("INNET_")}
    with (
        (address.parent / _LIFETIME).open() as lifetime,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        listener.bind(str(address))
        listener.listen(128)
        subprocess.run(
            [python, fork_server.__file__, str(listener.fileno()), *modules],
            pass_fds=[listener.fileno()], stdin=lifetime, env={**others, **QUIET, **_OF_SERVERS},
            check=True,
        )  # fmt: skip
