"""The options of PyTorch's collectives, which a caller gives as an object or as a plain argument."""

from datetime import timedelta
from typing import Any

import torch.distributed as dist

_NONE = timedelta(0)


def operation_of(opts: Any) -> Any:
    """Return the operation from a reduction's options, or the argument itself if it is one."""
    return dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def root_of(opts: Any) -> int:
    """Return the root's rank from the options of a broadcast or a reduce, or the argument itself."""
    return 0 if opts is None else int(getattr(opts, "rootRank", opts))


def waits_at_once(*arguments: Any) -> bool:
    """Return whether a collective's options say that its caller waits for it at once."""
    for each in arguments:  # noqa: SIM110 - any() takes longer for so few
        if getattr(each, "asyncOp", None) is False:
            return True
    return False


def sets_timeout(*given: Any) -> bool:
    """Return whether a barrier's options set a timeout of its own."""
    for each in given:
        limit = getattr(each, "timeout", None)
        if limit is not None and limit > _NONE:
            return True
    return False
