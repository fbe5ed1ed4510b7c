"""Code that ``torch.compile`` runs as it is.

A compiled DistributedDataParallel calls its process group from C++, and PyTorch would compile the group's
methods, too. This fails, because PyTorch does not let compiled code read a group's attributes.
"""

from types import FunctionType

from torch._C._dynamo.eval_frame import (
    _FrameAction,
    _FrameExecStrategy,
    set_code_exec_strategy,
)


def uncompiled(kind: type) -> None:
    """Let ``torch.compile`` leave a class's methods alone, and whatever they call."""
    # torch.compiler.disable does the same, but its import takes seconds.
    skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for method in vars(kind).values():
        if isinstance(method, FunctionType):
            set_code_exec_strategy(method.__code__, skip)
