"""The clients' connection to the controller."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import grpc

from innet.errors import ControllerUnreachable, NotAuthorized
from innet.rpc import channels, tls
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.addresses import check_address
from innet.rpc.status import error_of

DEFAULT_ADDRESS = "127.0.0.1:9600"
CONNECT_WITHIN = 5.0
_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # ignore a proxy that is configured for the web
    ("grpc.max_reconnect_backoff_ms", 1000),  # find a restarted controller soon
    ("grpc.max_receive_message_length", -1),  # thousands of workers take more than the usual 4 MiB
)
_NO_ANSWER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,  # the controller stops
)
_CONTROLLER_WITHOUT_TLS = "start it with --tls, or leave --tls and INNET_TLS out here"
_CLIENT_WITHOUT_TLS = "name the folder with the certificates, with --tls or INNET_TLS"


def connect(
    address: str, timeout: float = CONNECT_WITHIN, identity: tls.Identity | None = None
) -> tuple[grpc.Channel, rpc.ControllerStub]:
    """Connect to the controller at ``host:port``, over TLS with an `identity`, in plain text without one.

    The caller has to close the channel. `address` may name several controllers, separated by commas: the
    one that answers first counts. A stand-by controller does not answer.

    Raises UsageError for an address that is none, ControllerUnreachable if nobody answers within
    `timeout` seconds, and NotAuthorized if the certificates are missing or wrong.
    """
    opened = {each: channels.channel(each, identity, _CHANNEL_OPTIONS) for each in named(address)}
    advice = _CONTROLLER_WITHOUT_TLS if identity else _CLIENT_WITHOUT_TLS
    ready = ""
    try:
        ready = channels.await_ready(opened, identity, timeout, advice)
    except NotAuthorized as problem:
        raise NotAuthorized(f"the controller at {address} {problem}") from None
    except TimeoutError:
        raise ControllerUnreachable(
            f"no controller answers at {address}: start one with `innet controller`, "
            "or name another address"
        ) from None
    finally:
        for each, channel in opened.items():
            if each != ready:
                channel.close()
    return opened[ready], rpc.ControllerStub(opened[ready])


def named(addresses: str) -> list[str]:
    """Return the controllers' addresses in a list that is separated by commas. Raises UsageError."""
    found = [each.strip() for each in addresses.split(",") if each.strip()] or [addresses]
    for each in found:
        check_address(each, "the controller's address")
    return found


@contextlib.contextmanager
def connected(
    address: str, tls_folder: Path | None, timeout: float = CONNECT_WITHIN
) -> Iterator[rpc.ControllerStub]:
    """Connect an operator's command to the controller, with TLS if a folder is given.

    Raises UsageError if the folder's certificates cannot be used, and the errors of :func:`connect`.
    """
    identity = tls.load_operator(tls_folder) if tls_folder else None
    channel, stub = connect(address, timeout, identity)
    with contextlib.closing(channel):
        yield stub


@contextlib.contextmanager
def translated(purpose: str) -> Iterator[None]:
    """Turn gRPC's errors into innet's. `purpose` ends the sentence "cannot ..."."""
    try:
        yield
    except grpc.RpcError as problem:
        code, details = problem.code(), problem.details() or problem.code().name
        if code in _NO_ANSWER:
            code = grpc.StatusCode.UNAVAILABLE
            details = f"the controller does not answer ({details})"
        raise error_of(code, f"cannot {purpose}: {details}") from None


@contextlib.contextmanager
def created_job(
    stub: rpc.ControllerStub, request: pb.CreateJobRequest
) -> Iterator[pb.CreateJobResponse]:
    """Create a job, and yield the answer to a block that keeps its token.

    If the block raises an error, delete the job, because no worker could join it.
    """
    answer: pb.CreateJobResponse = stub.CreateJob(request)
    try:
        yield answer
    except BaseException:
        stub.DeleteJob(pb.DeleteJobRequest(name=request.name))
        raise


def write_token(secret: IO[str], token: str) -> None:
    """Write the token of a new job to a file at once. Raises OSError."""
    secret.write(token + "\n")
    secret.flush()
