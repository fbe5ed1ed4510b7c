"""Files that are replaced atomically."""

import os
from pathlib import Path

import pytest

from innet.machine.replaced_file import replace_file


def test_the_new_content_is_on_disk_before_the_old_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, seen = tmp_path / "revoked.txt", []

    def fsync(descriptor: int) -> None:
        seen.append((os.fstat(descriptor).st_size, path.read_bytes()))

    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(path, b"newer", 0o644)
    assert seen == [(5, b"old")]
    assert path.read_bytes() == b"newer"
