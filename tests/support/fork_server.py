"""A server that imports modules once, and forks an interpreter for every request.

Imports are most of a start. A forked interpreter is a process of its own, with its own session,
arguments, environment and output, and it ends as any other does. It has the client's namespaces.
``python fork_server.py LISTENER MODULE...`` starts a daemon, which serves at a listening socket until its
standard input ends. It inherits the socket's descriptor. When the first request comes, it imports the
modules, and reads innet's P4 programs if it has imported the reader.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import inspect
import itertools
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FLAGS = ("-B", "-P", "-u")
"""The interpreter's options that a forked one can have."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_LARGEST_REQUEST = 1 << 20
_MOST_DESCRIPTORS = 253
"""The kernel's limit for a message."""

_libraries: dict[str, types.ModuleType] = {}
"""The modules that are left as they are when this process ends."""


class Forked:
    """A process that a server has forked. It is killed when this connection to the server closes.

    `descriptors` has the caller's descriptor for each of the process's. By default the process inherits
    those that any program would.
    """

    def __init__(
        self,
        address: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Mapping[int, int] | None = None,
        executable: str = sys.executable,
    ) -> None:
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_REQUEST)
        self.control.connect(address)
        given = {each: each for each in _inherited()} if descriptors is None else descriptors
        request = {
            "arguments": arguments, "environment": dict(environment), "folder": str(Path.cwd()),
            "executable": executable, "descriptors": list(given),
        }  # fmt: skip
        socket.send_fds(self.control, [json.dumps(request).encode()], list(given.values()))
        number, [self.pidfd], _, _ = socket.recv_fds(self.control, 64, 1)
        self.pid = int(number)

    def wait(self) -> int:
        """Wait for the end. Return the exit code, or the negative number of a signal."""
        said = self.control.recv(64)
        assert said, "the process that forks has ended"
        return int(said)

    def close(self) -> None:
        """Close the connection."""
        os.close(self.pidfd)
        self.control.close()


def _inherited() -> list[int]:
    """Return the descriptors that a program inherits from this one."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the list's own one has been closed
            if os.get_inheritable(number := int(each.name)):
                found.append(number)
    return found


class _Server:
    """The processes that it has forked, by their descriptors, and the clients that wait for them."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: dict[int, tuple[int, socket.socket]] = {}
        self._waiting: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._poll.register(0, select.POLLIN)

    def await_request(self) -> dict[str, Any] | None:
        """Fork a process for every request. Return the request in that process, and None at the end."""
        while True:
            for ready, _ in self._poll.poll():
                if ready == 0:
                    return None
                if ready == self._listener.fileno():
                    if request := self._accept():
                        return request
                elif ready in self._running:
                    self._report(ready)
                elif ready in self._waiting:  # the client has ended
                    self._poll.unregister(ready)
                    signal.pidfd_send_signal(self._waiting.pop(ready), signal.SIGKILL)

    def _accept(self) -> dict[str, Any] | None:
        """Fork a process for a client. Return its request there, and None in this process."""
        control, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, _MOST_DESCRIPTORS)
        if not data:
            control.close()
            return None
        assert sum(1 for _ in Path("/proc/self/task").iterdir()) == 1, "a fork would lose a thread"
        try:
            child = _Namespaces(control).fork()
        except OSError:  # the client's namespaces have ended, and with them the client
            for each in (control.detach(), *descriptors):
                os.close(each)
            return None
        if child == 0:
            self._listener.close()
            control.close()
            for pidfd, (_, other) in self._running.items():
                os.close(pidfd)
                other.close()
            request = dict(json.loads(data))
            _become(dict(zip(request["descriptors"], descriptors, strict=True)))
            return request
        for each in descriptors:
            os.close(each)
        pidfd = os.pidfd_open(child)
        self._running[pidfd] = child, control
        self._waiting[control.fileno()] = pidfd
        self._poll.register(pidfd, select.POLLIN)
        self._poll.register(control, select.POLLIN)
        _send(control, str(child), [pidfd])
        return None

    def _report(self, pidfd: int) -> None:
        """Tell the client how its process has ended."""
        child, control = self._running.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        if self._waiting.pop(control.fileno(), None) is not None:
            self._poll.unregister(control)
        _, status = os.waitpid(child, 0)
        with control:
            _send(control, str(os.waitstatus_to_exitcode(status)))


class _Namespaces:
    """Those of a client's namespaces that differ from this process's."""

    def __init__(self, client: socket.socket) -> None:
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, _, _ = struct.unpack("3i", credentials)
        self._others: dict[str, int] = {}
        for kind in ("pid", "net", "mnt"):
            theirs, own = (Path(f"/proc/{who}/ns/{kind}") for who in (pid, "self"))
            if theirs.readlink() != own.readlink():
                self._others[kind] = os.open(theirs, os.O_RDONLY)

    def fork(self) -> int:
        """Fork a process in the client's namespaces. Raises OSError if they have ended."""
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)
        child = -1
        try:
            if "pid" in self._others:
                _enter(self._others["pid"])  # it counts for the next child only
            child = os.fork()
        finally:
            if child and "pid" in self._others:
                _enter(own)
            os.close(own)
        if not child:
            for kind, descriptor in self._others.items():
                if kind != "pid":
                    _enter(descriptor)
        self.close()
        return child

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self._others.values():
            os.close(descriptor)


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), "cannot enter a namespace")


def _send(control: socket.socket, what: str, descriptors: Sequence[int] = ()) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client has ended
        socket.send_fds(control, [what.encode()], descriptors)


def _become(descriptors: Mapping[int, int]) -> None:
    """Give this fresh process its session and its descriptors."""
    os.setsid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    beyond = max(descriptors) + 1
    copies = {
        target: fcntl.fcntl(each, fcntl.F_DUPFD, beyond) for target, each in descriptors.items()
    }
    for each in descriptors.values():
        os.close(each)
    for target, copy in copies.items():
        os.dup2(copy, target)
        os.close(copy)


def _interpret(arguments: Sequence[str]) -> None:
    """Do as ``python ARGUMENT...`` does."""
    flags = {*itertools.takewhile(FLAGS.__contains__, arguments)}
    rest = [*itertools.dropwhile(FLAGS.__contains__, arguments)]
    if "-u" in flags:
        sys.stdout.reconfigure(write_through=True)
    # The main module outlives the last statement, as in any interpreter. If a script's objects ended
    # before the interpreter does, those of PyTorch would wait for threads that wait for this one.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if "-P" not in flags:
        there = {"-m": str(Path.cwd()), "-c": ""}
        sys.path.insert(0, there.get(rest[0], str(Path(rest[0]).resolve().parent)))
    if rest[0] == "-m":
        sys.argv = ["-m", *rest[2:]]
        runpy._run_module_as_main(rest[1])
    elif rest[0] == "-c":
        sys.argv = ["-c", *rest[2:]]
        exec(rest[1], vars(main))  # noqa: S102 - it is the caller's own code
    else:
        sys.argv = rest
        main.__file__ = rest[0]
        exec(compile(Path(rest[0]).read_bytes(), rest[0], "exec"), vars(main))  # noqa: S102


def _leave_libraries() -> None:
    """Let this forked process end without an end of the libraries that were imported before the fork.

    It would write to all of their memory, which the kernel would have to copy first. All else ends in the
    usual way: the script's objects and threads, innet, and what may hold a process group.
    """
    others = ("sys", "builtins", "__main__", "innet", "torch.distributed")
    _libraries.update(
        (name, module)
        for name, module in sys.modules.items()
        if not any(name == each or name.startswith(f"{each}.") for each in others)
    )
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_libraries))  # so nothing ever deletes them
    # The C library calls this with the exit code, before the destructors of what was loaded until now.
    _LIBC.on_exit(_LIBC._exit, None)


@atexit.register  # the first to be registered is the last to run
def _forget_libraries() -> None:
    """Hide the libraries from the interpreter, which would clear all modules that it finds."""
    for name in _libraries:
        sys.modules.pop(name, None)


def _read_programs(reader: types.ModuleType) -> None:
    """Read the P4 programs of most tests: the switches that are forked remember what has been read."""
    from innet.p4.artifacts import artifact

    for lanes in (64, 256):
        reader.load(artifact(lanes).device_config)
    # No process deletes them as it ends: the kernel would have to copy all of their memory first.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(reader.load))


def _name_modules() -> None:
    """Tell :mod:`inspect` the modules of the functions at the bottom of a forked process's stack.

    PyTorch's launcher describes its whole stack again and again. For a file of no known module, it would
    look at all modules each time.
    """
    inspect.modulesbyfile |= {__file__: "__main__", "<frozen runpy>": "runpy"}


def _serve(descriptor: str, *modules: str) -> None:
    sys.path.pop(0)  # this folder: the processes do not see the modules of the tests
    listener = socket.socket(fileno=int(descriptor))
    if os.fork():
        os._exit(0)
    os.setsid()
    if 0 in select.select([listener, 0], [], [])[0]:
        return
    # PyTorch imports Triton if it is installed. At the end of an interpreter, Triton complains of objects
    # that a search for garbage has not found.
    sys.modules["triton"] = None  # type: ignore[assignment]
    for each in modules:
        importlib.import_module(each)
    del sys.modules["triton"]
    if reader := sys.modules.get("innet.switch.bmv2json"):
        _read_programs(reader)
    _name_modules()
    gc.collect()
    gc.freeze()  # a search for garbage in a forked process would copy all of this
    request = _Server(listener).await_request()
    if request is None:
        return
    _leave_libraries()
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # the environment may name another folder
    os.chdir(request["folder"])
    sys.executable = request["executable"]
    if torch := sys.modules.get("torch"):
        torch._import_device_backends()  # they look at the environment
    _interpret(request["arguments"])


if __name__ == "__main__":
    _serve(*sys.argv[1:])
