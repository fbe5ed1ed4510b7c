"""The fixtures that tests of the whole share."""

from collections.abc import Iterator
from functools import partial

import pytest
from installation import Installation, install
from sharing import common_folder, shared_folder
from wheels import Built, build, built_in


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Build the sdist and the wheel, once for all processes of the tests."""
    with shared_folder(common_folder(tmp_path_factory) / "built", build) as folder:
        yield built_in(folder)


@pytest.fixture(scope="session")
def installation(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Install the wheel beside other packages, once for all processes of the tests."""
    folder = common_folder(tmp_path_factory) / "installation"
    with shared_folder(folder, partial(install, built)):
        yield Installation(folder)
