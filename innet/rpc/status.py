"""innet's errors as gRPC status codes and back: a client raises what the controller raised."""

import grpc

from innet.errors import (
    AlreadyExists,
    ControllerError,
    ControllerUnreachable,
    InnetError,
    NoCapacity,
    NotAuthorized,
    NotFound,
    SwitchError,
    SwitchOffline,
    UsageError,
)
from innet.terminal.console import one_line


class Refusal(InnetError):
    """A request that a server does not carry out, with the status code of the answer."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def number(self) -> int:
        """Return the code's number in google.rpc.Code."""
        return int(self.code.value[0])


_CODES: tuple[tuple[type[InnetError], grpc.StatusCode], ...] = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotAuthorized, grpc.StatusCode.PERMISSION_DENIED),
    (NoCapacity, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SwitchOffline, grpc.StatusCode.OUT_OF_RANGE),  # a code that nothing else uses
    (SwitchError, grpc.StatusCode.ABORTED),
    (ControllerUnreachable, grpc.StatusCode.UNAVAILABLE),
    (ControllerError, grpc.StatusCode.FAILED_PRECONDITION),
)


def code_of(problem: InnetError) -> grpc.StatusCode:
    """Return the status code that stands for an error."""
    if isinstance(problem, Refusal):
        return problem.code
    return next(
        (code for kind, code in _CODES if isinstance(problem, kind)), grpc.StatusCode.UNKNOWN
    )


def error_of(code: grpc.StatusCode, message: str) -> InnetError:
    """Return the error that a status code stands for. Its message is in one line."""
    kind = next((kind for kind, each in _CODES if each == code), ControllerError)
    return kind(one_line(message))
