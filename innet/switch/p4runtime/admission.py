"""A check of requests before they are parsed, for requests that are costly to parse.

Parsing a message takes much more time and memory than receiving it. A request that only the primary
may make is therefore parsed only if it has the primary's election id. Other requests must be short.
"""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from innet.switch.p4runtime.arbitration import Arbitration
from innet.switch.p4runtime.refusals import exhausted, invalid

MAX_BYTES = 64 << 20
"""The most bytes of a message from the primary."""

MAX_BYTES_OF_OTHERS = 1 << 20
MAX_INFO_BYTES = 2 << 20
"""The most bytes of a P4Info."""

MAX_UPDATES = 1 << 16
"""The most updates of one write."""

MAX_ENTITIES = 1 << 14
"""The most entities that one read asks for. Those that match are bounded by the tables."""

_SERVICE = "/p4.v1.P4Runtime/"
# Field numbers, which WriteRequest and SetForwardingPipelineConfigRequest have in common.
_DEVICE, _ELECTION, _ROLE = 1, 3, 6
_HIGH, _LOW = 1, 2
# Field numbers of SetForwardingPipelineConfigRequest and its configuration.
_CONFIG, _INFO = 5, 1
_UPDATES = 4  # of WriteRequest
_ENTITIES = 2  # of ReadRequest


class AdmissionInterceptor(grpc.ServerInterceptor):
    """An interceptor that puts a check in front of each method's parser. The check raises Refusal.

    The interceptor in front of this one has to turn a raised Refusal into the answer to the client.
    """

    def __init__(self, arbitration: Arbitration) -> None:
        self._arbitration = arbitration

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return a method's handler with a check in its parser."""
        handler = continuation(details)
        if handler is None:
            return None
        checks = {
            "Write": self._check_write,
            "Read": _check_read,
            "SetForwardingPipelineConfig": self._check_pipeline,
        }
        check = checks.get(details.method.removeprefix(_SERVICE), _check_size)
        parse = handler.request_deserializer

        def parsed(content: bytes) -> Any:
            check(content)
            return parse(content)

        return handler._replace(request_deserializer=parsed)

    def _check_primary(self, content: bytes) -> None:
        request = _Fields(content)
        election = _Fields(request.content(_ELECTION))
        number = election.number(_HIGH) << 64 | election.number(_LOW)
        role = bytes(request.content(_ROLE)).decode()
        self._arbitration.check_primary(request.number(_DEVICE), role, number)

    def _check_write(self, content: bytes) -> None:
        self._check_primary(content)
        _check_count(content, _UPDATES, MAX_UPDATES, "updates")

    def _check_pipeline(self, content: bytes) -> None:
        self._check_primary(content)
        # A message that is there more than once is the sum of its parts.
        configs = _contents(memoryview(content), _CONFIG)
        size = sum(len(info) for config in configs for info in _contents(config, _INFO))
        if size > MAX_INFO_BYTES:
            raise invalid(f"the P4Info has {size} bytes: {MAX_INFO_BYTES} are the most")


def _check_size(content: bytes) -> None:
    if len(content) > MAX_BYTES_OF_OTHERS:
        size = len(content)
        raise exhausted(f"the message has {size} bytes: {MAX_BYTES_OF_OTHERS} are the most")


def _check_read(content: bytes) -> None:
    _check_size(content)
    _check_count(content, _ENTITIES, MAX_ENTITIES, "entities")


def _check_count(content: bytes, field: int, most: int, what: str) -> None:
    """Raise Refusal if a message has too many parts. An empty one has 2 bytes, and 1 KB in memory."""
    count = sum(1 for _ in _contents(memoryview(content), field))
    if count > most:
        raise exhausted(
            f"the request has {count} {what}, and {most} are the most: send several requests"
        )


class _Fields:
    """The fields of a message on the wire. A repeated field has its last value. Raises DecodeError."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._values = dict(_fields(memoryview(content)))

    def number(self, field: int) -> int:
        """Return an integer, or 0 if it is missing."""
        value = self._values.get(field, 0)
        if not isinstance(value, int):
            raise DecodeError(field)
        return value

    def content(self, field: int) -> memoryview:
        """Return the bytes of a string or an inner message, or none if it is missing."""
        value = self._values.get(field, memoryview(b""))
        if not isinstance(value, memoryview):
            raise DecodeError(field)
        return value


def _contents(content: memoryview, field: int) -> Iterator[memoryview]:
    """Yield the bytes of a field, as often as a message has it."""
    for number, value in _fields(content):
        if number == field and isinstance(value, memoryview):
            yield value


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the numbers and values of a message's fields. Numbers of a fixed size count as 0."""
    value: int | memoryview
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        match key & 7:  # the wire type
            case 0:  # a varint
                value, at = _varint(content, at)
            case 2:  # bytes behind their length
                size, at = _varint(content, at)
                value, at = content[at : at + size], at + size
            case 1:  # fixed64
                value, at = 0, at + 8
            case 5:  # fixed32
                value, at = 0, at + 4
            case kind:
                raise DecodeError(kind)
        yield key >> 3, value


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise DecodeError(at)
