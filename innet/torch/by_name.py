"""Functions of PyTorch that refuse a backend by its name, and that groups of innet answer themselves.

``monitored_barrier`` wants the name of Gloo, though innet's groups have that barrier. ``split_group``
refuses with an error that names no other way. Both are wrapped when a process creates its first
group of innet, so that a script need not be changed. Groups of other backends get PyTorch's functions.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from innet.torch.backend import NAME

_GROUP_IS: Mapping[str, str] = {"monitored_barrier": "group", "split_group": "parent_pg"}
"""The functions, and the parameter of each that is the group, or None for the default one."""


@cache
def admit() -> None:
    """Let groups of innet answer the functions, in a process that creates such a group."""
    for name, group in _GROUP_IS.items():
        wrapped = _by_the_group(getattr(distributed_c10d, name), group)
        for module in (dist, distributed_c10d):
            setattr(module, name, wrapped)


def _by_the_group(function: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    """Return a function that calls the method of the same name if the group is innet's."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        given = signature.bind(*arguments, **more).arguments
        group = _own(given.pop(parameter, None))
        if group is None:
            return function(*arguments, **more)
        chosen = {name: value for name, value in given.items() if value is not None}
        return getattr(group, function.__name__)(**chosen)

    return call


def _own(group: Any) -> Any:
    """Return a group of innet, or None for any other, and for a group without this process."""
    if not dist.is_initialized():
        return None
    found = dist.group.WORLD if group is None else group
    is_innets = isinstance(found, dist.ProcessGroup) and dist.get_backend(found) == NAME
    return found if is_innets else None
