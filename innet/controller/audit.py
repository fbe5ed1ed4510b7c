"""The audit trail: who has created, changed or deleted what, and who was refused what.

Its lines are a part of the log. They come from the logger ``innet.audit``.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import structlog

from innet.rpc import tls

CHANGES = frozenset(
    {
        "AddSwitch", "SetSwitchPorts", "DrainSwitch", "UndrainSwitch", "RemoveSwitch", "CreateJob",
        "DeleteJob",
    }
)  # fmt: skip
"""The methods that change switches or jobs."""
_REFUSED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
_REFUSAL_EVERY = 10.0
_MOST_PEERS = 1000
_Behaviour = Callable[[Any, Any], Any]
_log = structlog.get_logger("innet.audit")


class Refusals:
    """The log of refused clients: at most one line in ten seconds for each name at a machine."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def note(self, method: str, context: Any, why: str, name: str = "") -> None:
        """Log a refusal, or count it for the next line. `name` is that of the switch or the job."""
        peer, client = context.peer(), who(context)
        with self._lock:
            unlogged = self._due((peer.rpartition(":")[0], client))
        if unlogged is not None:
            _log.warning(
                "refused", method=method, name=name, who=client, peer=peer, why=why,
                more_before=unlogged,
            )  # fmt: skip

    def _due(self, client: tuple[str, str]) -> int | None:
        """Return how many refusals were not logged, or None if this one is not logged either."""
        now = self._clock()
        at, unlogged = self._logged.pop(client, (-_REFUSAL_EVERY, 0))
        if now - at < _REFUSAL_EVERY:
            self._logged[client] = at, unlogged + 1
            return None
        while len(self._logged) >= _MOST_PEERS:
            del self._logged[next(iter(self._logged))]
        self._logged[client] = now, 0
        return unlogged


class AuditInterceptor(grpc.ServerInterceptor):
    """The record of every change, with the client's name and the outcome, and of refusals."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put the record in front of a method's handler."""
        handler = continuation(details)
        method = details.method.rpartition("/")[2]
        if behaviour := getattr(handler, "unary_unary", None):
            return handler._replace(unary_unary=self._recorded(method, behaviour))
        if behaviour := getattr(handler, "stream_stream", None):
            return handler._replace(stream_stream=self._recorded_stream(method, behaviour))
        return handler

    def _recorded(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        def recorded(request: Any, context: Any) -> Any:
            try:
                answer = behaviour(request, context)
            except BaseException:  # also that of context.abort
                self._failed(method, request, context)
                raise
            if method in CHANGES:
                _log.info(method, name=request.name, who=who(context), peer=context.peer())
            return answer

        return recorded

    def _recorded_stream(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        def recorded(requests: Any, context: Any) -> Iterator[Any]:
            try:
                yield from behaviour(requests, context)
            except BaseException:
                self._failed(method, requests, context)
                raise

        return recorded

    def _failed(self, method: str, request: Any, context: Any) -> None:
        code = getattr(context.code(), "name", "UNKNOWN")
        why = (context.details() or b"").decode(errors="replace")
        if code in _REFUSED:
            self._refusals.note(method, context, why, getattr(request, "name", ""))
        elif method in CHANGES:
            _log.warning(
                method, name=request.name, who=who(context), peer=context.peer(),
                failed=code, why=why,
            )  # fmt: skip


def who(context: Any) -> str:
    """Return the name in a client's certificate, with its roles; "nobody" without a certificate."""
    shown = context.auth_context()
    names = [name.decode(errors="replace") for name in shown.get("x509_common_name", ())]
    roles = ", ".join(tls.roles(shown))
    return f"{'/'.join(names)} ({roles})" if names else roles or "nobody"
