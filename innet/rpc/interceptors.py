"""Interceptors on gRPC's asyncio server.

An interceptor for gRPC's synchronous server wraps a method's handler in a function. It also works on the
asyncio server, if it wraps each handler in a function of the same kind. On innet's asyncio servers, unary
handlers are plain functions, which the server calls in a thread pool. Handlers of streams are
asynchronous generators.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from innet.errors import InnetError
from innet.rpc.status import code_of

_Behaviour = Callable[[Any, Any], Any]


class OnAsyncServer(grpc.aio.ServerInterceptor):
    """An adapter with which an asyncio server uses an `interceptor` for gRPC's synchronous server."""

    def __init__(self, interceptor: grpc.ServerInterceptor) -> None:
        self._interceptor = interceptor

    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler, wrapped by the interceptor."""
        handler = await continuation(details)
        return self._interceptor.intercept_service(lambda _: handler, details)


class AnsweringInterceptor(grpc.ServerInterceptor):
    """An interceptor that answers innet's errors with their status codes, on an asyncio server."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler that raises no error of innet."""
        return wrapped(continuation(details), _answered, _answered_stream)


def wrapped(
    handler: Any,
    unary: Callable[[_Behaviour], _Behaviour],
    stream: Callable[[_Behaviour], _Behaviour],
) -> Any:
    """Return a method's handler with its behaviour wrapped by `unary` or `stream`, or None for no method.

    The controller's methods take one message and answer with one, or have two streams. Raises TypeError
    for others, so that no method can bypass an interceptor.
    """
    match handler and (handler.request_streaming, handler.response_streaming):
        case None:
            return None
        case False, False:
            return handler._replace(unary_unary=unary(handler.unary_unary))
        case True, True:
            return handler._replace(stream_stream=stream(handler.stream_stream))
    raise TypeError("a method with a stream in one direction only")


def _answered(behaviour: _Behaviour) -> _Behaviour:
    def answer(request: Any, context: Any) -> Any:
        try:
            return behaviour(request, context)
        except InnetError as problem:
            context.abort(code_of(problem), str(problem))

    return answer


def _answered_stream(behaviour: _Behaviour) -> _Behaviour:
    async def answer(requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for each in behaviour(requests, context):
                yield each
        except InnetError as problem:
            await context.abort(code_of(problem), str(problem))

    return answer
