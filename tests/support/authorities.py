"""Folders with faulty certificates."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from innet.rpc import tls
from innet.rpc.certificates import make


def mixed(tmp_path: Path, authorities: Path, rest: Path) -> Path:
    """Return a folder that trusts one authority, and has certificates of another."""
    path = tmp_path / "mixed"
    shutil.copytree(rest, path)
    for name in ("ca.pem", "workers-ca.pem"):
        shutil.copy(authorities / name, path)
    return path


def expired(tmp_path: Path, folder: Path) -> Path:
    """Return a folder with the same authorities, but with expired certificates."""
    path = tmp_path / "expired"
    shutil.copytree(folder, path)
    make(path, [], timedelta(seconds=-1))
    return path


def forget_roles(folder: Path) -> None:
    """Renew all certificates with roles that innet does not know."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tls, "role_uri", lambda role: f"https://example.com/{role}")
        make(folder, [])


def unchecked(folder: Path, role: str) -> tls.Identity:
    """Return the identity of a role in a folder, without any check."""
    certificate, key = tls.certificate_path(folder, role), tls.key_path(folder, role)
    authorities = tuple(tls.authorities(folder, role))
    return tls.Identity(certificate, key, authorities, datetime.max.replace(tzinfo=UTC))


def tls_options(folder: Path) -> list[str]:
    """Return the options that make either switch accept only clients with a certificate."""
    return [
        *("--grpc-server-ssl", "--grpc-server-with-client-auth"),
        *("--grpc-server-cacert", str(folder / "ca.pem")),
        *("--grpc-server-cert", str(folder / "switch.pem")),
        *("--grpc-server-key", str(folder / "switch-key.pem")),
    ]
