"""The form of numbers in memory, which the generated C and the engine have to agree on.

A number of up to 128 bits is an integer of 1, 2, 4, 8 or 16 bytes. A larger one is an array of bytes,
most significant first.
"""

from typing import Literal

from innet.switch import ir

MAX_INTEGER_BITS = 128
"""The most bits of a number that C stores as an integer."""

_WORD_BYTES = 8


def storage_bits(bits: int) -> int:
    """Return the bits of the C integer that holds a number of at most 128 bits."""
    return next(size for size in (8, 16, 32, 64, 128) if size >= bits)


def storage_bytes(bits: int) -> int:
    """Return the bytes that a number of any size takes."""
    return storage_bits(bits) // 8 if bits <= MAX_INTEGER_BITS else (bits + 7) // 8


def byte_order(size: int) -> Literal["little", "big"]:
    """Return the order of the bytes of a number that takes `size` bytes."""
    return "little" if size <= MAX_INTEGER_BITS // 8 else "big"


def argument_words(bits: int) -> int:
    """Return the number of 64-bit words that an argument of an action takes.

    An argument of up to 128 bits takes two words, the low one first. A larger one begins at the first
    byte of its words.
    """
    return 2 if bits <= MAX_INTEGER_BITS else -(-bits // 64)


def argument_offset(params: tuple[tuple[str, int], ...], index: int) -> int:
    """Return the number of words in front of an action's argument."""
    return sum(argument_words(bits) for _, bits in params[:index])


def key_sizes(table: ir.Table) -> tuple[int, ...]:
    """Return the bytes of each component of a table's key."""
    return tuple(storage_bytes(key.bits) for key in table.keys)


def key_bytes(table: ir.Table) -> int:
    """Return the bytes of a table's whole key, padded to 64-bit words."""
    return -(-sum(key_sizes(table)) // _WORD_BYTES) * _WORD_BYTES


def value_set_bytes(value_set: ir.ValueSet) -> int:
    """Return the bytes of a key of a value set: one number, padded to 64-bit words."""
    return -(-value_set.bits // 64) * _WORD_BYTES
