"""The optimizers of a parameter server: names and hyperparameters. The arithmetic is in C.

Each is the optimizer of the same name in ``torch.optim``, with its defaults, and computes what
PyTorch computes on a CPU. `docs/pbox.md` maps them to the equations of Arnold, "An Introduction to
Distributed Deep Learning" (2016), and lists the differences.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from innet.errors import UsageError
from innet.servers.pbox.native import OptimizerRecord
from innet.servers.pbox.protocol import UpdateRule


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The base of all optimizers, with the learning rate and L2 regularization.

    A client may change the learning rate later. Raises UsageError for a number that is out of its
    range.
    """

    rule: ClassVar[UpdateRule]
    first: ClassVar[str] = ""
    second: ClassVar[str] = ""
    below_one: ClassVar[tuple[str, ...]] = ()

    lr: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
                raise UsageError(
                    f"{self.name}: {field.name}={value!r} has to be a number of at least 0"
                )
            if field.name in self.below_one and value >= 1:
                raise UsageError(f"{self.name}: {field.name}={value!r} has to be below 1")

    @property
    def name(self) -> str:
        """Return the name of the class, which is also the name on the wire."""
        return type(self).__name__

    def record(self) -> OptimizerRecord:
        """Return the optimizer as a C struct."""
        return OptimizerRecord(
            rule=self.rule,
            first=getattr(self, self.first) if self.first else 0.0,
            second=getattr(self, self.second) if self.second else 0.0,
            epsilon=getattr(self, "eps", 0.0),
            weight_decay=self.weight_decay,
        )

    def settings(self) -> dict[str, Any]:
        """Return the name and the hyperparameters, as they are on the wire."""
        return {"name": self.name, **asdict(self)}

    @classmethod
    def of(cls, settings: object) -> "Optimizer | None":
        """Return the optimizer in another process's :meth:`settings`, or None. Raises UsageError."""
        if settings is None:
            return None
        if not isinstance(settings, Mapping):
            raise UsageError("an optimizer has to be an object with a name")
        values = dict(settings)
        kind = BY_NAME.get(str(values.pop("name", "")))
        if kind is None:
            raise UsageError(f"unknown optimizer: it has to be one of {', '.join(BY_NAME)}")
        known = {field.name for field in fields(kind)}
        if values.keys() != known:
            raise UsageError(
                f"{kind.__name__}: its settings have to be exactly {', '.join(sorted(known))}"
            )
        return kind(**values)


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent: ``torch.optim.SGD``."""

    rule = UpdateRule.SGD


@dataclass(frozen=True, kw_only=True)
class Momentum(Optimizer):
    """SGD with momentum: ``torch.optim.SGD(momentum=...)``."""

    rule, first = UpdateRule.MOMENTUM, "momentum"
    momentum: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Nesterov(Optimizer):
    """Nesterov's accelerated gradient: ``torch.optim.SGD(momentum=..., nesterov=True)``."""

    rule, first = UpdateRule.NESTEROV, "momentum"
    momentum: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, 2011): ``torch.optim.Adagrad``."""

    rule, first = UpdateRule.ADAGRAD, "lr_decay"
    lr: float = 1e-2
    lr_decay: float = 0.0
    eps: float = 1e-10


@dataclass(frozen=True, kw_only=True)
class RMSProp(Optimizer):
    """RMSProp (Hinton, 2013): ``torch.optim.RMSprop``."""

    rule, first, below_one = UpdateRule.RMSPROP, "alpha", ("alpha",)
    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8


@dataclass(frozen=True, kw_only=True)
class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012): ``torch.optim.Adadelta``."""

    rule, first, below_one = UpdateRule.ADADELTA, "rho", ("rho",)
    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014): ``torch.optim.Adam``."""

    rule, first, second, below_one = UpdateRule.ADAM, "beta1", "beta2", ("beta1", "beta2")
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


PYTORCH_ONLY = (
    "amsgrad", "centered", "dampening", "decoupled_weight_decay", "initial_accumulator_value", "maximize",
)  # fmt: skip
"""The options of PyTorch's optimizers that these do not have."""

BY_NAME: dict[str, type[Optimizer]] = {
    kind.__name__: kind for kind in (SGD, Momentum, Nesterov, Adagrad, RMSProp, Adadelta, Adam)
}


def by_name(name: str) -> Optimizer | None:
    """Return the optimizer of that name with defaults, None for ``"None"``. Raises UsageError."""
    if name not in ("None", *BY_NAME):
        raise UsageError(f"optimizer {name!r}: it has to be None or one of {', '.join(BY_NAME)}")
    return BY_NAME[name]() if name != "None" else None
