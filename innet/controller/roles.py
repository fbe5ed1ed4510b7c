"""Authorization: the role in a client's certificate decides which methods it may call.

A revoked certificate allows nothing.

An administrator may call every method. A user manages jobs of its own: it sees and deletes only those
that it has created. An observer sees everything and changes nothing. A worker may join jobs. The
controller's own certificate may read, because its web page, a process of its own, asks with it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import grpc

from innet.errors import NotAuthorized
from innet.rpc import tls
from innet.rpc.interceptors import wrapped
from innet.rpc.revocation import Revocations

_READS = frozenset({"ListSwitches", "GetSwitch", "ListJobs", "GetJob", "GetJobHistory"})
_METHODS: Mapping[str, frozenset[str]] = {
    tls.USER: _READS | {"CreateJob", "DeleteJob"},
    tls.OBSERVER: _READS,
    tls.WORKER: frozenset({"Join", "CheckJoin"}),
}
_WORDS = {tls.USER: "a user", tls.OBSERVER: "an observer", tls.WORKER: "a worker"}
_LONGEST_NAME = 64  # as X.520 has it
_Behaviour = Callable[[Any, Any], Any]


class RoleInterceptor(grpc.ServerInterceptor):
    """The check that refuses a call before the service sees it, if the client may not make it."""

    def __init__(self, revocations: Revocations) -> None:
        self._revocations = revocations

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put the check in front of a method's handler."""
        method = details.method.rpartition("/")[2]
        # Only the handler is given the context that knows the certificate.
        return wrapped(
            continuation(details),
            partial(self._guarded, method),
            partial(self._guarded_stream, method),
        )

    def _guarded(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        def checked(request: Any, context: Any) -> Any:
            self._check(method, context)
            return behaviour(request, context)

        return checked

    def _guarded_stream(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        async def checked(requests: Any, context: Any) -> AsyncIterator[Any]:
            self._check(method, context)
            async for each in behaviour(requests, context):
                yield each

        return checked

    def _check(self, method: str, context: Any) -> None:
        shown = context.auth_context()
        self._revocations.check(shown)
        check_allowed(tls.roles(shown), method)


def check_allowed(roles: list[str], method: str) -> None:
    """Raise NotAuthorized unless one of a client's `roles` allows `method`."""
    if tls.ADMIN in roles or (tls.CONTROLLER in roles and method in _READS):
        return
    if _allows(roles, method):
        return
    shown = f"the one shown is for: {', '.join(roles)}" if roles else "the one shown names no role"
    able = ["an administrator", *(_WORDS[role] for role in _METHODS if method in _METHODS[role])]
    raise NotAuthorized(f"{method} needs the certificate of {' or '.join(able)}, and {shown}")


def _allows(roles: list[str], method: str) -> bool:
    return any(method in _METHODS.get(role, ()) for role in roles)


def owner(shown: Mapping[str, Any]) -> str:
    """Return the owner of the jobs that a client creates: the name in its certificate, or ""."""
    name = tls.name(shown)
    return name if name.isprintable() and len(name) <= _LONGEST_NAME else ""


def confined_to(shown: Mapping[str, Any], method: str) -> str | None:
    """Return the owner whose jobs alone a client may reach with `method`, or None for all jobs.

    Raises NotAuthorized if the client is a user without a usable name.
    """
    roles = tls.roles(shown)
    others = [role for role in roles if role != tls.USER]
    if tls.USER not in roles or tls.ADMIN in roles:
        return None
    if _allows(others, method):
        return None
    if name := owner(shown):
        return name
    raise NotAuthorized(
        f"a user's certificate needs a common name, of 1 to {_LONGEST_NAME} printable characters: "
        "jobs belong to names"
    )
