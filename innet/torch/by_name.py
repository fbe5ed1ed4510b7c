"""Wrappers for functions of PyTorch that know only its own backends.

``monitored_barrier`` accepts only Gloo, and ``_set_pg_timeout`` only Gloo and NCCL, though innet's groups
have both. ``split_group`` refuses innet with an error that does not say what to do instead. They are
wrapped when a process creates its first group of innet, so that no script need be changed. For groups of
other backends, the wrappers call PyTorch's functions.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed import distributed_c10d

from innet.torch.group import backend_of


class _Instead(NamedTuple):
    """A function for innet's groups, and the name of the parameter that is the group in PyTorch's."""

    group: str
    function: Callable[..., Any]


def _monitored_barrier(group: Any, **options: Any) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    group.monitored_barrier(**given)


def _set_timeout(group: Any, timeout: Any) -> None:
    if backend := backend_of(group):
        backend.set_timeout(timeout)


def _split(group: Any, **_: Any) -> None:
    if backend := backend_of(group):
        backend.split()


_WRAPPED: Mapping[str, _Instead] = {
    "monitored_barrier": _Instead("group", _monitored_barrier),
    "split_group": _Instead("parent_pg", _split),
    "_set_pg_timeout": _Instead("group", _set_timeout),
}


@cache
def admit() -> None:
    """Wrap the functions, once in a process."""
    for name, instead in _WRAPPED.items():
        wrapped = _by_the_group(getattr(distributed_c10d, name), instead)
        for module in (dist, distributed_c10d):
            if hasattr(module, name):
                setattr(module, name, wrapped)


def _by_the_group(function: Callable[..., Any], instead: _Instead) -> Callable[..., Any]:
    """Return a wrapper that calls the other function if the group is innet's."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        given = signature.bind(*arguments, **more).arguments
        group = _own(given.pop(instead.group, None))
        return function(*arguments, **more) if group is None else instead.function(group, **given)

    return call


def _own(group: Any) -> Any:
    """Return the group if it is innet's and has this process; otherwise None."""
    if not dist.is_initialized():
        return None
    found = dist.group.WORLD if group is None else group
    return found if isinstance(found, dist.ProcessGroup) and backend_of(found) else None
