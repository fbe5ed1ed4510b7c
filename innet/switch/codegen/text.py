"""C text: lines, blocks, types and literals."""

import string
from collections.abc import Iterator
from contextlib import contextmanager

from innet.switch.layout import storage_bits

_PLAIN = frozenset(string.ascii_letters + string.digits + " ,.:;=+-_<>()[]'%")


class Text:
    """A C file that is being written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def emit(self, *lines: str) -> None:
        """Add lines at the present depth."""
        self.lines += ["    " * self._depth + line if line else "" for line in lines]

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """Put the lines emitted inside the context in braces behind `opening`."""
        self.emit(opening + " {" if opening else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.emit(closing)


def c_type(bits: int) -> str:
    """Return the unsigned C type that holds `bits` bits."""
    return f"uint{storage_bits(bits)}_t"


def c_number(value: int) -> str:
    """Return a constant from 0 to 2**128 - 1, of an unsigned type that holds it."""
    if value < 1 << 64:
        return f"UINT64_C({value})"
    return f"((uint128_t)UINT64_C({value >> 64}) << 64 | UINT64_C({value & (1 << 64) - 1}))"


def c_string(text: str) -> str:
    """Return a C string literal of letters, digits, spaces, some punctuation and octal escapes.

    An octal escape ends after three digits, whatever follows.
    """
    plain = (
        chr(byte) if chr(byte) in _PLAIN else f"\\{byte:03o}"
        for byte in text.encode(errors="backslashreplace")
    )
    return '"' + "".join(plain) + '"'
