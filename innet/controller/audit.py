"""The audit trail: who has created, changed or deleted what, and who was refused what.

Its lines are a part of the log. They come from the logger ``innet.audit``.
"""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import grpc
import structlog

from innet.errors import InnetError
from innet.rpc import tls
from innet.rpc.callers import Caller
from innet.rpc.interceptors import wrapped
from innet.rpc.status import code_of

CHANGES = frozenset(
    {
        "AddSwitch", "SetSwitchPorts", "DrainSwitch", "UndrainSwitch", "RemoveSwitch", "CreateJob",
        "DeleteJob", "SetQuota",
    }
)  # fmt: skip
"""The methods that change switches, jobs or quotas."""
_REFUSED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
_JOIN_REFUSED = _REFUSED | {
    "ALREADY_EXISTS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND",
}  # fmt: skip
"""The outcomes of a refused Join. Only a Join without an answer was refused."""
_LONGEST_NAME = 64
_REFUSAL_EVERY = 10.0
_MOST_KEPT = 1000
_Behaviour = Callable[[Any, Any], Any]
_log = structlog.get_logger("innet.audit")


class Refusals:
    """The log of refused clients: one line in ten seconds for each name and method at a machine."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def note(self, method: str, caller: Caller, why: str, **about: object) -> None:
        """Log a refusal, or count it for the next line. `about` are more facts for the line."""
        client = who(caller)
        with self._lock:
            unlogged = self._due((caller.host, client, method))
        if unlogged is not None:
            _log.warning(
                "refused", method=method, **about, who=client, peer=caller.peer, why=why,
                more_before=unlogged,
            )  # fmt: skip

    def _due(self, key: tuple[str, str, str]) -> int | None:
        """Return how many refusals were not logged, or None if this one is not logged either."""
        now = self._clock()
        at, unlogged = self._logged.pop(key, (-_REFUSAL_EVERY, 0))
        if now - at < _REFUSAL_EVERY:
            self._logged[key] = at, unlogged + 1
            return None
        while len(self._logged) >= _MOST_KEPT:
            del self._logged[next(iter(self._logged))]
        self._logged[key] = now, 0
        return unlogged


class AuditInterceptor(grpc.ServerInterceptor):
    """The record of every change, with the client's name and the outcome, and of refusals."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put the record in front of a method's handler."""
        method = details.method.rpartition("/")[2]
        return wrapped(
            continuation(details),
            partial(self._recorded, method),
            partial(self._recorded_stream, method),
        )

    def _recorded(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        def recorded(request: Any, caller: Caller) -> Any:
            try:
                answer = behaviour(request, caller)
            except BaseException as problem:
                self._failed(method, request, caller, problem)
                raise
            if method in CHANGES:
                _log.info(method, name=request.name, who=who(caller), peer=caller.peer)
            return answer

        return recorded

    def _recorded_stream(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        async def recorded(requests: Any, caller: Caller) -> AsyncIterator[Any]:
            remembered, answered = _Remembered(requests), False
            try:
                async with contextlib.aclosing(behaviour(remembered, caller)) as answers:
                    async for answer in answers:
                        answered = True
                        yield answer
            except InnetError as problem:
                if not answered and code_of(problem).name in _JOIN_REFUSED:
                    first = getattr(remembered.first, "join", None)
                    self._refused(method, first, caller, str(problem))
                raise

        return recorded

    def _failed(self, method: str, request: Any, caller: Caller, problem: BaseException) -> None:
        code, why = "UNKNOWN", ""
        if isinstance(problem, InnetError):
            code, why = code_of(problem).name, str(problem)
        if code in _REFUSED:
            self._refused(method, request, caller, why)
        elif method in CHANGES:
            _log.warning(
                method, name=request.name, who=who(caller), peer=caller.peer,
                failed=code, why=why,
            )  # fmt: skip

    def _refused(self, method: str, request: Any, caller: Caller, why: str) -> None:
        """Log a refusal with the names that the client has sent. They may be false, and of any length."""
        about = {
            field: value[:_LONGEST_NAME] if isinstance(value, str) else value
            for field in ("name", "job", "rank")
            if (value := getattr(request, field, None)) is not None
        }
        self._refusals.note(method, caller, why, **about)


class _Remembered:
    """An asynchronous iterator of messages that keeps the `first`."""

    def __init__(self, messages: AsyncIterator[Any]) -> None:
        self.first: Any = None
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for message in self._messages:
            self.first = message if self.first is None else self.first
            yield message


def who(caller: Caller) -> str:
    """Return the name in a client's certificate, with its roles; "nobody" without a certificate."""
    names = [name.decode(errors="replace") for name in caller.shown.get("x509_common_name", ())]
    roles = ", ".join(tls.roles(caller.shown))
    return f"{'/'.join(names)} ({roles})" if names else roles or "nobody"
