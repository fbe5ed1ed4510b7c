"""A least-squares fit of α, β, γ and S to measurements.

The measurements are a JSON object with up to three lists. "bytes" is the size of a message, or of
the vector in an all-reduce. "seconds" is the measured time::

    {
      "transfers":   [{"bytes": 1000, "seconds": 1.1e-5}, ...],      one node to another: α + n β
      "reductions":  [{"bytes": 1000, "seconds": 2e-7}, ...],        a sum at one node: n γ
      "all_reduces": [{"transport": "ring", "workers": 4, "bytes": 1000, "seconds": 1e-4}, ...]
    }

Some measurements cannot tell parameters apart, such as β and γ from ring all-reduces alone. Then as
few of the four as possible are above zero.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from innet.errors import UsageError
from innet.model import all_reduce
from innet.model.links import LinkModel

_TRANSPORTS = {"ring": all_reduce.ring, "tree": all_reduce.tree, "server": all_reduce.server}


@dataclass(frozen=True)
class Fit:
    """A link and its error: the root of the mean squared relative error over the measurements."""

    link: LinkModel
    error: float
    measurements: int


def fit(measurements: dict[str, Any]) -> Fit:
    """Return the link that fits best, with no time below zero. Raises UsageError."""
    rows, seconds = _rows(measurements)
    if not rows:
        raise UsageError(
            "no measurements: give transfers, or all_reduces, as innet/model/fit.py says"
        )
    # Errors are relative: with absolute ones only the largest messages would count.
    weights = 1 / np.array(seconds)
    matrix = np.array(rows) * weights[:, None]
    found = _not_negative(matrix, np.ones(len(rows)))
    error = float(np.sqrt(np.mean((matrix @ found - 1) ** 2)))
    return Fit(LinkModel(*(float(each) for each in found)), error, len(rows))


def read(path: Path) -> dict[str, Any]:
    """Return the measurements in a file. Raises UsageError."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot read measurements from {path}: {problem}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} has to hold a JSON object, with transfers or all_reduces")
    return content


def _rows(measurements: dict[str, Any]) -> tuple[list[list[float]], list[float]]:
    """Return the factors of (α, β, γ, S) in every measurement, and the measured seconds."""
    rows: list[list[float]] = []
    seconds: list[float] = []
    units = [LinkModel(1, 0), LinkModel(0, 1), LinkModel(0, 0, 1), LinkModel(0, 0, 0, 1)]
    try:
        for each in measurements.get("transfers", []):
            rows.append([1.0, float(each["bytes"]), 0.0, 0.0])
            seconds.append(float(each["seconds"]))
        for each in measurements.get("reductions", []):
            rows.append([0.0, 0.0, float(each["bytes"]), 0.0])
            seconds.append(float(each["seconds"]))
        for each in measurements.get("all_reduces", []):
            model = _TRANSPORTS[each["transport"]]
            workers, size = int(each["workers"]), float(each["bytes"])
            if workers < 1:
                raise ValueError("workers")
            # The models are linear in the link, so each factor is the time over a link with one
            # unit.
            rows.append([model(workers, size, unit) for unit in units])
            seconds.append(float(each["seconds"]))
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise UsageError(
            f"a measurement lacks {problem} or has it wrong: transports are {', '.join(_TRANSPORTS)}"
        ) from None
    if any(not 0 < each < math.inf for each in seconds):
        raise UsageError("a measurement took no time, or less: seconds have to be above zero")
    if not np.isfinite(rows).all():
        raise UsageError("a measurement has infinitely many bytes, or none that are a number")
    return rows, seconds


def _not_negative(matrix: "np.ndarray[Any, Any]", right: "np.ndarray[Any, Any]") -> Any:
    """Return the least-squares solution without negative values. All sets of zeros are tried."""
    columns = matrix.shape[1]
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1
    best, best_error = np.zeros(columns), np.inf
    for chosen in range(1, 1 << columns):
        kept = [column for column in range(columns) if chosen >> column & 1]
        solution = np.linalg.lstsq(matrix[:, kept] / scale[kept], right, rcond=1e-12)[0]
        if (solution < 0).any():
            continue
        error = float(np.sum((matrix[:, kept] / scale[kept] @ solution - right) ** 2))
        if error < best_error * (1 - 1e-9) - 1e-18:
            best = np.zeros(columns)
            best[kept], best_error = solution / scale[kept], error
    return best
