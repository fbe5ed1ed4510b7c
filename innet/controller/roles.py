"""The check of roles in front of the service. A revoked certificate allows nothing.

:mod:`innet.rpc.roles` has the rules.
"""

from collections.abc import Callable
from typing import Any

import grpc

from innet.errors import NotAuthorized
from innet.rpc import tls
from innet.rpc.revocation import Revocations
from innet.rpc.roles import check_allowed
from innet.rpc.status import code_of

_STYLES = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_Behaviour = Callable[[Any, Any], Any]


class RoleInterceptor(grpc.ServerInterceptor):
    """The check that refuses a call before the service sees it, if the client may not make it."""

    def __init__(self, revocations: Revocations) -> None:
        self._revocations = revocations

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put the check in front of a method's handler."""
        handler = continuation(details)
        method = details.method.rpartition("/")[2]
        for style in _STYLES:
            if behaviour := getattr(handler, style, None):
                # Only the handler is given the context that knows the certificate.
                return handler._replace(**{style: self._guarded(method, behaviour)})
        return handler

    def _guarded(self, method: str, behaviour: _Behaviour) -> _Behaviour:
        def checked(request: Any, context: Any) -> Any:
            try:
                shown = context.auth_context()
                self._revocations.check(shown)
                check_allowed(tls.roles(shown), method)
            except NotAuthorized as problem:
                context.abort(code_of(problem), str(problem))
            return behaviour(request, context)

        return checked
