"""How the P4Runtime service says no: a gRPC status code and a sentence."""

import grpc

from innet.errors import InnetError


class Refusal(InnetError):
    """A P4Runtime request, or one update of it, that the switch does not carry out."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def number(self) -> int:
        """The code as google.rpc.Code numbers it."""
        return int(self.code.value[0])


def invalid(message: str) -> Refusal:
    """The request makes no sense."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> Refusal:
    """What the request is about does not exist."""
    return Refusal(grpc.StatusCode.NOT_FOUND, message)


def already_exists(message: str) -> Refusal:
    """What the request would make exists."""
    return Refusal(grpc.StatusCode.ALREADY_EXISTS, message)


def forbidden(message: str) -> Refusal:
    """Not to be changed, or not by this client."""
    return Refusal(grpc.StatusCode.PERMISSION_DENIED, message)


def unsupported(message: str) -> Refusal:
    """The switch does not have this."""
    return Refusal(grpc.StatusCode.UNIMPLEMENTED, message)
