"""Joins that come together: each gets its own outcome, and none is taken of a worker that has gone."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from innet.controller.handlers.hellos import Hellos
from innet.controller.handlers.joins import Joins
from innet.controller.jobs.records import Attachment
from innet.controller.state.registry import Policy, Registry
from innet.controller.state.store import Store
from innet.errors import NotFound
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import Address


def test_each_join_of_a_turn_gets_its_own_outcome_and_a_cancelled_one_is_left_out():
    taken: list[tuple[Any, bool]] = []

    async def turn(joins: Joins) -> list[Any]:
        def asked(name: str) -> asyncio.Task[None]:
            message = pb.WorkerMessage(join=pb.JoinRequest(job=name))
            return asyncio.create_task(joins.take(name, message))  # type: ignore[arg-type]

        calls = [asked(name) for name in ("first", "unknown", "gone", "last")]
        await asyncio.sleep(0)  # all of them wait now
        assert not taken
        calls[2].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    with closing(Registry(Store(), Policy())) as registry:

        def take(stream: Any, message: pb.WorkerMessage) -> None:
            taken.append((stream, registry._together is not None))
            if message.join.job == "unknown":
                raise NotFound("there is no such job")

        first, unknown, gone, last = asyncio.run(turn(Joins(registry, take)))
    assert taken == [("first", True), ("unknown", True), ("last", True)]
    assert first is last is None
    assert isinstance(gone, asyncio.CancelledError)
    with pytest.raises(NotFound, match="no such job"):
        raise unknown


class Broken(Registry):
    """A registry in which the changes of the job "bad" cannot be committed."""

    committed: list[str]

    def commit(self, job: Any, actions: Any) -> None:
        if self._together is not None:
            super().commit(job, actions)
        elif job.spec.name == "bad":
            raise ArithmeticError("a bug")
        else:
            self.committed.append(job.spec.name)


def named(job: str) -> Any:
    """Return a job of which only the name matters."""
    return SimpleNamespace(spec=SimpleNamespace(name=job))


@pytest.fixture
def broken() -> Iterator[Broken]:
    with closing(Broken(Store(), Policy())) as registry:
        registry.committed = []
        yield registry


def test_when_one_commit_of_several_fails_the_others_are_made(broken: Broken):
    def commit_all() -> None:
        with broken.together():
            for name in ("first", "bad", "last"):
                broken.commit(named(name), [])

    with pytest.raises(ArithmeticError):
        commit_all()
    assert broken.committed == ["first", "last"]


def test_joins_that_cannot_be_committed_end_with_the_error(broken: Broken):
    async def joined() -> list[Any]:
        joins = Joins(broken, lambda stream, _: broken.commit(named(stream), []))
        calls = [joins.take(name, pb.WorkerMessage()) for name in ("first", "bad")]  # type: ignore[arg-type]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5.0)

    assert [type(each) for each in asyncio.run(joined())] == [ArithmeticError] * 2


def test_hellos_are_taken_also_after_some_that_could_not_be_committed():
    taken = threading.Event()
    failures = [ArithmeticError("a bug")]

    @contextlib.contextmanager
    def together() -> Iterator[None]:
        yield
        if failures:
            raise failures.pop()
        taken.set()

    hellos = Hellos(lambda *_: None, together)
    hellos.start()
    where = Attachment(1, Address("02:00:00:00:00:01", "10.0.0.1"))
    while failures:
        hellos.put("tor", 1, where)
    hellos.put("tor", 2, where)
    assert taken.wait(5.0)
    hellos.close()
