"""The fixtures that tests of the whole share."""

import pytest
from wheels import Built, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the sdist and the wheel."""
    return build(tmp_path_factory.mktemp("built"))
