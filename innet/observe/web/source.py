"""The source of the page: readings of the controller, and the controller's log."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import structlog

from innet.errors import InnetError
from innet.observe.overview import read_without_counters
from innet.observe.view import View, Viewer
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls
from innet.rpc.client import connect
from innet.telemetry.feed import LogEntry

_EVERY, _AT_MOST_EVERY = 2.0, 0.25
_ANSWERS_WITHIN = 5.0
_KEPT = 300
_log = structlog.get_logger("innet.web")


class Source:
    """The last view, the problem that prevents a newer one, and the last entries of the log.

    All of it belongs to the thread of one event loop, which executes :meth:`run`.
    """

    def __init__(self, controller: str, tls_folder: Path | None) -> None:
        self.view: View | None = None
        self.at: datetime | None = None
        self.problem = ""
        self.entries: deque[LogEntry] = deque(maxlen=_KEPT)
        self.taken = 0
        """The number of entries so far."""
        self._controller, self._folder = controller, tls_folder
        self._viewer = Viewer()
        self._stub: rpc.ControllerStub | None = None
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Read soon: something has happened, or somebody has begun to watch."""
        self._news.set()

    def take(self, entry: LogEntry) -> None:
        """Take an entry of the log, and read soon: the entry may report a change that a reading shows."""
        self.entries.append(entry)
        self.taken += 1
        if entry.level != "debug":
            self.wake()

    def entries_since(self, taken: int) -> Iterable[LogEntry]:
        """Return the entries that came after the first `taken`, as far as they are kept."""
        missed = min(self.taken - taken, len(self.entries))
        return list(self.entries)[len(self.entries) - missed :]

    async def run(self, watched: Callable[[], bool], changed: Callable[[], None]) -> None:
        """Read every two seconds, and soon after an entry of the log. Call `changed` after each reading.

        Never return. Read the controller only while `watched` returns True.
        """
        while True:
            self._news.clear()
            if watched():
                await self._next(changed)
                changed()
            await asyncio.sleep(_AT_MOST_EVERY)
            try:
                async with asyncio.timeout(_EVERY - _AT_MOST_EVERY):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _next(self, changed: Callable[[], None]) -> None:
        """Read the controller. While it does not answer, say so."""
        reading = asyncio.create_task(asyncio.to_thread(self._read))
        while not (await asyncio.wait([reading], timeout=_ANSWERS_WITHIN))[0]:
            self.problem = "the controller does not answer"
            changed()
        try:
            self.view, self.problem = await reading, ""
            self.at = datetime.now(UTC)
        except InnetError as problem:
            self.problem = str(problem)
        except Exception as problem:  # noqa: BLE001 - whatever it is
            # The next reading may go well.
            self.problem = f"the controller's answer was not understood: {problem!r}"
            _log.exception("the controller's answer was not understood")

    def _read(self) -> View:
        if self._stub is None:
            identity = tls.load(self._folder, tls.CONTROLLER) if self._folder else None
            _, self._stub = connect(self._controller, identity=identity)
        return self._viewer.see(read_without_counters(self._stub))
