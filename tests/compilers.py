"""P4 compilers on the PATH, for tests that compile the committed programs again."""

import shutil

import pytest

from innet.p4.compile import compiler_version
from innet.p4.versions import CompilerVersion


def needs_compiler(recorded: str) -> None:
    """Skip the test unless a compiler on the PATH should make the same files as the recorded one."""
    wanted = CompilerVersion.recorded(recorded)
    if not shutil.which(wanted.name):
        pytest.skip(f"{wanted.name} is not on the PATH")
    found = compiler_version(wanted.name)
    if not found.should_agree(wanted):
        pytest.skip(f"{wanted} made the programs, and {found} is on the PATH")
