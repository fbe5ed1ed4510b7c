"""An emulation's own namespaces for networks, processes and mounts.

:func:`run_in_namespaces` calls a function in the first process of a new process namespace, with new
network and mount namespaces. When this first process ends, the kernel ends all other processes of the
process namespace. It then removes the interfaces and the namespaces. This also happens after SIGKILL,
and when the process that waits for the first one is killed. So nothing is left to find and remove.
Emulations that run at the same time cannot interfere, whatever their interfaces are called.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from innet.errors import InnetError
from innet.terminal.signals import INTERRUPTS, Stopped

_NEW_MOUNTS, _NEW_PROCESSES, _NEW_NETWORK = 0x00020000, 0x20000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 1 << 12, 1 << 14, 1 << 18
_NO_SUID, _NO_DEVICES, _NO_EXEC = 2, 4, 8
_PR_SET_PDEATHSIG = 1
_AWAITED_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
_NO_IPV6 = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
_LIBC = ctypes.CDLL(None, use_errno=True)


def run_in_namespaces(run: Callable[[], int]) -> int:
    """Call `run` in new namespaces. Return its result, or 128 plus the signal that ended it.

    Signals that this process gets are passed on to the new one, where they raise KeyboardInterrupt or
    Stopped. Raises InnetError without root.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED_SIGNALS)
    ended, alive = os.pipe()  # when this process has ended, nobody has `alive` any more
    try:
        home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _unshare(_NEW_PROCESSES)  # holds for children that are born from here on
            child = os.fork()
            if child == 0:
                os.close(alive)
                _run_child(run, before, ended)
        finally:
            _LIBC.setns(home, _NEW_PROCESSES)
            os.close(home)
        return _wait(child)
    finally:
        os.close(ended)
        os.close(alive)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def network_of(process: int) -> Iterator[None]:
    """Let the calling thread use the network of another process, for the block. Raises OSError."""
    with (
        Path(f"/proc/{process}/ns/net").open("rb") as other,
        Path("/proc/thread-self/ns/net").open("rb") as own,
    ):
        if _LIBC.setns(other.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            yield
        finally:
            _LIBC.setns(own.fileno(), _NEW_NETWORK)


def bind_mount(source: Path, target: Path) -> None:
    """Show the file `source` at `target`, for this mount namespace only. Raises InnetError.

    Does nothing if there is no file at `target`.
    """
    if target.exists():
        _mount(str(source), str(target), None, _BIND)


def _run_child(run: Callable[[], int], mask: Iterable[int], parent_ended: int) -> None:
    """Run the child, from its start to its exit."""
    status = 1
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([parent_ended], [], [], 0)[0]:  # before the request
            raise Stopped(signal.SIGKILL)
        # The first process of a namespace never gets a signal for which it has no handler.
        INTERRUPTS.catch()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _unshare(_NEW_NETWORK | _NEW_MOUNTS)
        _mount("none", "/", None, _RECURSIVE | _PRIVATE)
        _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # Without IPv6 addresses, interfaces send no packets of their own.
        with contextlib.suppress(FileNotFoundError):
            _NO_IPV6.write_text("1")
        status = run()
    except SystemExit as end:  # such as rich's, when nobody reads the output
        status = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException as problem:  # noqa: BLE001 - this process has no caller to raise it to
        with contextlib.suppress(Exception):
            sys.excepthook(type(problem), problem, problem.__traceback__)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wait(child: int) -> int:
    while True:
        received = signal.sigwaitinfo(_AWAITED_SIGNALS)
        if received.si_signo != signal.SIGCHLD:
            # A code above 0 means that the kernel has sent the signal, after Ctrl-C. The kernel has
            # then sent it to the child as well.
            if received.si_signo == signal.SIGHUP:
                os.kill(child, signal.SIGTERM)
            elif received.si_code <= 0:
                os.kill(child, received.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _unshare(kinds: int) -> None:
    if _LIBC.unshare(kinds):
        why = os.strerror(ctypes.get_errno())
        raise InnetError(f"cannot create namespaces for the emulation: {why}; run it as root")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    kind_text = kind.encode() if kind else None
    if _LIBC.mount(source.encode(), target.encode(), kind_text, ctypes.c_ulong(flags), None):
        raise InnetError(f"cannot mount {target}: {os.strerror(ctypes.get_errno())}")
