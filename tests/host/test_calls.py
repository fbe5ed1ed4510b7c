"""The queue of an agent's calls: who serves a call, and in which order."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from innet.errors import UsageError
from innet.host.calls import CallQueue
from innet.host.waker import Waker

WITHIN = 60.0  # seconds; only a failing test takes so long
AT_ONCE = threading.Event()
AT_ONCE.set()


def nothing() -> None:
    """Stand for the wait for a call that was put."""


class Served:
    """A queue with its thread. A call is an event, and is served until the event is set."""

    def __init__(self) -> None:
        self.waker = Waker()
        self.attended = threading.Semaphore(0)
        self.queue = CallQueue[threading.Event](self._serve, self.attended.release, self.waker)
        self.thread = threading.Thread(target=self.queue.run, daemon=True)
        self.servers: list[threading.Thread] = []
        self.within = threading.Event()

    def _serve(self, until: threading.Event) -> Callable[[], None]:
        self.servers.append(threading.current_thread())
        self.within.set()
        assert until.wait(WITHIN)
        return lambda: None


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    made.thread.start()
    assert made.attended.acquire(timeout=WITHIN)
    with made.queue._turn:  # the thread has looked for calls, and now waits for some
        pass
    yield made
    made.queue.end()
    made.thread.join(WITHIN)
    assert not made.thread.is_alive()
    made.waker.close()


def test_a_waiting_thread_serves_its_call_itself_if_nothing_else_is_to_be_done(served: Served):
    served.queue.serve(AT_ONCE, nothing)
    assert served.servers == [threading.current_thread()]


def test_a_thread_that_takes_the_turn_is_in_the_midst_of_its_call(served: Served):
    """A signal handler would otherwise wait for the agent's thread, which waits for the turn."""
    turn, here = served.queue._turn, []

    class Watched:
        locked, acquire, release = turn.locked, turn.acquire, turn.release

        def __enter__(self) -> None:
            here.append(served.queue.serving_here)
            turn.acquire()
            here.append(served.queue.serving_here)

        def __exit__(self, *_: object) -> None:
            here.append(served.queue.serving_here)
            turn.release()

    served.queue._turn = Watched()
    served.queue.serve(AT_ONCE, nothing)
    assert here == [True] * 3
    assert not served.queue.serving_here


def test_the_agents_thread_serves_a_call_that_is_put(served: Served):
    served.queue.put(AT_ONCE)
    assert served.within.wait(WITHIN)
    assert served.servers == [served.thread]


def test_a_call_after_the_end_is_not_served_and_can_be_taken_out():
    served = Served()
    served.queue.end()
    served.queue.run()
    served.queue.put(AT_ONCE)
    served.queue.serve(AT_ONCE, nothing)
    assert not served.servers
    assert list(served.queue.left()) == [AT_ONCE] * 2
    served.waker.close()


def test_a_call_waits_for_those_before_it(served: Served):
    until = threading.Event()
    served.queue.put(until)
    assert served.within.wait(WITHIN)
    here = []
    served.queue.serve(AT_ONCE, lambda: here.append(served.queue.waiting_here))
    assert here == [True]
    assert not served.queue.waiting_here
    served.queue.put(AT_ONCE)
    assert served.servers == [served.thread]
    until.set()
    served.queue.end()
    served.thread.join(WITHIN)
    assert served.servers == 3 * [served.thread]


def test_a_call_that_is_put_during_another_one_is_served_after_it(served: Served):
    until = threading.Event()
    other = threading.Thread(target=served.queue.serve, args=(until, nothing))
    other.start()
    assert served.within.wait(WITHIN)
    served.queue.put(AT_ONCE)
    served.waker.reset()  # as an exchange does that waits for packets
    assert served.servers == [other]
    until.set()
    other.join(WITHIN)
    served.queue.end()
    served.thread.join(WITHIN)
    assert served.servers == [other, served.thread]


def test_news_that_come_during_a_call_are_attended_to_after_it(served: Served):
    until = threading.Event()
    other = threading.Thread(target=served.queue.serve, args=(until, nothing))
    other.start()
    assert served.within.wait(WITHIN)
    served.waker.wake()
    served.waker.reset()  # as an exchange does that waits for packets
    assert not served.attended.acquire(blocking=False)
    until.set()
    assert served.attended.acquire(timeout=WITHIN)
    other.join(WITHIN)


def test_a_call_while_the_same_thread_waits_for_another_one_is_refused(served: Served):
    until = threading.Event()
    served.queue.put(until)
    assert served.within.wait(WITHIN)

    def interrupt() -> None:  # as a signal handler does
        with pytest.raises(UsageError, match="in the midst of another one"):
            served.queue.serve(AT_ONCE, nothing)

    served.queue.serve(AT_ONCE, interrupt)
    until.set()


def test_a_call_in_the_midst_of_another_one_of_the_same_thread_is_refused():
    waker = Waker()
    refused = []

    def serve(call: str) -> Callable[[], None]:
        assert queue.serving_here
        with pytest.raises(UsageError, match="in the midst of another one"):
            queue.serve(call, nothing)
        return lambda: refused.append(call)

    queue = CallQueue[str](serve, lambda: None, waker)
    queue.serve("a call", nothing)
    assert refused
    assert not queue.serving_here
    waker.close()


@contextlib.contextmanager
def running(queue: CallQueue[Any]) -> Iterator[None]:
    """Run a queue in a thread of its own. At the end, all of its calls have been served."""
    thread = threading.Thread(target=queue.run, daemon=True)
    thread.start()
    yield
    queue.end()
    queue.join(thread)


def no_thread(_: threading.Thread) -> None:
    """Stand for the start of a thread where there are too many."""
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("way", ["put", "serve"])
def test_a_callback_may_wait_for_a_call_that_it_makes(depth: int, way: str):
    """PyTorch's PowerSGD hook does, for one: the thread that runs its callback cannot serve the call."""
    waker = Waker()
    calls = [threading.Event() for _ in range(depth + 1)]
    servers: list[threading.Thread] = []

    def serve(call: threading.Event) -> Callable[[], None]:
        servers.append(threading.current_thread())
        following = calls[len(servers) :]

        def settle() -> None:
            if following:
                await_end = partial(following[0].wait, WITHIN)
                if way == "put":
                    queue.put(following[0])
                    await_end()
                else:
                    queue.serve(following[0], await_end)
                assert following[0].is_set()
            call.set()

        return settle

    queue = CallQueue[threading.Event](serve, lambda: None, waker)
    with running(queue):
        queue.put(calls[0])
        assert calls[0].wait(WITHIN)
        queue.put(AT_ONCE)
    assert queue.done
    assert len(set(servers)) == depth + 1
    assert len(servers) == depth + 2
    assert not any(each.is_alive() for each in servers)
    waker.close()


def test_a_callback_that_would_wait_for_itself_is_told(monkeypatch: pytest.MonkeyPatch):
    waker, refused, served = Waker(), threading.Event(), list[str]()

    def settle() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(UsageError, match="no other thread"):
                queue.serve("second", nothing)
        refused.set()

    def serve(call: str) -> Callable[[], None]:
        served.append(call)
        return settle

    queue = CallQueue[str](serve, lambda: None, waker)
    with running(queue):
        queue.put("first")
        assert refused.wait(WITHIN)
    assert served == ["first"]
    waker.close()


def test_a_call_of_a_callback_is_served_later_if_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
):
    waker, served, done = Waker(), list[str](), threading.Event()

    def put_second() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            queue.put("second")

    def serve(call: str) -> Callable[[], None]:
        served.append(call)
        return done.set if call == "second" else put_second

    queue = CallQueue[str](serve, lambda: None, waker)
    with running(queue):
        queue.put("first")
        assert done.wait(WITHIN)
    assert served == ["first", "second"]
    waker.close()
