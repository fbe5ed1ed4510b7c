"""Authorization: the role in a client's certificate decides which methods it may call.

A worker may join jobs, and nothing else. An administrator may call every method. The controller's own
certificate may read: the controller's web page, a process of its own, asks with it.
"""

from collections.abc import Callable
from typing import Any

import grpc

from innet.errors import NotAuthorized
from innet.rpc import tls
from innet.rpc.status import code_of

_WORKERS_METHODS = frozenset({"Join", "CheckJoin"})
_READING_METHODS = frozenset({"ListSwitches", "GetSwitch", "ListJobs", "GetJob", "GetJobHistory"})
_MAY = {tls.WORKER: _WORKERS_METHODS, tls.CONTROLLER: _READING_METHODS}
_STYLES = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class RoleInterceptor(grpc.ServerInterceptor):
    """The check that refuses a call before the service sees it, if the client's role forbids it."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put the check in front of a method's handler."""
        handler = continuation(details)
        method = details.method.rpartition("/")[2]
        for style in _STYLES:
            if behaviour := getattr(handler, style, None):
                # Only the handler is given the context that knows the certificate.
                return handler._replace(**{style: _guarded(method, behaviour)})
        return handler


def check_allowed(roles: list[str], method: str) -> None:
    """Raise NotAuthorized unless one of a client's `roles` allows `method`."""
    if tls.ADMIN in roles or any(method in _MAY.get(role, ()) for role in roles):
        return
    shown = f"the one shown is for: {', '.join(roles)}" if roles else "the one shown names no role"
    needed = "a worker" if method in _WORKERS_METHODS else "an administrator"
    raise NotAuthorized(f"{method} needs the certificate of {needed}, and {shown}")


def _guarded(method: str, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(request: Any, context: Any) -> Any:
        try:
            check_allowed(tls.roles(context.auth_context()), method)
        except NotAuthorized as problem:
            context.abort(code_of(problem), str(problem))
        return behaviour(request, context)

    return checked
