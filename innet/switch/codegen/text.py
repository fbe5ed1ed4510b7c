"""C text: lines, blocks, names and types."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

_C_WORDS = frozenset(
    """auto bool break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while m path valid next varbit_bytes""".split()
)


class Text:
    """A C file as it grows."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def emit(self, *lines: str) -> None:
        """Add lines at the present depth."""
        self.lines += ["    " * self._depth + line if line else "" for line in lines]

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """What is emitted inside stands in braces behind `opening`."""
        self.emit(opening + " {" if opening else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.emit(closing)


def c_name(name: str) -> str:
    """A P4 name as a C identifier."""
    text = re.sub(r"\W", "_", name)
    return f"f_{text}" if text[0].isdigit() or text in _C_WORDS else text


def storage_bits(bits: int) -> int:
    """Bits of the C integer that holds `bits` bits."""
    return next(size for size in (8, 16, 32, 64, 128) if size >= bits)


def c_type(bits: int) -> str:
    """The unsigned C type that holds `bits` bits."""
    return f"u{storage_bits(bits)}"


def c_number(value: int) -> str:
    """A constant of 0 to 2**128 - 1 of an unsigned type that holds it."""
    if value < 1 << 64:
        return f"UINT64_C({value})"
    return f"((u128)UINT64_C({value >> 64}) << 64 | UINT64_C({value & (1 << 64) - 1}))"


def c_string(text: str) -> str:
    """A C string literal. Octal escapes end after three digits, whatever follows."""
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return '"' + "".join(plain) + '"'
