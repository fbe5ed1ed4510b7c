"""innet as a backend of torch.distributed: two lines under any script that torchrun starts.

::

    import innet.torch
    dist.init_process_group("innet")

All-reduces of the usual dtypes go through the switch, everything else over Gloo
(docs/pytorch.md). The way of a collective, top down: `group` (the process group) -> `routes` (which
way) -> `work` (what the caller waits for) -> `innet.host.ddp` and the agent. `seats` gets a group its
job and its agent, `settings` says where from. Over `innet.host`; only this package needs PyTorch to be
imported.
"""

from innet.torch.counts import carried
from innet.torch.group import InnetGroup, register

__all__ = ["InnetGroup", "carried"]

register()
