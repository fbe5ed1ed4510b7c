"""The check of roles in front of the service. A revoked certificate allows nothing.

:mod:`innet.rpc.roles` has the rules.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import grpc

from innet.rpc import tls
from innet.rpc.callers import Caller
from innet.rpc.interceptors import wrapped
from innet.rpc.revocation import Revocations
from innet.rpc.roles import check_allowed

_Behaviour = Callable[[Any, Any], Any]


class RoleInterceptor(grpc.ServerInterceptor):
    """The check that refuses a call before the service sees it, if the client may not make it."""

    def __init__(self, revocations: Revocations) -> None:
        self._revocations = revocations

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put the check in front of a method's handler."""
        method = details.method.rpartition("/")[2]
        # Only the handler knows the certificate.
        return wrapped(
            continuation(details),
            partial(self._guarded, method),
            partial(self._guarded_stream, method),
        )

    def _guarded(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        def checked(request: Any, caller: Caller) -> Any:
            self._check(method, caller)
            return behaviour(request, caller)

        return checked

    def _guarded_stream(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        async def checked(requests: Any, caller: Caller) -> AsyncIterator[Any]:
            self._check(method, caller)
            async with contextlib.aclosing(behaviour(requests, caller)) as answers:
                async for each in answers:
                    yield each

        return checked

    def _check(self, method: str, caller: Caller) -> None:
        self._revocations.check(caller.shown)
        check_allowed(tls.roles(caller.shown), method)
