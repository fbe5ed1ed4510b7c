"""Training algorithms of the literature, in the user's loop, over the switch and other networks.

::

    from innet.training import make
    from innet.training.transports.switch import AgentTransport

    with make("pipe-sgd", model, optimizer, AgentTransport(agent), K=2) as algorithm:
        for images, labels in batches:
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            algorithm.step()

Related algorithms share a small file. The networks under them are in `transports`.
"""

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from innet.errors import UsageError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from innet.training.algorithm import Algorithm
    from innet.training.transports.base import Transport

__all__ = ["ALGORITHMS", "make"]

ALGORITHMS = {
    "d-sync": ("d_sync", "DSync"),
    "ps-sync": ("ps_sync", "PSSync"),
    "ps-racks": ("ps_racks", "PSRacks"),
    "pipe-sgd": ("pipe_sgd", "PipeSGD"),
    "local-sgd": ("local_sgd", "LocalSGD"),
    "deadline-sgd": ("deadline_sgd", "DeadlineSGD"),
    "async-sgd": ("async_sgd", "AsyncSGD"),
    "async-msgd": ("async_sgd", "AsyncMSGD"),
    "hogwild-sgd": ("async_sgd", "HogwildSGD"),
    "softsync-sgd": ("softsync", "SoftsyncSGD"),
    "backup-workers": ("softsync", "BackupWorkers"),
    "easgd": ("easgd", "OriginalEASGD"),
    "async-easgd": ("easgd", "AsyncEASGD"),
    "async-measgd": ("easgd", "AsyncMEASGD"),
    "hogwild-easgd": ("easgd", "HogwildEASGD"),
    "sync-easgd-1": ("easgd", "SyncEASGD1"),
    "sync-easgd-2": ("sync_easgd", "SyncEASGD2"),
    "sync-easgd-3": ("sync_easgd", "SyncEASGD3"),
}
"""The algorithms by name: the module, and the class in it."""


def make(
    name: str,
    model: "nn.Module",
    optimizer: "Optimizer",
    transport: "Transport",
    **options: Any,
) -> "Algorithm":
    """Return the algorithm of this name for one worker; all workers must make the same one.

    Raises UsageError for an unknown name or option, and for options that the algorithm cannot work
    with.
    """
    if name not in ALGORITHMS:
        raise UsageError(f"no algorithm {name!r}: it has to be one of {', '.join(ALGORITHMS)}")
    module, kind = ALGORITHMS[name]
    found = getattr(importlib.import_module(f"innet.training.{module}"), kind)
    known = list(inspect.signature(found).parameters)[3:]
    if unknown := sorted(set(options) - set(known)):
        raise UsageError(f"{name} has no option {', '.join(unknown)}: it has {', '.join(known)}")
    missing = [
        each.name
        for each in list(inspect.signature(found).parameters.values())[3:]
        if each.default is inspect.Parameter.empty and each.name not in options
    ]
    if missing:
        raise UsageError(f"{name} needs {', '.join(missing)}")
    made: Algorithm = found(model, optimizer, transport, **options)
    return made
