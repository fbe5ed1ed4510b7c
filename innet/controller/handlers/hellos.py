"""The hello packets of all switches, taken by one thread.

A switch's packets come in one after the other, among them acknowledgements of cleared cells. They must
not wait until the hellos of thousands of workers are handled: the clearing would be given up.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice

import structlog

from innet.controller.jobs.records import Attachment

_MOST_TOGETHER = 64  # others wait for the lock meanwhile
_log = structlog.get_logger("innet.controller")


class Hellos:
    """The hellos that wait, by nonce, and the thread that calls `take` with each of them.

    A hello that is repeated while it waits counts once, with the latest attachment. The thread takes
    several waiting hellos at a time, in one block of `together`.
    """

    def __init__(
        self,
        take: Callable[[str, int, Attachment], None],
        together: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._take, self._together, self._closed = take, together, False
        self._waiting: dict[int, tuple[str, Attachment]] = {}
        self._arrived = threading.Condition()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="innet-hellos", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        with self._arrived:
            self._closed = True
            self._arrived.notify()

    def put(self, switch: str, nonce: int, where: Attachment) -> None:
        """Take in a hello that came out of a switch's data plane. Any thread may call it."""
        with self._arrived:
            self._waiting[nonce] = switch, where
            self._arrived.notify()

    def _run(self) -> None:
        while hellos := self._next():
            try:
                with self._together():
                    for each in hellos:
                        self._try(*each)
            except Exception:  # noqa: BLE001 - whatever it is
                # A worker repeats its hello until it is admitted.
                _log.exception("hellos could not be kept")

    def _try(self, switch: str, nonce: int, where: Attachment) -> None:
        try:
            self._take(switch, nonce, where)
        except Exception:  # noqa: BLE001 - whatever it is
            # One strange hello must not cost all those to come.
            _log.exception("a hello was not understood")

    def _next(self) -> list[tuple[str, int, Attachment]]:
        """Return the next hellos in the order of their arrival, or none once closed."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return []
            nonces = [*islice(self._waiting, _MOST_TOGETHER)]
            popped = [(each, *self._waiting.pop(each)) for each in nonces]
            return [(switch, nonce, where) for nonce, switch, where in popped]
