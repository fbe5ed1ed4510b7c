"""The watch over certificates while the controller runs: those of clients, and its own."""

import threading
import time
from collections.abc import Callable

import structlog

from innet.errors import InnetError
from innet.rpc import tls
from innet.rpc.revocation import Revocations

PERIOD_S = 1.0
"""Seconds between two looks at the list of revoked certificates."""
_REMINDER_EVERY_S = 24 * 3600.0
_log = structlog.get_logger("innet.controller")


class ExpiryReminder:
    """The daily warning that a certificate ends soon."""

    def __init__(self, identity: tls.Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self._identity, self._clock = identity, clock
        self._next = clock()

    def look(self) -> None:
        """Warn if the certificate that is in the file now ends soon, at most once a day."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + _REMINDER_EVERY_S
        try:
            ends = self._identity.renewed_expiry()
        except InnetError as problem:
            _log.warning("the certificate cannot be used", problem=str(problem))
            return
        if tls.ends_soon(ends):
            _log.warning(
                "the controller's certificate ends soon: make a new one, as with "
                "`innet certificates make`",
                certificate_expires=ends.isoformat(),
            )


class CertificateWatch:
    """The thread that expels clients with revoked certificates, and warns of expiry. `close` ends it."""

    def __init__(
        self,
        identity: tls.Identity,
        revocations: Revocations,
        expel: Callable[[frozenset[str]], None],
    ) -> None:
        self._reminder, self._revocations, self._expel = (
            ExpiryReminder(identity),
            revocations,
            expel,
        )
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="innet-certificates", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(PERIOD_S):
            try:
                self._revocations.refresh()
                self._expel(self._revocations.all)
                self._reminder.look()
            except Exception:  # noqa: BLE001 - whatever it is
                # The next look may succeed.
                _log.exception("a look at the certificates failed")
