"""innet as a backend of torch.distributed: one line in any script that torchrun starts.

::

    dist.init_process_group("innet")

PyTorch imports this package by itself.

All-reduces of the usual dtypes go through the switch, everything else over Gloo (docs/pytorch.md).
A collective passes through these modules, top down:

* ``backend.cpp``, which `extension` compiles: the class that PyTorch's dispatcher calls, and the
  handle on a collective that the caller waits for
* `group`: the backend of a process group
* `routes`: the choice between switch and Gloo
* `gathers`: the choice of the agent, as large all-gathers have one of their own
* `collectives`: the translation into calls of an agent
* `innet.host.coalesced` and the agent; or `stand_ins` and Gloo

`membership` gets a group its job and its agent; `settings` reads the environment. This package
builds on `innet.host`. No other package of innet imports PyTorch when it is imported.
"""

from typing import TYPE_CHECKING, Any

from innet.torch import accelerate
from innet.torch.backend import register
from innet.torch.counts import carried

if TYPE_CHECKING:
    from innet.torch.fsdp import ReduceScatter
    from innet.torch.group import InnetBackend, backend_of

__all__ = ["InnetBackend", "ReduceScatter", "backend_of", "carried"]

register()
accelerate.admit()


def __getattr__(name: str) -> Any:
    # Import on first use: PyTorch imports this package, in every process (pyproject.toml).
    if name in ("InnetBackend", "backend_of"):
        from innet.torch import group

        return getattr(group, name)
    if name == "ReduceScatter":
        from innet.torch.fsdp import ReduceScatter

        return ReduceScatter
    raise AttributeError(f"module 'innet.torch' has no attribute {name!r}")
