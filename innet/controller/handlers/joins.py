"""The requests to join, taken together as they come.

Thousands of workers join at once. Storing each join by itself would take longer than all else, and the
event loop would do nothing meanwhile.
"""

import asyncio
from collections.abc import Callable

from innet.controller.state.registry import Registry
from innet.controller.state.streams import Stream
from innet.rpc import innet_pb2 as pb

_Join = tuple[Stream, pb.WorkerMessage, asyncio.Future[None]]


class Joins:
    """The joins that came in one turn of the event loop. Each is passed to `take`."""

    def __init__(
        self, registry: Registry, take: Callable[[Stream, pb.WorkerMessage], None]
    ) -> None:
        self._registry, self._take = registry, take
        self._waiting: list[_Join] = []

    async def take(self, stream: Stream, message: pb.WorkerMessage) -> None:
        """Take a join, and return when it is stored. Raises the error of `take`."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((stream, message, done))
        if len(self._waiting) == 1:
            loop.call_soon(self._take_all)
        await done

    def _take_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        refused: dict[asyncio.Future[None], Exception] = {}
        failed: Exception | None = None
        try:
            with self._registry.together():
                for stream, message, done in waiting:
                    if done.cancelled():  # the worker is gone
                        continue
                    try:
                        self._take(stream, message)
                    except Exception as problem:  # noqa: BLE001 - it is raised in the worker's call
                        refused[done] = problem
        except Exception as problem:  # noqa: BLE001 - as above
            failed = problem
        for *_, done in waiting:
            if done.cancelled():
                continue
            if why := refused.get(done, failed):
                done.set_exception(why)
            else:
                done.set_result(None)
