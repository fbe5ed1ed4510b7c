"""Numbers that people write, in options and environment variables."""

_MOST_DIGITS = 20  # Python refuses to read a number of thousands of digits
PORTS = 1 << 16


def is_number(text: str) -> bool:
    """Return whether a text is a natural number that `int` can read."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def is_port(text: str) -> bool:
    """Return whether a text is a port number of 16 bits."""
    return is_number(text) and int(text) < PORTS
