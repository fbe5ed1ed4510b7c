"""A check of requests before they are parsed, for requests that are costly to parse.

Parsing a message takes much more time and memory than receiving it. A request that only the primary
may make is therefore parsed only if it has the primary's election id. Other requests must be short.
"""

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from innet.switch.p4runtime.arbitration import Arbitration
from innet.switch.p4runtime.refusal import Refusal, invalid

MOST_BYTES = 64 << 20
"""The most bytes of a message from the primary."""

MOST_BYTES_OF_OTHERS = 1 << 20
MOST_INFO = 2 << 20
"""The most bytes of a P4Info."""

_SERVICE = "/p4.v1.P4Runtime/"
_PRIMARY = frozenset({"Write", "SetForwardingPipelineConfig"})
_FIXED64 = 1
# Field numbers, which WriteRequest and SetForwardingPipelineConfigRequest have in common.
_DEVICE, _ELECTION, _CONFIG, _ROLE = 1, 3, 5, 6
_HIGH, _LOW = 1, 2
_INFO = 1

Parse = Callable[[bytes], Any]


class AdmissionInterceptor(grpc.ServerInterceptor):
    """An interceptor that refuses requests which are not to be parsed."""

    def __init__(self, arbitration: Arbitration) -> None:
        self._arbitration = arbitration

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Put a check in front of a method's parser."""
        handler = continuation(details)
        if handler is None:
            return None
        of_primary = details.method.removeprefix(_SERVICE) in _PRIMARY
        check = self._check_primary if of_primary else _check_size
        parse = _checked(handler.request_deserializer, check)
        kind = next(kind for kind in _GUARDS if getattr(handler, kind))
        guarded = _GUARDS[kind](getattr(handler, kind))
        return handler._replace(request_deserializer=parse, **{kind: guarded})

    def _check_primary(self, content: bytes) -> None:
        found = dict(_fields(memoryview(content)))
        election = dict(_fields(found.get(_ELECTION, b"")))
        number = election.get(_HIGH, 0) << 64 | election.get(_LOW, 0)
        role = bytes(found.get(_ROLE, b"")).decode()
        self._arbitration.check_primary(found.get(_DEVICE, 0), role, number)
        config = found.get(_CONFIG, 0)
        info = 0 if isinstance(config, int) else len(dict(_fields(config)).get(_INFO, b""))
        if info > MOST_INFO:
            raise invalid(f"the P4Info has {info} bytes: {MOST_INFO} are the most")


def _check_size(content: bytes) -> None:
    if len(content) > MOST_BYTES_OF_OTHERS:
        raise Refusal(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"the message has {len(content)} bytes: {MOST_BYTES_OF_OTHERS} are the most",
        )


def _fields(content: Any) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a message's fields. Raises IndexError and ValueError."""
    value: Any
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        match key & 7:
            case 0:
                value, at = _varint(content, at)
            case 2:
                size, at = _varint(content, at)
                value, at = content[at : at + size], at + size
            case 1 | 5 as kind:
                value, at = 0, at + (8 if kind == _FIXED64 else 4)
            case kind:
                raise ValueError(kind)
        yield key >> 3, value


def _varint(content: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(value)


def _checked(parse: Parse, check: Callable[[bytes], None]) -> Parse:
    def parsed(content: bytes) -> Any:
        try:
            check(content)
        except Refusal as refusal:
            return refusal
        return parse(content)

    return parsed


def _refusing(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        if isinstance(request, Refusal):
            context.abort(request.code, str(request))
        return behaviour(request, context)

    return answer


def _reading(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(requests: Iterator[Any], context: Any) -> Any:
        return behaviour(_readable(requests), context)

    return answer


def _readable(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        if isinstance(request, Refusal):
            raise request
        yield request


_GUARDS = {"unary_unary": _refusing, "unary_stream": _refusing, "stream_stream": _reading}
