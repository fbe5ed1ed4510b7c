"""Processes that form a process group, and run functions for a test."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from forked import context, keep_imports
from waiting import WITHIN

from innet.local.ports import free_tcp_port


class Group:
    """The processes of a PyTorch process group."""

    def __init__(self, processes: list[BaseProcess], ends: list[Connection]) -> None:
        self.processes, self._ends = processes, ends

    def start(self, what: Callable[..., Any], *arguments: Any, ranks: Any = None) -> None:
        """Let all processes, or some, call ``what(rank, *arguments)``, a function of a module."""
        for rank in self._ranks(ranks):
            self._ends[rank].send((what, arguments))

    def results(self, ranks: Any = None, within: float = WITHIN) -> list[Any]:
        """Return the results or exceptions, within so many seconds."""
        found = []
        for rank in self._ranks(ranks):
            assert self._ends[rank].poll(within), f"process {rank} has not finished"
            found.append(self._ends[rank].recv())
        return found

    def run(self, what: Callable[..., Any], *arguments: Any, within: float = WITHIN) -> list[Any]:
        """Call a function in all processes, and return the results. Raise a process's exception."""
        self.start(what, *arguments)
        found = self.results(within=within)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return found

    def _ranks(self, ranks: Any) -> list[int]:
        return list(range(len(self._ends)) if ranks is None else ranks)


@contextlib.contextmanager
def process_group(
    size: int,
    prepare: Callable[[], None],
    backend: str = "gloo",
    environments: Sequence[dict[str, str]] = (),
) -> Iterator[Group]:
    """Start processes; each calls `prepare` when it is in the group.

    Without a backend they get each other's addresses, and form no group. `environments` are
    additional variables for each process.
    """
    port = free_tcp_port()
    with contextlib.ExitStack() as stack:
        processes, ends = [], []
        for rank in range(size):
            near, far = context().Pipe()
            environment = environments[rank] if environments else {}
            arguments = (rank, size, port, far, prepare, backend, environment)
            process = context().Process(target=_serve, args=arguments)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            stack.callback(near.close)
            far.close()
            processes.append(process)
            ends.append(near)
        yield Group(processes, ends)


def _serve(
    rank: int,
    size: int,
    port: int,
    commands: Connection,
    prepare: Callable[[], None],
    backend: str,
    environment: dict[str, str],
) -> None:
    import torch
    import torch.distributed as dist

    keep_imports()
    os.environ |= environment
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
    torch.set_num_threads(1)
    if backend == "innet":
        import innet.torch  # noqa: F401
    if backend:
        dist.init_process_group(backend)
    prepare()
    with contextlib.suppress(EOFError):
        while True:
            what, arguments = commands.recv()
            try:
                commands.send(what(rank, *arguments))
            except Exception as problem:  # noqa: BLE001 - the test gets it
                commands.send(problem)
