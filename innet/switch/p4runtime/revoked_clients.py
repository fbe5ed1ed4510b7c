"""A check of every call's certificate against the list of revoked ones, which gRPC does not know."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import structlog

from innet.errors import NotAuthorized
from innet.rpc import tls
from innet.rpc.callers import Caller
from innet.rpc.revocation import Revocations
from innet.rpc.status import code_of
from innet.telemetry.sparse import SparseWarnings

_LOOK_EVERY = 1.0
_Behaviour = Callable[[Any, Any], Any]
_log = structlog.get_logger("innet.switch")


class RevocationInterceptor(grpc.ServerInterceptor):
    """An interceptor that refuses calls with a revoked certificate, and cancels their open streams.

    It looks at the list at every call, and once a second while a stream is open. The interceptor in front
    of this one has to answer NotAuthorized.
    """

    def __init__(self, revocations: Revocations) -> None:
        self._revocations, self._refusals = revocations, SparseWarnings(_log)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put the check in front of a method's handler."""
        handler = continuation(details)
        for style, guard in {
            "unary_unary": self._guarded,
            "unary_stream": self._guarded,
            "stream_stream": self._watched,
        }.items():
            if behaviour := getattr(handler, style, None):
                return handler._replace(**{style: guard(behaviour)})
        return handler

    def _guarded(self, behaviour: _Behaviour) -> _Behaviour:
        def checked(request: Any, context: Any) -> Any:
            self._check(Caller.of(context))
            return behaviour(request, context)

        return checked

    def _watched(self, behaviour: _Behaviour) -> _Behaviour:
        def checked(requests: Any, context: Any) -> Iterator[Any]:
            caller = Caller.of(context)
            try:
                self._check(caller)
            except NotAuthorized as problem:
                context.abort(code_of(problem), str(problem))
            ended = threading.Event()
            if context.add_callback(ended.set):
                threading.Thread(
                    target=self._watch,
                    args=(caller, context.cancel, ended),
                    name="innet-revoked",
                    daemon=True,
                ).start()
            yield from behaviour(requests, context)

        return checked

    def _check(self, caller: Caller) -> None:
        try:
            self._revocations.check(caller.shown)
        except NotAuthorized as problem:
            who = tls.name(caller.shown)
            self._refusals.warn("refused", who=who, peer=caller.peer, why=str(problem))
            raise

    def _watch(self, caller: Caller, cancel: Callable[[], None], ended: threading.Event) -> None:
        """Cancel a stream when its certificate is revoked. The client learns why at its next call."""
        while not ended.wait(_LOOK_EVERY):
            try:
                self._check(caller)
            except NotAuthorized:
                cancel()
                return
