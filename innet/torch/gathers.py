"""A second job for large all-gathers, so that they and sums use both directions of a link at once.

A reduce-scatter fills the way up, and an all-gather the way down. In one job, calls run one after the
other, so each would wait for the other. The second job is created with the first large all-gather, which
all ranks call at the same point. If it cannot be created, or a rank does not wish it, all-gathers share
the group's job.
"""

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from innet.host.agent import Agent
from innet.torch.membership import (
    Environment,
    GroupContext,
    GroupMembership,
    join_for_gathers,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

LARGE = 1 << 16
"""The bytes from which on a gathered result is large. Smaller ones take about a round trip anyway."""


class Gathers:
    """A group's membership in the job of its large all-gathers. The first of them calls `join`."""

    def __init__(self, join: Callable[[], GroupMembership] | None) -> None:
        self._join = join
        self._membership: GroupMembership | None = None
        self._under_way: list[tuple[Agent, Future[Any], frozenset[int]]] = []

    def agent(self, usual: Agent, nbytes: int) -> Agent:
        """Return the agent for an all-gather of `nbytes` bytes. All ranks have to call this."""
        if nbytes < LARGE or not self._join:
            return usual
        if not self._membership:
            self._membership = self._join()
        return self._membership.agent or usual

    def submit(
        self,
        agent: Agent,
        tensors: Iterable[Any],
        begin: Callable[..., "Future[Any]"],
        *,
        wait: bool,
    ) -> "Future[Any]":
        """Begin a call. First wait for the other agent's calls that touch the same memory."""
        if self._under_way:
            self._under_way = [each for each in self._under_way if not each[1].done()]
        touched: frozenset[int] = frozenset()
        if self._under_way:
            touched = frozenset(_storages(tensors))
            concurrent.futures.wait(
                [
                    future
                    for other, future, theirs in self._under_way
                    if other is not agent and theirs & touched
                ]
            )
        future = begin(agent, wait=wait)
        if not wait:
            self._under_way.append((agent, future, touched or frozenset(_storages(tensors))))
        return future

    @property
    def apart(self) -> bool:
        """Return whether there is a second job. A barrier in the group's job ignores its calls."""
        return self._membership is not None

    def wait(self) -> None:
        """Return when all calls have ended."""
        concurrent.futures.wait([future for _, future, _ in self._under_way])

    def leave(self) -> None:
        """Leave the job of large all-gathers."""
        if self._membership:
            self._membership.leave()

    def abandon(self) -> None:
        """Leave the job of large all-gathers, and delete it, since nobody needs it any more."""
        if self._membership:
            self._membership.abandon()


def joining(
    membership: GroupMembership, context: GroupContext, environment: Environment
) -> Callable[[], GroupMembership] | None:
    """Return a function that joins a job for large all-gathers, or None if some rank wishes none."""
    return partial(join_for_gathers, context, environment) if membership.gather_job else None


def _storages(found: Any) -> Iterator[int]:
    """Yield the addresses of the memory of all dense tensors in nested lists."""
    if isinstance(found, torch.Tensor):
        if found.layout == torch.strided:
            yield found.untyped_storage().data_ptr()
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _storages(each)
