"""Wrappers for functions of PyTorch that do not suit a backend in Python.

PyTorch's ``monitored_barrier`` accepts only Gloo, though innet's groups have that barrier. Its
``split_group`` refuses innet with an error that does not say what to do instead. Both are wrapped
when a process creates its first group of innet, so that no script need be changed. The wrappers
call the methods of innet's groups. For groups of other backends they call PyTorch's functions.

With ``join(divide_by_initial_world_size=False)``, a DistributedDataParallel waits in ``backward()`` for
the work of an all-reduce that ``Join.notify_join_context`` has begun. But it keeps only the C++ part of
the work. Without its Python part, the work never ends. So a wrapper keeps that part.
"""

import inspect
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from functools import cache, wraps
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.join import Join, Joinable

from innet.torch.name import NAME

_GROUP_IS: Mapping[str, str] = {"monitored_barrier": "group", "split_group": "parent_pg"}
"""The functions, and the name of each one's parameter for the group (None: the default group)."""


@cache
def admit() -> None:
    """Wrap the functions, once in a process."""
    for name, group in _GROUP_IS.items():
        wrapped = _by_the_group(getattr(distributed_c10d, name), group)
        for module in (dist, distributed_c10d):
            setattr(module, name, wrapped)
    setattr(Join, "notify_join_context", staticmethod(_keeping(Join.notify_join_context)))  # noqa: B010


def _keeping(notify: Callable[[Joinable], Any]) -> Callable[[Joinable], Any]:
    """Return a wrapper that keeps the returned work until the next call, or the end of the joinable."""
    works: MutableMapping[Joinable, Any] = weakref.WeakKeyDictionary()

    @wraps(notify)
    def call(joinable: Joinable) -> Any:
        work = works[joinable] = notify(joinable)
        return work

    return call


def _by_the_group(function: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    """Return a wrapper that calls the group's method of the same name if the group is innet's."""
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
    """Return the group if it is innet's and has this process; otherwise None."""
    if not dist.is_initialized():
        return None
    found = dist.group.WORLD if group is None else group
    # `get_backend` would return what the caller has given, such as "cpu:innet,cuda:innet".
    is_innets = isinstance(found, dist.ProcessGroup) and found.name() == NAME
    return found if is_innets else None
