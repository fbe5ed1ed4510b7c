"""A gRPC interceptor that answers requests whose parser raises an error.

When the parser of a request raises an error, gRPC for Python never ends the call. The call then holds
one of the connection's streams, whose number is limited. So parsing never fails here: the error takes
the request's place, and is raised by the method's handler.
"""

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from innet.rpc.status import Refusal

_MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that protobuf raises for bytes that are no message."""


class ParsingInterceptor(grpc.ServerInterceptor):
    """An interceptor that lets no request fail while it is parsed.

    The error of a parser is raised in the handler's place. In a stream, the iterator of the requests
    raises it. The interceptor in front of this one has to answer innet's errors, such as
    :class:`~innet.rpc.status.Refusal`. A handler that is an asynchronous generator gets an asynchronous
    iterator.
    """

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler that refuses requests that could not be parsed."""
        handler = continuation(details)
        if handler is None:  # no such method
            return None
        for kind, guard in _GUARDS.items():
            if behaviour := getattr(handler, kind):
                handler = handler._replace(**{kind: guard(behaviour)})
        return handler._replace(request_deserializer=_guarded(handler.request_deserializer))


def _guarded(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parsed(content: bytes) -> Any:
        try:
            return parse(content)
        except _MALFORMED:
            why = "what was sent is no message of this service"
            return Refusal(grpc.StatusCode.INVALID_ARGUMENT, why)
        except Exception as error:  # noqa: BLE001 - the handler raises it again
            return error

    return parsed


def _refusing(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        if isinstance(request, Exception):
            raise request
        return behaviour(request, context)

    return answer


def _reading(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    async def answer_async(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async with contextlib.aclosing(behaviour(_readable_async(requests), context)) as answers:
            async for each in answers:
                yield each

    def answer(requests: Iterator[Any], context: Any) -> Any:
        return behaviour(_readable(requests), context)

    return answer_async if inspect.isasyncgenfunction(behaviour) else answer


def _readable(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        if isinstance(request, Exception):
            raise request
        yield request


async def _readable_async(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if isinstance(request, Exception):
            raise request
        yield request


_GUARDS = {
    "unary_unary": _refusing,
    "unary_stream": _refusing,
    "stream_unary": _reading,
    "stream_stream": _reading,
}
