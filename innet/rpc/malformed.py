"""A gRPC interceptor that answers requests whose parser raises an error.

When the parser of a request raises an error, gRPC for Python never ends the call. The call then holds
one of the connection's streams, whose number is limited. gRPC also parses a request before it calls any
handler. So a client that is going to be refused could keep a server busy. Therefore gRPC gets no parser
here: the method's handler parses the request, behind the checks of the interceptors in front.
"""

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from innet.rpc.status import Refusal

_Parse = Callable[[bytes], Any]
_Behaviour = Callable[[Any, Any], Any]
_MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that protobuf raises for bytes that are no message."""


class ParsingInterceptor(grpc.ServerInterceptor):
    """An interceptor that parses requests in the handler, and not before.

    The interceptors in front of this one get the bytes of requests, and those behind it get messages. The
    handler raises the error of a parser; in a stream, the iterator of the requests raises it. The
    outermost interceptor has to answer innet's errors, such as :class:`~innet.rpc.status.Refusal`. A
    handler that is an asynchronous generator gets an asynchronous iterator.
    """

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler that refuses requests that cannot be parsed."""
        handler = continuation(details)
        if handler is None:  # no such method
            return None
        parse = _refusing(handler.request_deserializer)
        for kind, parsing in _PARSING.items():
            if behaviour := getattr(handler, kind):
                handler = handler._replace(**{kind: parsing(behaviour, parse)})
        return handler._replace(request_deserializer=None)


def _refusing(parse: _Parse) -> _Parse:
    """Return a parser that raises Refusal for what is no message."""

    def parsed(content: bytes) -> Any:
        try:
            return parse(content)
        except _MALFORMED:
            why = "what was sent is no message of this service"
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, why) from None

    return parsed


def _parsing_one(behaviour: _Behaviour, parse: _Parse) -> _Behaviour:
    def answer(content: bytes, context: Any) -> Any:
        return behaviour(parse(content), context)

    return answer


def _parsing_stream(behaviour: _Behaviour, parse: _Parse) -> _Behaviour:
    async def answer_async(contents: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        async def parsed() -> AsyncIterator[Any]:  # an expression would begin to read at once
            async for each in contents:
                yield parse(each)

        async with contextlib.aclosing(behaviour(parsed(), context)) as answers:
            async for each in answers:
                yield each

    def answer(contents: Iterator[bytes], context: Any) -> Any:
        return behaviour(map(parse, contents), context)

    return answer_async if inspect.isasyncgenfunction(behaviour) else answer


_PARSING = {
    "unary_unary": _parsing_one,
    "unary_stream": _parsing_one,
    "stream_unary": _parsing_stream,
    "stream_stream": _parsing_stream,
}
