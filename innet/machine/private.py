"""Checks that no other user of this machine may have changed a folder or a file, or may read a secret."""

import os
import stat
from pathlib import Path

from innet.errors import UsageError

_ROOT = 0
_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_folder(path: Path) -> Path:
    """Create a folder and its missing parents for this user only, and return its real path.

    A folder that exists is checked as :func:`check_folder` does. Raises UsageError.
    """
    folder = Path(os.path.realpath(path))
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(0o700, exist_ok=True)  # another process may make it at the same time
    except OSError as problem:
        raise UsageError(f"cannot make the folder {folder}: {problem.strerror}") from None
    check_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {folder} cannot be written: choose another one")
    return folder


def check_folder(folder: Path) -> None:
    """Raise UsageError if another user can change what lies in a folder.

    The folder must belong to this user or to root, and neither its group nor others may write to it.
    Each folder above it must belong to them too. If others may write to one of those, it must have the
    sticky bit.
    """
    status = _status(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{folder} is no folder: remove it, or choose another place")
    _check_owner(folder, status)
    _check_writers(folder, status, _FOR_OTHERS)
    for above in folder.parents:
        status = above.stat()
        _check_owner(above, status)
        # A group may write here: many systems give every user a group of their own.
        if not status.st_mode & stat.S_ISVTX:
            _check_writers(above, status, stat.S_IWOTH)


def check_file(path: Path) -> None:
    """Raise UsageError if another user may have written a file. Links are refused as well."""
    status = _status(path)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is no file: remove it")
    _check_owner(path, status)
    _check_writers(path, status, _FOR_OTHERS)


def read_secret(path: Path, *, roots_group: bool = False) -> bytes:
    """Return the content of a file that no other user may read or write. Links are followed.

    The file must belong to this user or to root. With `roots_group`, a group may read the file of root.
    Raises UsageError if others can use the file, and OSError if it cannot be read.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        content = file.read()
    if status.st_uid not in _trusted_users():
        raise UsageError(
            f"{path} belongs to user {status.st_uid}, who can read and change this secret: copy it to a "
            "file of your own with mode 600"
        )
    group = stat.S_IWGRP if roots_group and status.st_uid == _ROOT else stat.S_IRWXG
    if status.st_mode & (group | stat.S_IRWXO):
        raise UsageError(
            f"{path} is a secret and can be used by other users (mode "
            f"{stat.S_IMODE(status.st_mode):o}): chmod 600, and replace the secret if others may know it"
        )
    return content


def _trusted_users() -> set[int]:
    """Return the users who may own a secret of this process: this user, root, and who has called sudo."""
    trusted = {os.geteuid(), _ROOT}
    caller = os.environ.get("SUDO_UID", "")
    return trusted | {int(caller)} if os.geteuid() == _ROOT and caller.isdecimal() else trusted


def _status(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as problem:
        raise UsageError(f"cannot look at {path}: {problem.strerror}") from None


def _check_owner(path: Path, status: os.stat_result) -> None:
    # In a container without the machine's root user, the owner of / stands for root.
    if status.st_uid not in (os.geteuid(), _ROOT, Path("/").stat().st_uid):
        raise UsageError(
            f"{path} belongs to user {status.st_uid}, who can change what lies there: "
            "remove it, or choose another folder"
        )


def _check_writers(path: Path, status: os.stat_result, writers: int) -> None:
    if status.st_mode & writers:
        raise UsageError(
            f"{path} can be written by other users (mode {stat.S_IMODE(status.st_mode):o}): "
            "remove it, or, if you trust what lies there, chmod go-w"
        )
