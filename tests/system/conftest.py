"""The fixtures that tests of the whole share."""

import fcntl
import os

import pytest
from wheels import Built, build, built_in


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the sdist and the wheel, once for all processes of the tests."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return build(tmp_path_factory.mktemp("built"))
    shared = tmp_path_factory.getbasetemp().parent / "built"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            folder = tmp_path_factory.mktemp("built")
            build(folder)
            folder.rename(shared)
    return built_in(shared)
