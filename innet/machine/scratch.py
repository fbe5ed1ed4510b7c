"""Temporary folders that do not stay behind, however their process ends.

A process locks its folder for as long as it lives. Whoever makes such a folder first removes those that
nobody has locked: their processes were killed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "innet-run-"
_NAME = re.compile(re.escape(_PREFIX) + r"\w+")
_FITS_LINKS = re.compile(r"[A-Za-z0-9_./-]{1,70}")
_ALWAYS_FITS = "/tmp"  # noqa: S108 - only its owner can enter a folder that is made there
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that only this user can enter, and remove it afterwards.

    It is made in `parent`, by default the machine's folder of temporary files. That folder may have a
    name that is too long for sockets, or has characters that separate the links of INNET_LINK, such as a
    space. Then the new folder is made in /tmp.
    """
    within = parent or _temporary_folder()
    remove_leftovers(within)
    folder, lock = _make(within)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers(parent: Path) -> None:
    """Remove the folders in `parent` whose processes have ended.

    Links are not followed. Folders of other users are kept.
    """
    for folder in parent.iterdir():
        if not _NAME.fullmatch(folder.name):
            continue
        with contextlib.suppress(OSError):  # a link, another user's, or gone by now
            lock = os.open(folder, _OPEN)
            try:
                if os.fstat(lock).st_uid == os.geteuid() and _locked(lock):
                    shutil.rmtree(folder)
            finally:
                os.close(lock)


def _temporary_folder() -> Path:
    folder = tempfile.gettempdir()
    return Path(folder if _FITS_LINKS.fullmatch(folder) else _ALWAYS_FITS)


def _make(parent: Path) -> tuple[Path, int]:
    """Return a new folder, and the descriptor that locks it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, _OPEN)
            # Another process may have taken it for a leftover before it was locked.
            if _locked(lock) and folder.exists():
                return folder, lock
            os.close(lock)


def _locked(descriptor: int) -> bool:
    """Lock a folder, and return whether that worked. The lock ends with the process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
