"""The option ``--memory`` of the servers."""

from innet.errors import UsageError

_GIB = 1 << 30  # bytes
_MOST_GIB = 1 << 30


def bytes_of(memory: float) -> int:
    """Return the bytes of the option ``--memory``, given in GiB. Raises UsageError."""
    if not memory < _MOST_GIB:
        raise UsageError(f"--memory {memory:g}: it has to be a number of GiB below {_MOST_GIB}")
    return int(memory * _GIB)
