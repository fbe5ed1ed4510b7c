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
    UsageError,
)

_CODES: tuple[tuple[type[InnetError], grpc.StatusCode], ...] = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotAuthorized, grpc.StatusCode.PERMISSION_DENIED),
    (NoCapacity, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SwitchError, grpc.StatusCode.ABORTED),
    (ControllerUnreachable, grpc.StatusCode.UNAVAILABLE),
    (ControllerError, grpc.StatusCode.FAILED_PRECONDITION),
)


def code_of(problem: InnetError) -> grpc.StatusCode:
    """The code under which an error travels."""
    return next(
        (code for kind, code in _CODES if isinstance(problem, kind)), grpc.StatusCode.UNKNOWN
    )


def error_of(code: grpc.StatusCode, message: str) -> InnetError:
    """The error that travelled under a code."""
    kind = next((kind for kind, each in _CODES if each == code), ControllerError)
    return kind(message)
