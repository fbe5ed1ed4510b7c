"""Servers that run on use renewed certificates, however these come into the folder."""

import contextlib
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from authorities import tls_options
from structlog.testing import capture_logs
from switches import running_switch
from waiting import WITHIN

from innet.controller.server import ControllerServer
from innet.rpc import tls
from innet.rpc.certificates import make
from innet.rpc.renewal import Renewal
from innet.servers import pbox


@contextlib.contextmanager
def controller(folder: Path) -> Iterator[int]:
    server = ControllerServer("127.0.0.1:0", tls.load(folder, tls.CONTROLLER))
    yield server.port
    server.close()


@contextlib.contextmanager
def parameter_server(folder: Path) -> Iterator[int]:
    with pbox.Server(tls=folder) as server:
        yield server.port


@contextlib.contextmanager
def switch(folder: Path) -> Iterator[int]:
    with running_switch(0, *tls_options(folder)) as process:
        yield int(process.address.rpartition(":")[2])


SERVERS = {"controller": controller, "innet-switch": switch, "parameter server": parameter_server}


def shown(port: int, folder: Path) -> bytes:
    """Return the certificate that a server shows to the administrator of `folder`, in DER.

    Raises OSError if either of them refuses the other.
    """
    context = tls.load(folder, tls.ADMIN).client_context()
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), WITHIN) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert(binary_form=True)
        assert found
        # In TLS 1.3, a server refuses after the client's handshake: Python's with an alert, and gRPC's by
        # ending the connection, where it would have answered HTTP/2's preface.
        secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
        if not secured.recv(1) and secured.selected_alpn_protocol():
            raise ConnectionAbortedError
    return found


def expected(server: str, folder: Path) -> bytes:
    role = tls.SWITCH if server == "innet-switch" else tls.CONTROLLER
    return ssl.PEM_cert_to_DER_cert(tls.certificate_path(folder, role).read_text())


def write_over(old: Path, new: Path) -> None:
    for path in new.glob("*.*"):
        (old / path.name).write_bytes(path.read_bytes())


def replace(old: Path, new: Path) -> None:
    for path in new.glob("*.*"):
        shutil.copy(path, old / "half")
        (old / "half").replace(old / path.name)


@pytest.mark.parametrize("put", [write_over, replace])
@pytest.mark.parametrize("server", SERVERS)
def test_the_next_connection_uses_what_is_in_the_folder(
    server: str, put: Callable[[Path, Path], None], tmp_path: Path
):
    old, new = tmp_path / "old", tmp_path / "new"
    make(old, [])
    shutil.copytree(old, new)
    make(new, [])
    with SERVERS[server](old) as port:
        before = shown(port, old)
        assert before == expected(server, old)
        put(old, new)
        assert before != shown(port, old) == expected(server, new)


@pytest.mark.parametrize("server", SERVERS)
def test_new_authorities_are_trusted_and_old_ones_are_not(server: str, tmp_path: Path):
    folder, before = tmp_path / "now", tmp_path / "before"
    make(folder, [])
    shutil.copytree(folder, before)
    with SERVERS[server](folder) as port:
        shown(port, folder)
        make(folder, [], force=True)
        assert shown(port, folder) == expected(server, folder)
        for path in (tls.certificate_path, tls.key_path):  # it trusts the server, which refuses it
            shutil.copy(path(before, tls.ADMIN), folder)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shown(port, folder)


@pytest.mark.parametrize("server", SERVERS)
def test_files_that_do_not_fit_together_change_nothing_until_they_do(server: str, tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    make(old, [])
    shutil.copytree(old, new)
    make(new, [])
    role = tls.SWITCH if server == "innet-switch" else tls.CONTROLLER
    key, certificate = (path(old, role) for path in (tls.key_path, tls.certificate_path))
    with SERVERS[server](old) as port:
        before = shown(port, old)
        key.write_bytes((new / key.name).read_bytes())
        assert shown(port, old) == before
        certificate.write_text("half of it")
        assert shown(port, old) == before
        certificate.unlink()
        assert shown(port, old) == before
        shutil.copy(new / certificate.name, certificate)
        assert shown(port, old) == expected(server, new)


@pytest.mark.parametrize("server", SERVERS)
def test_a_new_key_that_others_can_read_is_not_used(server: str, tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    make(old, [])
    shutil.copytree(old, new)
    make(new, [])
    role = tls.SWITCH if server == "innet-switch" else tls.CONTROLLER
    key = tls.key_path(old, role)
    with SERVERS[server](old) as port:
        before = shown(port, old)
        key.chmod(0o644)
        write_over(old, new)
        assert shown(port, old) == before
        key.chmod(0o600)
        key.write_bytes(key.read_bytes() + b"\n")  # only its content is looked at
        assert shown(port, old) == expected(server, new)


def test_no_session_can_be_resumed(tmp_path: Path):
    """A session that is resumed would outlive the trust in the authority of its certificate."""
    make(tmp_path, [])
    context = tls.load(tmp_path, tls.WORKER).client_context()
    server = tls.load(tmp_path, tls.CONTROLLER).server_context()
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        context.wrap_bio(back, there, server_hostname="127.0.0.1"),
        server.wrap_bio(there, back, server_side=True),
    ]
    for end in (0, 1, 0, 1):
        with contextlib.suppress(ssl.SSLWantReadError):
            ends[end].do_handshake()
    ends[1].write(b"x")
    assert ends[0].read() == b"x"  # after all tickets
    assert ends[0].version() == "TLSv1.3"
    assert ends[0].session
    assert not ends[0].session.has_ticket


def test_the_problem_with_changed_files_is_logged_once(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("1")

    def number() -> int:
        try:
            return int(path.read_text())
        except ValueError as problem:
            raise OSError(str(problem)) from None

    renewal = Renewal([path], number)
    assert not renewal.look()
    with capture_logs() as said:
        path.write_text("nonsense")
        assert not renewal.look()
        assert not renewal.look()
        path.write_text("2")
        assert renewal.look()
        assert not renewal.look()
    assert renewal.newest == 2
    assert [(each["log_level"], each["event"]) for each in said] == [
        ("warning", "changed files cannot be used"),
        ("info", "changed files are used"),
    ]
    assert "nonsense" in said[0]["problem"]
