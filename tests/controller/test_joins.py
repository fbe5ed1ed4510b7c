"""Joins that come together: each gets its own outcome, and none is taken of a worker that has gone."""

import asyncio
from contextlib import closing
from typing import Any

import pytest

from innet.controller.handlers.joins import Joins
from innet.controller.state.registry import Policy, Registry
from innet.controller.state.store import Store
from innet.errors import NotFound
from innet.rpc import innet_pb2 as pb


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
