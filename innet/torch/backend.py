"""innet in PyTorch's lists of backends and of rendezvous."""

import contextlib
from typing import TYPE_CHECKING, Any

from innet.torch import slurm
from innet.torch.name import NAME

if TYPE_CHECKING:
    from innet.torch.group import InnetGroup


def register() -> None:
    """Make the backend known to PyTorch. The process group itself is imported when one is created."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import register_rendezvous_handler

    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    with contextlib.suppress(RuntimeError):  # another package has registered the same scheme
        register_rendezvous_handler(slurm.SCHEME, slurm.rendezvous)


def _create(options: Any, _: Any) -> "InnetGroup":
    """Create a group; PyTorch calls this for every group."""
    import torch.distributed as dist

    from innet.torch import by_name
    from innet.torch.group import InnetGroup

    by_name.admit()
    return InnetGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        first=not dist.is_initialized(),
    )
