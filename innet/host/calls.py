"""The calls of an agent, served one after the other by its thread, or by a caller that waits.

Where processors are busy, handing a call to another thread and its result back takes longer than a
small exchange. So a thread that waits for its own call serves it itself, unless another call is
queued or under way.

The agent's thread runs the callbacks that wait for a call's result. If such a callback puts a call, it
may also wait for it. So another thread then becomes the agent's thread, and serves the call.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from innet.errors import UsageError
from innet.host.waker import Waker

Call = TypeVar("Call")


class CallQueue(Generic[Call]):
    """The calls that wait for their turn. One thread at a time has the turn.

    `serve` carries out a call, and returns a function that gives its result to whoever waits for it.
    `attend` is called between calls, after every use of the `waker`. None of them may raise.
    """

    def __init__(
        self,
        serve: Callable[[Call], Callable[[], object]],
        attend: Callable[[], None],
        waker: Waker,
    ) -> None:
        self._serve, self._attend, self._waker = serve, attend, waker
        self._calls: deque[Call | None] = deque()
        self._turn = threading.Lock()
        self._server: int | None = None  # the thread that serves a call
        self._runner: int | None = None  # the agent's thread
        self._settling: int | None = None  # the agent's thread, while it runs callbacks
        self._callers: dict[int, bool] = {}  # the threads within serve(): does it take the turn?
        self._successors: list[threading.Thread] = []
        self._ended = False
        self.done = False  # whether the agent's thread has ended

    @property
    def serving_here(self) -> bool:
        """Return whether this thread is in the midst of a call, as in a signal handler or a callback.

        It may have the turn, or be about to take it. So it must not wait for the agent's thread.
        """
        own = threading.get_ident()
        return own == self._server or self._callers.get(own, False)

    @property
    def waiting_here(self) -> bool:
        """Return whether this thread is within :meth:`serve`, as in a signal handler."""
        return threading.get_ident() in self._callers

    def put(self, call: Call) -> None:
        """Let the agent's thread serve a call."""
        self._calls.append(call)
        if self._settling == threading.get_ident():
            self._hand_over()
        else:
            self._waker.wake()

    def serve(self, call: Call, await_end: Callable[[], object]) -> None:
        """Serve a call in this thread if that saves a wait. Otherwise put it, and then `await_end`.

        Raises UsageError if this thread is in the midst of another call: each would wait for the other.
        """
        own = threading.get_ident()
        if own in self._callers or (own == self._server and own != self._settling):
            raise UsageError(
                "a call of the agent came in the midst of another one, from a signal handler or a "
                "callback: use submit() there, or call after the other one"
            )
        known = self._waker.count
        idle = not self._calls and not self._turn.locked()
        try:
            self._callers[own] = idle
            if idle:
                with self._turn:  # released even if a signal handler raises an error
                    if idle := not (self._calls or self._ended):
                        self._serve_now(call)
            if not idle:
                self._callers[own] = False
                self.put(call)
                self._check_handed_over(call)
                await_end()
            elif self._calls or self._waker.count != known:
                self._waker.wake()  # this call may have used up a wake-up of the agent's thread
        finally:
            self._callers.pop(own, None)

    def run(self) -> None:
        """Serve all calls that are put until :meth:`end`."""
        self._turn.acquire()
        self._run()

    def _run(self) -> None:
        """Serve calls in this thread, which has the turn, until the end or until it hands over."""
        own = self._runner = threading.get_ident()
        while True:
            self._waker.reset()
            while self._calls:
                if (call := self._calls.popleft()) is None:
                    self.done = True
                    self._turn.release()
                    return
                self._serve_now(call)
                if self._runner != own:
                    return
            self._attend()
            self._turn.release()
            if not self._calls:  # a wake-up that has come since ends the wait
                self._waker.wait(reset=False)  # only the thread that has the turn resets it
            self._turn.acquire()

    def _hand_over(self) -> None:
        """Give this thread's turn to another one, because a callback may now wait for a call."""
        name = threading.current_thread().name
        successor = threading.Thread(target=self._run, name=name, daemon=True)
        self._successors = [*filter(threading.Thread.is_alive, self._successors), successor]
        own, self._server, self._runner, self._settling = self._runner, None, None, None
        try:
            successor.start()
        except RuntimeError:  # there are too many threads: the call is served after the callback
            self._server = self._runner = self._settling = own

    def _check_handed_over(self, call: Call) -> None:
        """Raise UsageError if this thread would wait for a call that only it could serve."""
        if self._settling == threading.get_ident():
            self._calls.remove(call)
            raise UsageError(
                "a callback waits for a call of the agent, and no other thread can be started to serve "
                "it: use submit() there"
            )

    def join(self, first: threading.Thread) -> None:
        """Wait, after :meth:`end`, for the thread that began with :meth:`run`, and for its successors."""
        while ending := [
            each for each in (first, *self._successors)
            if each.is_alive() and each is not threading.current_thread()
        ]:  # fmt: skip
            ending[0].join()

    def end(self) -> None:
        """Let :meth:`run` return after all calls that were put before. No later call is served."""
        self._ended = True
        self._calls.append(None)
        self._waker.wake()

    def left(self) -> Iterator[Call]:
        """Take out the calls that are still queued after :meth:`run` has returned."""
        with contextlib.suppress(IndexError):
            while True:
                if (call := self._calls.popleft()) is not None:
                    yield call

    def _serve_now(self, call: Call) -> None:
        own = self._server = threading.get_ident()
        try:
            settle = self._serve(call)
            if self._runner == own:
                self._settling = own
            settle()
        finally:
            if self._server == own:  # another thread may have taken over
                self._server = self._settling = None
