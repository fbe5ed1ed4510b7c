"""innet in PyTorch's lists of backends and of rendezvous."""

import contextlib
from typing import Any

from innet.torch import slurm
from innet.torch.name import NAME


def register() -> None:
    """Make the backend known to PyTorch. Its code is imported when a group is created."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import register_rendezvous_handler

    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    with contextlib.suppress(RuntimeError):  # another package has registered the same scheme
        register_rendezvous_handler(slurm.SCHEME, slurm.rendezvous)


def _create(options: Any, _: Any) -> Any:
    """Create a group's backend; PyTorch calls this for every group."""
    import torch
    import torch.distributed as dist

    from innet.torch import by_name
    from innet.torch.group import InnetBackend, in_cxx

    by_name.admit()
    if not torch.cuda.is_available():
        # Some of PyTorch's functions take the device of their tensors from this list.
        dist.Backend.backend_capability[NAME] = ["cpu"]
    backend = InnetBackend(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        first=not dist.is_initialized(),
    )
    return in_cxx(backend, options.global_ranks_in_group or range(options.group_size))
