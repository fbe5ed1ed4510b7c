"""Links in the models: latency, transfer time, reduction time, synchronization time.

These are α, β, γ and S of Li et al., "Pipe-SGD", NeurIPS 2018, section 3.1, in seconds and seconds
per byte.
"""

import re
from dataclasses import dataclass

from innet.errors import UsageError

MOST_WORKERS = 1 << 20
"""The most workers of a model: a simulation takes time and memory for each of them."""

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_MOST = 1e100  # larger numbers would overflow in the formulas
_FRACTIONS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class LinkModel:
    """A link that takes `alpha` + n `beta` seconds for a message of n bytes between two nodes."""

    alpha: float
    """Latency, seconds."""
    beta: float
    """Transfer time, seconds per byte: 8 / bits per second."""
    gamma: float = 0.0
    """Time to sum, seconds per byte."""
    sync: float = 0.0
    """S: global synchronization of one all-reduce, seconds."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma", "sync"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} is {getattr(self, name)}: times cannot be negative")


SC17_TABLE_2 = {
    "fdr": LinkModel(0.7e-6, 0.2e-9),
    "qdr": LinkModel(1.2e-6, 0.3e-9),
    "ne020": LinkModel(7.2e-6, 0.9e-9),
}
"""You, Buluç and Demmel, SC17, Table 2: Mellanox 56 Gb/s FDR IB, Intel 40 Gb/s QDR IB, Intel 10GbE NE020.

The paper says in section 5.2 that β is per word, and gives the reciprocal of the bandwidth. Read as
seconds per byte, the values are 40, 27 and 9 Gb/s. As seconds per word of 4 bytes they would exceed
the links' rates.
"""


def parse_link(text: str, latency: float) -> LinkModel:
    """Return a link by name (``fdr``, ``qdr``, ``ne020``) or by bits per second, as in ``10G``."""
    if text.lower() in SC17_TABLE_2:
        return SC17_TABLE_2[text.lower()]
    rate = parse_amount(text, "--link")
    if rate <= 0:
        raise UsageError(f"--link {text}: give a rate above 0")
    return LinkModel(alpha=latency, beta=8 / rate)


def parse_amount(text: str, option: str) -> float:
    """Return ``100M`` as 1e8. Raises UsageError."""
    found = re.fullmatch(r"([0-9.]+(?:e-?[0-9]+)?)([kKMGT]?)B?", text)
    if not found:
        raise UsageError(f"{option} {text!r}: write a number, with k, M, G or T, as in 100M")
    return _number(found[1], option) * _PREFIXES[found[2]]


def parse_time(text: str, option: str) -> float:
    """Return ``10us`` as 1e-5 seconds. Raises UsageError."""
    found = re.fullmatch(r"([0-9.]+(?:e-?[0-9]+)?)(s|ms|us|ns|)", text)
    if not found:
        raise UsageError(f"{option} {text!r}: write seconds, or as in 100ms, 10us")
    return _number(found[1], option) * _FRACTIONS[found[2]]


def parse_range(text: str) -> list[int]:
    """Return ``4..64`` as [4, 8, 16, 32, 64], doubled up to the end; ``8`` as [8]. Raises UsageError."""
    found = re.fullmatch(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?", text)
    first = int(found[1]) if found else 0
    last = int(found[2] or first) if found else 0
    if not 1 <= first <= last <= MOST_WORKERS:
        raise UsageError(
            f"--workers {text!r}: write a number, or a range as in 4..4096, up to {MOST_WORKERS}"
        )
    counts = []
    while first < last:
        counts.append(first)
        first *= 2
    return [*counts, last]


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f"{option} {text!r} is not a number") from None
    if number > _MOST:
        raise UsageError(f"{option} {text!r} is too large")
    return number
