"""Answering what is no message at all.

gRPC for Python keeps a call on which it could not parse a request for ever, and with it a stream of the
connection, of which there are so many. So nothing may fail there; what could not be parsed is refused
as everything else is.
"""

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from innet.errors import UsageError

_NONSENSE = object()
_WHY = "what was sent is no message of this service"


class ParsingInterceptor(grpc.ServerInterceptor):
    """Lets no request fail to be parsed."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Make a method's handler see what could not be parsed."""
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
