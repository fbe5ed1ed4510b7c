"""P4Runtime over TLS, with the options and meanings of simple_switch_grpc."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import compared_switches
import grpc
import pytest
from p4runtime_client import Controller
from switches import COMMAND, running_switch
from waiting import WITHIN

from innet.errors import UsageError
from innet.p4runtime import code_pb2, p4runtime_pb2_grpc
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.rpc.issued import revoke
from innet.switch.p4runtime import admission
from innet.switch.p4runtime.arbitration import Arbitration
from innet.switch.p4runtime.credentials import TlsFiles
from innet.switch.p4runtime.device import Device
from innet.switch.p4runtime.service import P4RuntimeService, bound


@pytest.fixture(scope="module")
def pems(tmp_path_factory) -> Path:
    """Make certificates: for a switch, for a client, and for a client of another authority."""
    folder = tmp_path_factory.mktemp("tls")
    make(folder, [])
    return folder


def options(pems: Path) -> list[str]:
    return [
        "--grpc-server-ssl",
        "--grpc-server-cert", str(pems / "switch.pem"),
        "--grpc-server-key", str(pems / "switch-key.pem"),
        "--grpc-server-cacert", str(pems / "ca.pem"),
    ]  # fmt: skip


@contextlib.contextmanager
def innet_switch(*arguments: str) -> Iterator[str]:
    with running_switch(0, *arguments) as switch:
        yield switch.address


@contextlib.contextmanager
def bmv2(*arguments: str) -> Iterator[str]:
    """Run BMv2 at a given address, because it does not print its own."""
    if not compared_switches.available():
        pytest.skip(f"there is no {compared_switches.BMV2} on the PATH")
    port = free_port()
    command = [compared_switches.BMV2, "--no-p4", "--", "--grpc-server-addr", f"127.0.0.1:{port}"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL) as process:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


SWITCHES = {"innet-switch": innet_switch, "BMv2": bmv2}


def client(pems: Path, role: str | None = None) -> grpc.ChannelCredentials:
    """Return a client that trusts the switch's authority, with a certificate if it has a role."""
    pair = (pems / f"{role}-key.pem", pems / f"{role}.pem") if role else ()
    return grpc.ssl_channel_credentials(
        (pems / "ca.pem").read_bytes(), *(path.read_bytes() for path in pair)
    )


def ask(address: str, credentials: grpc.ChannelCredentials | None, *, wait: bool) -> None:
    """Call the switch, and with `wait` wait until it is ready."""
    retry = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
    with (
        grpc.secure_channel(address, credentials, retry)
        if credentials
        else grpc.insecure_channel(address, retry)
    ) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        stub.Capabilities(p4rt.CapabilitiesRequest(), timeout=WITHIN, wait_for_ready=wait)


def assert_served(address: str, credentials: grpc.ChannelCredentials | None) -> None:
    ask(address, credentials, wait=True)


def assert_refused(address: str, credentials: grpc.ChannelCredentials | None) -> None:
    """Check that the switch is there, and refuses this client."""
    with pytest.raises(grpc.RpcError) as problem:
        ask(address, credentials, wait=False)
    assert problem.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("switch", SWITCHES)
def test_over_tls_only_clients_that_speak_it_are_served(switch, pems, tmp_path):
    make(tmp_path, [])
    with SWITCHES[switch](*options(pems)) as address:
        assert_served(address, client(pems))
        assert_served(address, client(pems, "admin"))
        assert_refused(address, None)
        assert_refused(address, client(tmp_path))  # the client does not trust the switch


@pytest.mark.parametrize("switch", SWITCHES)
def test_if_clients_are_asked_only_those_of_the_authority_are_served(switch, pems):
    arguments = [*options(pems), "--grpc-server-with-client-auth"]
    with SWITCHES[switch](*arguments) as address:
        assert_served(address, client(pems, "admin"))
        assert_refused(address, client(pems))
        assert_refused(address, client(pems, "worker"))  # of another authority
        assert_refused(address, None)


def test_a_revoked_client_is_refused_and_its_stream_ends(tmp_path: Path):
    make(tmp_path, [])
    for name in ("alice", "mallory"):
        issue(tmp_path, name, [tls.ADMIN])
    alice, mallory = (
        grpc.ssl_channel_credentials(
            *(
                (tmp_path / name / each).read_bytes()
                for each in ("ca.pem", "admin-key.pem", "admin.pem")
            )
        )
        for name in ("alice", "mallory")
    )
    with (
        innet_switch(*options(tmp_path), "--grpc-server-with-client-auth") as address,
        Controller(address, election=1, credentials=alice) as backup,
        Controller(address, election=2, credentials=mallory) as primary,
    ):
        assert backup.hear().arbitration.status.code == code_pb2.ALREADY_EXISTS
        revoke(tmp_path, "mallory")
        request = p4rt.CapabilitiesRequest()
        with pytest.raises(grpc.RpcError) as refused:
            primary.stub.Capabilities(request, timeout=WITHIN)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert "this certificate has been revoked" in refused.value.details()
        with pytest.raises(grpc.RpcError) as ended:
            primary.hear()
        assert ended.value.code() == grpc.StatusCode.CANCELLED
        assert backup.hear().arbitration.status.code == code_pb2.NOT_FOUND  # the primary has gone
        backup.stub.Capabilities(request, timeout=WITHIN)
        with (
            pytest.raises(grpc.RpcError) as refused,
            Controller(address, credentials=mallory) as again,
        ):
            again.arbitrate(3)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_requests_of_a_revoked_client_are_not_even_parsed(tmp_path: Path, monkeypatch):
    """To parse tens of megabytes can take a minute, in which nobody else is answered."""
    make(tmp_path, [])
    parsed: list[int] = []
    fields = admission._fields
    monkeypatch.setattr(
        admission, "_fields", lambda content: parsed.append(len(content)) or fields(content)
    )
    files = TlsFiles(
        tmp_path / "switch.pem", tmp_path / "switch-key.pem", tmp_path / "ca.pem", True
    )
    arbitration = Arbitration(0)
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(contextlib.closing(Device([], 510, arbitration.send)))
        service = P4RuntimeService(device, arbitration)
        server, port = bound(service, "127.0.0.1:0", files.credentials(), files.revocations())
        server.start()
        stack.callback(lambda: server.stop(grace=None).wait())
        channel = grpc.secure_channel(f"127.0.0.1:{port}", client(tmp_path, "admin"))
        write = stack.enter_context(channel).unary_unary("/p4.v1.P4Runtime/Write")

        def refusal() -> grpc.StatusCode:
            with pytest.raises(grpc.RpcError) as refused:
                write(bytes([8, 0]) * 1000, timeout=WITHIN)
            return refused.value.code()

        assert refusal() == grpc.StatusCode.PERMISSION_DENIED  # it is not the primary
        assert parsed
        parsed.clear()
        revoke(tmp_path, "admin")
        assert refusal() == grpc.StatusCode.PERMISSION_DENIED
        assert not parsed


def test_a_list_that_cannot_be_read_is_named_at_the_start(pems: Path, tmp_path: Path):
    shutil.copytree(pems, tmp_path / "tls")
    (tmp_path / "tls/revoked.txt").write_text("mallory\n")
    files = TlsFiles(tmp_path / "tls/switch.pem", tmp_path / "tls/switch-key.pem", client_auth=True)
    with pytest.raises(UsageError, match="line 1 is neither a comment nor tbs:"):
        files.revocations()


@pytest.mark.parametrize("switch", SWITCHES)
def test_without_ssl_the_files_are_not_used(switch, pems):
    with SWITCHES[switch](*options(pems)[1:]) as address:
        assert_served(address, None)
        assert_refused(address, client(pems))


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("--grpc-server-cert", "--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key"),
        ("--grpc-server-key", "--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key"),
        ("--grpc-server-cacert", "--grpc-server-with-client-auth needs --grpc-server-cacert"),
    ],
)
def test_a_file_that_is_needed_and_not_given_is_asked_for(missing, words, pems):
    given = options(pems)
    at = given.index(missing)
    del given[at : at + 2]
    given += ["--grpc-server-with-client-auth", "--grpc-server-addr", "127.0.0.1:0"]
    done = subprocess.run(
        [COMMAND, "--no-p4", *given],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_files_that_are_not_what_they_should_be_are_named(pems, tmp_path):
    make(tmp_path, [])
    good = TlsFiles(pems / "switch.pem", pems / "switch-key.pem", pems / "ca.pem", True)
    assert good.credentials()
    nowhere, nonsense = tmp_path / "nowhere.pem", tmp_path / "nonsense.pem"
    nonsense.write_text("not a certificate")
    nonsense.chmod(0o600)
    shutil.copy(tmp_path / "switch-key.pem", other_key := tmp_path / "other-key.pem")
    cases = {
        TlsFiles(nowhere, good.key): f"cannot read {nowhere}: No such file",
        TlsFiles(
            good.certificate, nonsense
        ): f"and {nonsense} are not a certificate in PEM and its",
        TlsFiles(good.certificate, other_key): f"and {other_key} are not a certificate in PEM and",
        TlsFiles(good.certificate, good.key, nonsense): f"{nonsense} is not a certificate in PEM",
    }
    for files, words in cases.items():
        with pytest.raises(UsageError, match=words):
            files.credentials()
