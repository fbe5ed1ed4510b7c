"""Numbers that people write, in options and environment variables."""

_MOST_DIGITS = 20  # Python refuses to read a number of thousands of digits


def is_number(text: str) -> bool:
    """Return whether a text is a natural number that `int` can read."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS
