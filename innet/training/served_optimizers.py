"""The parameter servers' equivalents of PyTorch's optimizers, for servers apart and in a rack."""

import math
from dataclasses import fields
from typing import Any

import torch
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.servers import pbox
from innet.training.server import only_group

_SAME = {
    torch.optim.Adagrad: pbox.Adagrad,
    torch.optim.RMSprop: pbox.RMSProp,
    torch.optim.Adadelta: pbox.Adadelta,
    torch.optim.Adam: pbox.Adam,
}


def served(optimizer: Optimizer) -> pbox.Optimizer:
    """Return the servers' equivalent of an optimizer. Raises UsageError if there is none."""
    given = only_group(optimizer)
    kind = _kind(optimizer, given)
    unknown = [name for name in pbox.optimizers.PYTORCH_ONLY if given.get(name)]
    if kind is pbox.RMSProp and given["momentum"]:
        unknown.append("momentum")
    if unknown:
        raise UsageError(f"the parameter servers do not support {', '.join(unknown)}: leave it out")
    if not math.isfinite(float(given["lr"])):
        raise UsageError(f"the step size is {given['lr']}: it has to be finite")
    betas = zip(("beta1", "beta2"), given.get("betas", ()), strict=False)
    settings: dict[str, Any] = {**given, **dict(betas)}
    return kind(**{each.name: float(settings[each.name]) for each in fields(kind)})


def _kind(optimizer: Optimizer, given: dict[str, Any]) -> type[pbox.Optimizer]:
    """Return the equivalent of the optimizer's class: exactly, as a derived one has steps of its own."""
    if type(optimizer) is torch.optim.SGD:
        with_momentum = pbox.Nesterov if given["nesterov"] else pbox.Momentum
        return with_momentum if given["momentum"] else pbox.SGD
    if found := _SAME.get(type(optimizer)):
        return found
    raise UsageError(
        f"the parameter servers have no {type(optimizer).__name__}: see docs/pbox.md for those they have"
    )
