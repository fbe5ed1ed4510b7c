"""Talking to the controller."""

import contextlib
from collections.abc import Iterator

import grpc

from innet.controller import innet_pb2_grpc as rpc
from innet.controller.status import error_of
from innet.errors import ControllerUnreachable

DEFAULT_ADDRESS = "127.0.0.1:9600"
CONNECT_WITHIN = 5.0


def connect(
    address: str, timeout: float = CONNECT_WITHIN
) -> tuple[grpc.Channel, rpc.ControllerStub]:
    """Connect to the controller at ``host:port``. Close the channel when done.

    Raises ControllerUnreachable if nobody answers within `timeout` seconds.
    """
    # A proxy that is set for the web is not for this.
    channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
    try:
        grpc.channel_ready_future(channel).result(timeout)
    except grpc.FutureTimeoutError:
        channel.close()
        raise ControllerUnreachable(
            f"no controller answers at {address}: start one with `innet controller`, "
            "or name another address"
        ) from None
    return channel, rpc.ControllerStub(channel)


@contextlib.contextmanager
def translated(purpose: str) -> Iterator[None]:
    """Turn gRPC's errors into innet's; `purpose` ends the sentence "cannot ..."."""
    try:
        yield
    except grpc.RpcError as problem:
        code, details = problem.code(), problem.details() or problem.code().name
        if code == grpc.StatusCode.UNAVAILABLE:
            details = f"the controller does not answer ({details})"
        raise error_of(code, f"cannot {purpose}: {details}") from None
