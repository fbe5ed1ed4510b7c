"""A wrapper that makes Accelerate, and so Hugging Face's Trainer, accept the backend on CPUs.

On CPUs Accelerate knows two backends, Gloo and MPI. It raises ValueError for any other, even for
one that PyTorch knows, and has no setting to allow it. So its choice of a backend is wrapped when
Accelerate is imported. The wrapper changes the answer only if the script has asked for innet.
"""

import os
import sys
from collections.abc import Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from innet.machine import environment as names
from innet.torch.name import NAME

_MODULE = "accelerate.state"


def admit() -> None:
    """Let Accelerate accept the backend, now or when it is imported.

    In a process without a controller, do nothing, so that other programs in the environment stay as
    they are.
    """
    if not os.environ.get(names.CONTROLLER):
        return
    if _MODULE in sys.modules:
        _wrap(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """A finder that wraps one module when it is imported, and leaves all others to the rest."""

    def find_spec(
        self, fullname: str, _: Sequence[str] | None, __: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_and_wrap(module: ModuleType) -> None:
                load(module)
                _wrap(module)

            spec.loader.exec_module = load_and_wrap  # type: ignore[method-assign]
        return spec


def _wrap(module: ModuleType) -> None:
    """Wrap the choice of a backend. A version of Accelerate that has no such method stays as it is."""
    state = getattr(module, "PartialState", None)
    choose = getattr(state, "_prepare_backend", None)
    if choose is None:
        return

    @wraps(choose)
    def prepare(*arguments: Any, **more: Any) -> Any:
        chosen = choose(*arguments, **more)
        if NAME in (*arguments, *more.values()) and chosen[0] == "gloo":
            return (NAME, *chosen[1:])
        return chosen

    state._prepare_backend = prepare  # type: ignore[union-attr]  # noqa: SLF001
