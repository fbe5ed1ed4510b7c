"""The backend in C++, compiled for this machine's PyTorch when a process creates its first group.

PyTorch's dispatcher calls a class of C++, ``c10d::Backend``. ``backend.cpp`` derives from it, and hands
each collective to an :class:`innet.torch.group.InnetBackend`. Its memory layout is that of one version
of PyTorch. So it is compiled against the headers that this version installs, and the compiled file's
name in the cache depends on the version.
"""

import importlib.util
import sysconfig
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, NoReturn

import torch

from innet.errors import CompilerError, TimedOut
from innet.machine.packaged import read
from innet.native.compiler import CXX, compile_library

_NAME = "innet_backend"
_SOURCE = "backend.cpp"
_LIBRARIES = ("-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10")
_PYBIND11 = ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
"""What older versions of PyTorch say of themselves, so that pybind11 shares its types with them."""


@cache
def loaded() -> Any:
    """Return the module in C++. The first call on a machine compiles it, which takes half a minute.

    Raises CompilerError.
    """
    sources = {_SOURCE: read("innet.torch", _SOURCE)}
    key = [*sources.values(), torch.__version__.encode(), torch.version.git_version.encode()]
    try:
        path = compile_library(_flags(), key, lambda: sources, libraries=_LIBRARIES, language=CXX)
    except CompilerError as problem:
        raise CompilerError(
            f"the backend innet is compiled for PyTorch {torch.__version__} when it is first used, and "
            f"needs a C++ compiler and Python's headers (on Debian: g++ and python3-dev): {problem}"
        ) from None
    loader = ExtensionFileLoader(_NAME, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(_NAME, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    module.raise_after_timeout(_raise_timed_out)
    return module


def _flags() -> list[str]:
    place = Path(torch.__file__).parent
    headers = [
        place / "include",
        place / "include/torch/csrc/api/include",
        sysconfig.get_path("include"),
    ]
    shared = [
        f'-DPYBIND11_{name}="{value}"'
        for name in _PYBIND11
        if (value := getattr(torch._C, f"_PYBIND11_{name}", None))  # noqa: SLF001
    ]
    return [
        "-std=c++20",
        "-O1",  # it only calls others
        "-fPIC",
        "-fvisibility=hidden",
        "-Wall",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *shared,
        *(f"-isystem{folder}" for folder in headers),
        f"-L{place / 'lib'}",
    ]


def _raise_timed_out(seconds: float) -> NoReturn:
    raise TimedOut(
        f"the collective is not done after {seconds:g} s: it goes on, and can be waited for again"
    )
