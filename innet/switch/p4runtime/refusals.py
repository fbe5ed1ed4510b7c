"""The refusals of the P4Runtime service, by kind."""

import grpc

from innet.rpc.status import Refusal


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


def exhausted(message: str) -> Refusal:
    """Return a refusal of a request for more than there is room for."""
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def out_of_range(message: str) -> Refusal:
    """Return a refusal of a number that is too small or too large."""
    return Refusal(grpc.StatusCode.OUT_OF_RANGE, message)


def failed_precondition(message: str) -> Refusal:
    """Return a refusal of a request that needs something else to be done first."""
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
