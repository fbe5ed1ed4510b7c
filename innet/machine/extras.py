"""Packages that innet needs for a part of its functions only, and that an extra of innet installs."""

import contextlib
from collections.abc import Iterator

from innet.errors import UsageError


@contextlib.contextmanager
def needed_for(what: str, extra: str) -> Iterator[None]:
    """Import packages of an extra in this context. Raises UsageError if one is missing.

    `what`, in the plural, is what cannot be had without them.
    """
    try:
        yield
    except ModuleNotFoundError as problem:
        raise UsageError(
            f"{what} need {problem.name}, which comes with: pip install 'innet[{extra}]'"
        ) from None
