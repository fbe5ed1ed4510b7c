"""Numbers in texts: those that people write, in options and variables, and those that they read."""

from collections.abc import Sequence

_MOST_LISTED = 16
_MOST_DIGITS = 20  # Python refuses to read a number of thousands of digits
PORTS = 1 << 16


def is_number(text: str) -> bool:
    """Return whether a text is a natural number that `int` can read."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def is_port(text: str) -> bool:
    """Return whether a text is a port number of 16 bits."""
    return is_number(text) and int(text) < PORTS


def listed(numbers: Sequence[int]) -> str:
    """Return numbers as ``0, 2``. Of very many, only the first ones are in the list."""
    more = len(numbers) - _MOST_LISTED
    end = f" and {more} more" if more > 0 else ""
    return f"{', '.join(map(str, numbers[:_MOST_LISTED]))}{end}"
