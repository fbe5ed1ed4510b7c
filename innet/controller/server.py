"""Serving the controller."""

from concurrent import futures

import grpc

from innet.controller import innet_pb2_grpc as rpc
from innet.controller.registry import Registry
from innet.controller.service import ControllerService
from innet.errors import UsageError

_THREADS = 1024  # one for every worker, whose stream stays open, and some for requests


class ControllerServer:
    """A running controller; `port` is the TCP port that it serves.

    `address` is ``host:port``; port 0 picks a free one. Raises UsageError if the port is in use.
    """

    def __init__(self, address: str) -> None:
        self._registry = Registry()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="innet-controller"),
            options=[
                ("grpc.so_reuseport", 0),
                # Notice within a minute that a worker's machine has died.
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 20_000),
            ],
        )
        rpc.add_ControllerServicer_to_server(ControllerService(self._registry), self._server)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise UsageError(f"cannot serve at {address}: is the port in use?")
        self._server.start()

    def close(self) -> None:
        """Stop serving, and let go of the switches."""
        self._registry.close()
        self._server.stop(grace=0.5).wait()
