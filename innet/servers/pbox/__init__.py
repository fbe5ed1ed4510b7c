"""A parameter server that sums gradients, or also runs the optimizer, without any switch.

It follows PHub and PBox (Luo et al., "Parameter Box", 2018). A server can run in a process of its
own (``innet pbox serve``) or beside a worker, in the worker's process. Several servers can share a
job's parameters::

    from innet.servers import pbox

    with pbox.Server(cores=2) as server:
        client = pbox.connect(
            [server.address], job="digits", rank=0, workers=1,
            keys=[weights.size], initial=[weights], optimizer=pbox.Adam(lr=1e-3),
        )
        client.push_pull([gradient], [weights])  # weights are the new parameters now
        client.close()

The package depends on no switch, controller or agent.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from innet.servers.pbox.client import Client, connect
    from innet.servers.pbox.optimizers import (
        SGD,
        Adadelta,
        Adagrad,
        Adam,
        Momentum,
        Nesterov,
        Optimizer,
        RMSProp,
    )
    from innet.servers.pbox.server import Server

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Client",
    "Momentum",
    "Nesterov",
    "Optimizer",
    "RMSProp",
    "Server",
    "connect",
]

_HOME = {"Client": "client", "connect": "client", "Server": "server"}


def __getattr__(name: str) -> Any:
    # The classes are loaded on first use: the command `innet` imports this package and rarely needs
    # them.
    if name in __all__:
        import importlib

        return getattr(
            importlib.import_module(f"innet.servers.pbox.{_HOME.get(name, 'optimizers')}"), name
        )
    raise AttributeError(f"module 'innet.servers.pbox' has no attribute {name!r}")
