"""Files that are installed with innet: C sources and compiled P4 programs."""

from collections.abc import Sequence
from importlib import resources

from innet.errors import IncompleteInstallation


def read(package: str, name: str) -> bytes:
    """Return the content of a package's file. Raises IncompleteInstallation if it cannot be read."""
    file = resources.files(package) / name
    try:
        return file.read_bytes()
    except OSError as problem:
        raise IncompleteInstallation(
            f"{file} is a part of innet and cannot be read ({problem.strerror}): install innet again"
        ) from None


def read_folder(package: str, folder: str, suffixes: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a package's folder that have one of the suffixes, sorted by name.

    The result maps a name to its content. Raises IncompleteInstallation if there are none.
    """
    place = resources.files(package) / folder
    names = [each.name for each in place.iterdir()] if place.is_dir() else []
    files = sorted(name for name in names if name.endswith(tuple(suffixes)))
    if not files:
        raise IncompleteInstallation(
            f"{place} has no files that end in {' or '.join(suffixes)}: install innet again"
        )
    return {name: read(package, f"{folder}/{name}") for name in files}
