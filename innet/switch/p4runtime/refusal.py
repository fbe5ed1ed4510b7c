"""The error of the P4Runtime service: a gRPC status code and a sentence."""

import grpc

from innet.errors import InnetError


class Refusal(InnetError):
    """A P4Runtime request, or one update of it, that the switch does not carry out."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def number(self) -> int:
        """Return the code's number in google.rpc.Code."""
        return int(self.code.value[0])


def invalid(message: str) -> Refusal:
    """Return a refusal of a request that makes no sense."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> Refusal:
    """Return a refusal of a request about something that does not exist."""
    return Refusal(grpc.StatusCode.NOT_FOUND, message)


def already_exists(message: str) -> Refusal:
    """Return a refusal of a request to create something that exists."""
    return Refusal(grpc.StatusCode.ALREADY_EXISTS, message)


def forbidden(message: str) -> Refusal:
    """Return a refusal of a change that nobody may make, or not this client."""
    return Refusal(grpc.StatusCode.PERMISSION_DENIED, message)


def unsupported(message: str) -> Refusal:
    """Return a refusal of a request for something that the switch does not have."""
    return Refusal(grpc.StatusCode.UNIMPLEMENTED, message)
