"""Files with secrets, which no other user may read or write."""

import os
from pathlib import Path

import pytest

from innet.errors import UsageError
from innet.machine import private
from innet.machine.private import read_secret
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.switch.p4runtime.credentials import TlsFiles


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o602, 0o660, 0o620])
def test_a_secret_that_others_can_use_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / "secret"
    path.write_text("secret")
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"can be used by other users .mode {mode:o}"):
        read_secret(path)
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)  # as in Kubernetes
    assert read_secret(tmp_path / "link") == b"secret"


def test_a_secret_of_another_user_is_refused_and_that_of_roots_group_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "secret"
    path.write_text("secret")
    path.chmod(0o600)
    owner = path.stat().st_uid
    monkeypatch.setattr(private, "_ROOT", owner)
    path.chmod(0o640)
    assert read_secret(path, roots_group=True) == b"secret"
    with pytest.raises(UsageError, match="can be used by other users"):
        read_secret(path)
    monkeypatch.setattr(private, "_ROOT", owner + 1)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 2)
    with pytest.raises(UsageError, match=f"belongs to user {owner}"):
        read_secret(path)


def test_keys_that_others_can_read_are_refused(tmp_path: Path):
    make(tmp_path, [])
    for role in (tls.CONTROLLER, tls.WORKER):
        tls.key_path(tmp_path, role).chmod(0o644)
        with pytest.raises(UsageError, match=f"{role}-key.pem is a secret"):
            tls.load(tmp_path, role)
    tls.key_path(tmp_path, tls.SWITCH).chmod(0o644)
    files = TlsFiles(tls.certificate_path(tmp_path, tls.SWITCH), tls.key_path(tmp_path, tls.SWITCH))
    with pytest.raises(UsageError, match=r"switch-key.pem is a secret"):
        files.credentials()
    tls.key_path(tmp_path, tls.WORKERS_AUTHORITY).chmod(0o644)
    with pytest.raises(UsageError, match=r"workers-ca-key.pem is a secret"):
        issue(tmp_path, "alice", [tls.USER])
