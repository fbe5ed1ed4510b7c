"""A gRPC interceptor that refuses requests that cannot be parsed.

When gRPC for Python fails to parse a request, it never ends the call. The call then holds one of the
connection's streams, whose number is limited. So parsing never fails here: the handler gets a marker
instead of the request and refuses it with INVALID_ARGUMENT.
"""

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from innet.errors import UsageError

_NONSENSE = object()
_WHY = "what was sent is no message of this service"


class ParsingInterceptor(grpc.ServerInterceptor):
    """An interceptor that lets no request fail while it is parsed."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler that refuses requests that could not be parsed."""
        handler = continuation(details)
        if handler is None:  # no such method
            return None
        parse = _tolerant(handler.request_deserializer)
        for kind, guard in _GUARDS.items():
            if behaviour := getattr(handler, kind):
                handler = handler._replace(**{kind: guard(behaviour)})
        return handler._replace(request_deserializer=parse)


def _tolerant(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parsed(content: bytes) -> Any:
        try:
            return parse(content)
        except Exception:  # noqa: BLE001 - whatever it is
            return _NONSENSE

    return parsed


def _refusing(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        if request is _NONSENSE:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, _WHY)
        return behaviour(request, context)

    return answer


def _reading(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(requests: Iterator[Any], context: Any) -> Any:
        return behaviour(_readable(requests), context)

    return answer


def _readable(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        if request is _NONSENSE:
            raise UsageError(_WHY)
        yield request


_GUARDS = {
    "unary_unary": _refusing,
    "unary_stream": _refusing,
    "stream_unary": _reading,
    "stream_stream": _reading,
}
