"""innet: data-parallel training whose gradients are summed in the top-of-rack switch.

Three lines add it to a PyTorch script::

    import innet
    agent = innet.join(fallback=torch.distributed.group.WORLD)
    model.register_comm_hook(agent, innet.ddp_hook)  # model: a DistributedDataParallel
"""

import os
from typing import TYPE_CHECKING, Any

from innet.errors import AllReduceError, InnetError

if TYPE_CHECKING:
    from innet.host.agent import Agent
    from innet.host.ddp import ddp_hook
    from innet.host.job import Timeouts
    from innet.host.join import join

__all__ = ["Agent", "AllReduceError", "InnetError", "Timeouts", "ddp_hook", "join"]
__version__ = "0.1.0"

# gRPC's fork handlers abort a child process if another thread is in a gRPC call during the fork. A
# training script forks its data loaders, and `innet rack` forks its commands. No child process uses its
# parent's gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# innet reports each error once, so gRPC's own messages are off. A user who sets this variable sees them
# too. gRPC reads the variable when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_HOME = {
    "Agent": "innet.host.agent",
    "Timeouts": "innet.host.job",
    "ddp_hook": "innet.host.ddp",
    "join": "innet.host.join",
}


def __getattr__(name: str) -> Any:
    # Import on first use: the switch and the controller run without PyTorch.
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'innet' has no attribute {name!r}")


def autoload() -> None:
    """Register the backend ``innet`` with PyTorch. PyTorch calls this function when it is imported.

    Raises nothing: an incomplete innet must not keep PyTorch from starting.
    """
    import importlib
    import logging

    try:
        importlib.import_module("innet.torch")
    except Exception as problem:  # noqa: BLE001 - PyTorch would end with it
        logging.getLogger("innet").warning("PyTorch does not know the backend innet: %r", problem)
