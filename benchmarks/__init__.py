"""Benchmarks, each of which runs as ``python -m benchmarks.NAME``.

An expected error ends a benchmark with one line and an exit status, like innet's own commands.
"""

import importlib.util
import os
import sys
from types import TracebackType

from innet.errors import InnetError, UsageError

_PACKAGES = (
    "grpc", "matplotlib", "numpy", "prometheus_client", "pydantic", "rich", "sklearn", "structlog",
    "torch", "typer", "yaml",
)  # fmt: skip
"""The packages of innet and its extras `emulate` and `experiments`, by the names of imports."""

_OF_ONE_BENCHMARK = ("selenium",)
"""The packages that only one benchmark needs."""


def _report(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print an expected error in one line and exit. Leave all other errors to Python."""
    expected = _expected(problem)
    if not expected:
        sys.__excepthook__(kind, problem, trace)
        return
    sys.stderr.write(f"error: {expected}\n")
    sys.exit(expected.exit_code)


def _expected(problem: BaseException) -> InnetError | None:
    if isinstance(problem, ModuleNotFoundError) and _top(problem.name) in _PACKAGES:
        lacking = ", ".join(each for each in _PACKAGES if not importlib.util.find_spec(each))
        return UsageError(
            f"the benchmarks need packages that are not installed ({lacking}): "
            "pip install '.[emulate,experiments]'"
        )
    if isinstance(problem, ModuleNotFoundError) and _top(problem.name) in _OF_ONE_BENCHMARK:
        name = _top(problem.name)
        return UsageError(
            f"this benchmark needs {name}, which is not installed: pip install {name}"
        )
    return problem if isinstance(problem, InnetError) else None


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


if sys.argv[0] == "-m":  # true while Python looks for the module to run
    # Typer calls the hook that is set when typer is imported, unless it prints tracebacks of its
    # own.
    os.environ["_TYPER_STANDARD_TRACEBACK"] = "1"
    sys.excepthook = _report
