"""The border between gRPC's servers and innet's handlers.

gRPC's asyncio server frees a call as soon as the client has cancelled it or its deadline has passed, also
while a thread still works on it. If the thread then asks the call's context for the certificate or the
address of the client, the process crashes. So handlers on the asyncio server do not get the context.
:class:`CallsInterceptor` alone uses it, on the event loop and while the call goes on. Handlers and the
interceptors behind it get a :class:`~innet.rpc.callers.Caller`, and raise innet's errors.

Handlers of one message are plain functions, which run in threads. Handlers of streams are asynchronous
generators, and run on the event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import grpc

from innet.errors import InnetError
from innet.rpc.callers import Caller
from innet.rpc.status import code_of

_Behaviour = Callable[[Any, Any], Any]


def _concerns_operators(record: logging.LogRecord) -> bool:
    """Return whether gRPC logs something else than that a call had ended before its answer was sent."""
    problem = record.exc_info[1] if record.exc_info else None
    return type(problem).__name__ != "ExecuteBatchError"  # gRPC has no public name for it


# Clients cause this error whenever they like, and gRPC would log it with a traceback.
logging.getLogger("grpc._cython.cygrpc").addFilter(_concerns_operators)


class CallsInterceptor(grpc.aio.ServerInterceptor):
    """The only code of an asyncio server that uses gRPC's contexts.

    It runs handlers of one message in threads of `pool`, and answers innet's errors with their status
    codes. The interceptors `inner` are written as for gRPC's synchronous server, and wrap handlers that
    get a :class:`~innet.rpc.callers.Caller` instead of a context.
    """

    def __init__(self, pool: Executor, inner: Sequence[grpc.ServerInterceptor] = ()) -> None:
        self._pool, self._inner = pool, inner

    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler for gRPC, made of one that knows nothing of gRPC's contexts."""
        handler = await continuation(details)
        for each in reversed(self._inner):
            handler = each.intercept_service(lambda _, inner=handler: inner, details)
        return wrapped(handler, self._unary, _stream)

    def _unary(self, behaviour: _Behaviour) -> _Behaviour:
        async def answer(request: Any, context: Any) -> Any:
            caller, loop = Caller.of(context), asyncio.get_running_loop()
            try:
                # If the call ends meanwhile, the thread goes on, and this coroutine is cancelled.
                return await loop.run_in_executor(self._pool, behaviour, request, caller)
            except InnetError as problem:
                await context.abort(code_of(problem), str(problem))

        return answer


class AnsweringInterceptor(grpc.ServerInterceptor):
    """An interceptor that answers innet's errors with their status codes, on a synchronous server.

    Handlers of streams in the client's direction have to answer for themselves.
    """

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler that raises no error of innet when it is called."""
        handler = continuation(details)
        for kind in ("unary_unary", "unary_stream"):
            if behaviour := getattr(handler, kind, None):
                return handler._replace(**{kind: _answered(behaviour)})
        return handler


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


def _stream(behaviour: _Behaviour) -> _Behaviour:
    # A coroutine and no generator: gRPC cancels it, and so all is closed before the call is freed.
    async def answer(requests: Any, context: Any) -> None:
        try:
            async with contextlib.aclosing(behaviour(requests, Caller.of(context))) as answers:
                async for each in answers:
                    await context.write(each)
        except InnetError as problem:
            await context.abort(code_of(problem), str(problem))

    return answer


def _answered(behaviour: _Behaviour) -> _Behaviour:
    def answer(request: Any, context: Any) -> Any:
        try:
            return behaviour(request, context)
        except InnetError as problem:
            context.abort(code_of(problem), str(problem))

    return answer
