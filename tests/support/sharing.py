"""Folders that all processes of the tests share."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def common_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of this run of pytest, which its processes have in common."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@contextlib.contextmanager
def shared_folder(folder: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Yield a folder that the first process makes and fills. The last one removes it."""
    with folder.with_suffix(".users").open("w") as users:
        with alone(folder):
            if not folder.exists():
                _made(folder, make)
            fcntl.flock(users, fcntl.LOCK_SH)
        yield folder
        with alone(folder), contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)


def _made(folder: Path, make: Callable[[Path], object]) -> None:
    folder.mkdir()
    try:
        make(folder)
    except BaseException:  # also a test that is skipped
        shutil.rmtree(folder)
        raise


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes from making or removing the folder meanwhile."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
