"""Every gRPC link under TLS: authentication, roles, and the errors for all others."""

import contextlib
import shutil
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from authorities import expired, forget_roles, mixed, unchecked
from commands import refuse, run, serving

from innet.controller.server import ControllerServer
from innet.errors import ControllerUnreachable, InnetError, NotAuthorized, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls
from innet.rpc.certificates import make
from innet.rpc.client import connect, translated

HERE = "127.0.0.1"
NOT_ITS_NAME = "127.0.0.2"
ANSWERS_WITHIN, SOON = 120.0, 1.0
METHODS = [each.name for each in pb.DESCRIPTOR.services_by_name["Controller"].methods]
STREAMS = ("Join",)


@pytest.fixture(scope="module")
def controller(folder: Path) -> Iterator[str]:
    """Run a controller with TLS."""
    with serving_here(folder) as address:
        yield address


@contextlib.contextmanager
def serving_here(folder: Path | None, host: str = HERE) -> Iterator[str]:
    """Run a controller in this process, with TLS if there is a folder."""
    identity = tls.load(folder, tls.CONTROLLER) if folder else None
    server = ControllerServer(f"{host}:0", identity)
    try:
        yield f"{host}:{server.port}"
    finally:
        server.close()


@contextlib.contextmanager
def client(
    address: str, folder: Path | None, role: str = tls.ADMIN, within: float = ANSWERS_WITHIN
) -> Iterator[Any]:
    """Yield a stub at the controller, with a role's certificate."""
    identity = tls.load(folder, role) if folder else None
    channel, stub = connect(address, within, identity)
    with contextlib.closing(channel):
        yield stub


def ask(stub: Any, method: str) -> None:
    """Call a method with an empty request."""
    call = getattr(stub, method)
    with translated("ask"):
        if method in STREAMS:
            next(call(iter(()), timeout=ANSWERS_WITHIN), None)
        else:
            call(getattr(pb, f"{method}Request")(), timeout=ANSWERS_WITHIN)


def allowed(stub: Any, method: str) -> bool:
    """Return whether the caller's role allows the method, which may then reject the request."""
    try:
        ask(stub, method)
    except NotAuthorized as problem:
        return "needs the certificate of" not in str(problem)
    except InnetError:
        pass
    return True


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (tls.ADMIN, METHODS),
        (tls.WORKER, ["Join", "CheckJoin"]),
        (tls.CONTROLLER, ["ListSwitches", "GetSwitch", "ListJobs", "GetJob", "GetJobHistory"]),
    ],
)
def test_a_role_reaches_its_methods_and_no_others(
    controller, folder, role: str, expected: list[str]
):
    with client(controller, folder, role) as stub:
        assert [method for method in METHODS if allowed(stub, method)] == expected


def test_a_worker_that_administers_is_told_what_it_needs(controller: str, folder: Path):
    why = "cannot ask: DeleteJob needs the certificate of an administrator or a user, .* is for: worker"
    with client(controller, folder, tls.WORKER) as stub, pytest.raises(NotAuthorized, match=why):
        ask(stub, "DeleteJob")


def test_a_certificate_without_a_role_may_do_nothing(controller: str, folder: Path, tmp_path: Path):
    without = tmp_path / "without"
    shutil.copytree(folder, without)
    forget_roles(without)
    with client(controller, without) as stub:
        assert not [method for method in METHODS if allowed(stub, method)]
        with pytest.raises(NotAuthorized, match="the one shown names no role"):
            ask(stub, "ListJobs")


def test_a_switchs_certificate_is_no_clients(controller: str, folder: Path):
    why = r"refuses .*switch.pem: it has to be for this use"
    with pytest.raises(NotAuthorized, match=why), client(controller, folder, tls.SWITCH):
        pass


def test_a_client_in_plain_text_is_told_so(controller: str):
    why = f"the controller at {controller} speaks only TLS: name the folder with the certificates"
    with pytest.raises(NotAuthorized, match=why), client(controller, None):
        pass


def test_a_client_with_tls_at_a_controller_without_is_told_so(folder: Path):
    with (
        serving_here(None) as plain,
        pytest.raises(NotAuthorized, match="does not speak TLS: start it with --tls"),
        client(plain, folder),
    ):
        pass


def test_a_client_does_not_believe_a_controller_of_another_authority(controller, foreign: Path):
    why = (
        r"has a certificate that .*ca.pem does not stand for .*: are both sides' files of the same"
    )
    with pytest.raises(NotAuthorized, match=why), client(controller, foreign):
        pass


@pytest.mark.parametrize("role", [tls.ADMIN, tls.WORKER])
def test_a_controller_does_not_believe_a_client_of_another_authority(
    controller: str, folder: Path, foreign: Path, tmp_path: Path, role: str
):
    stranger = mixed(tmp_path, folder, foreign)
    with (
        pytest.raises(NotAuthorized, match=rf"refuses .*{role}.pem"),
        client(controller, stranger, role),
    ):
        pass


def test_a_worker_cannot_make_itself_an_administrator(controller, folder: Path, tmp_path: Path):
    """Renaming its files to an administrator's does not help."""
    stranger = tmp_path / "worker"
    stranger.mkdir()
    for path in tls.files(folder, tls.WORKER):
        shutil.copy(path, stranger)
    shutil.copy(stranger / "worker.pem", stranger / "admin.pem")
    shutil.copy(stranger / "worker-key.pem", stranger / "admin-key.pem")
    with client(controller, stranger, tls.ADMIN) as stub:
        assert not allowed(stub, "CreateJob")


def test_a_controller_whose_certificate_has_expired_is_named(folder: Path, tmp_path: Path):
    late = expired(tmp_path, folder)
    with careless_server(late) as address:
        why = f"the controller at {address} has a certificate that has expired: make a new one"
        with pytest.raises(NotAuthorized, match=why), client(address, folder):
            pass


def test_a_client_whose_certificate_has_expired_is_refused_also_if_it_does_not_look(
    controller: str, folder: Path, tmp_path: Path
):
    late = expired(tmp_path, folder)
    with pytest.raises(NotAuthorized, match=r"admin.pem cannot be used: certificate has expired"):
        tls.load(late, tls.ADMIN)
    assert careless_call(controller, late, tls.ADMIN) == grpc.StatusCode.UNAVAILABLE


def test_a_controller_under_another_name_is_not_believed(folder: Path):
    why = f"has a certificate for other names than {NOT_ITS_NAME}: make one .*--host {NOT_ITS_NAME}"
    with (
        serving_here(folder, NOT_ITS_NAME) as address,
        pytest.raises(NotAuthorized, match=why),
        client(address, folder),
    ):
        pass


def test_nobody_is_not_mistaken_for_somebody_who_refuses(folder: Path):
    for own in (folder, None):
        with pytest.raises(ControllerUnreachable), client("127.0.0.1:1", own, within=SOON):
            pass


@pytest.mark.parametrize("wrong", ["127.0.0.1", "127.0.0.1:1,127.0.0.1", "127.0.0.1:x", ","])
def test_an_address_without_a_port_is_an_error_before_anybody_is_asked(wrong: str):
    with pytest.raises(UsageError, match=r"the controller's address '.*' is not HOST:PORT"):
        connect(wrong)


def test_without_a_certificate_there_is_no_answer_and_the_others_are_still_served(
    controller: str, folder: Path
):
    for channel in (
        grpc.insecure_channel(controller),
        grpc.secure_channel(
            controller, grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
        ),
    ):
        with contextlib.closing(channel), pytest.raises(grpc.RpcError) as caught:
            rpc.ControllerStub(channel).ListJobs(pb.ListJobsRequest(), timeout=ANSWERS_WITHIN)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    with client(controller, folder) as stub:
        ask(stub, "ListJobs")


def test_new_certificates_count_without_a_restart(folder: Path, tmp_path: Path):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    with serving_here(own) as address:
        make(own, [], force=True)
        with client(address, own) as stub:
            ask(stub, "ListJobs")
        with pytest.raises(NotAuthorized), client(address, folder):
            pass


def test_two_authorities_at_once_are_believed_while_one_takes_over(folder, foreign, tmp_path: Path):
    both = tmp_path / "both"
    shutil.copytree(folder, both)
    for name in ("ca.pem", "workers-ca.pem"):
        (both / name).write_bytes((folder / name).read_bytes() + (foreign / name).read_bytes())
    new = mixed(tmp_path, both, foreign)
    with serving_here(both) as old_server, serving_here(new) as new_server:
        for address in (old_server, new_server):
            for own in (both, new):
                with client(address, own, tls.ADMIN) as stub:
                    ask(stub, "ListJobs")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", ":0", "10.0.0.1:0", "example.com:0"])
def test_other_machines_are_not_served_in_plain_text_unless_told_to(address: str):
    with pytest.raises(
        UsageError, match=r"give certificates with --tls, which .* or say --insecure"
    ):
        ControllerServer(address)


def test_what_is_no_address_is_called_that():
    with pytest.raises(UsageError, match="--address 'foo' is not HOST:PORT"):
        ControllerServer("foo")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.1.2.3:0", "[::1]:0", "localhost:0"])
def test_this_machine_is_served_in_plain_text(address: str):
    server = ControllerServer(address)
    server.close()


def test_the_commands_use_tls_by_option_and_by_variable(folder: Path, foreign: Path):
    refuse("give certificates with --tls", "innet", "controller", "--address", "0.0.0.0:0")
    with serving("--tls", str(folder)) as (_, address):
        command = ("job", "list", "--controller", address)
        assert run("innet", *command, "--tls", str(folder)).returncode == 0
        assert run("innet", *command, INNET_TLS=str(folder)).returncode == 0
        refuse("speaks only TLS: name the folder", "innet", *command)
        refuse("does not stand for", "innet", *command, "--tls", str(foreign))
    with serving("--insecure", "--address", "0.0.0.0:0") as (_, address):
        here = f"{HERE}:{address.rpartition(':')[2]}"
        assert run("innet", "job", "list", "--controller", here).returncode == 0
    refuse("there is no nowhere/ca.pem", "innet", "job", "list", "--tls", "nowhere")


@contextlib.contextmanager
def careless_server(folder: Path) -> Iterator[str]:
    """Run a server that shows the controller's certificate without having checked it."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    credentials = unchecked(folder, tls.CONTROLLER).server_credentials()
    port = server.add_secure_port(f"{HERE}:0", credentials)
    server.start()
    try:
        yield f"{HERE}:{port}"
    finally:
        server.stop(None).wait()


def careless_call(address: str, folder: Path, role: str) -> grpc.StatusCode:
    """Return how a call ends whose client has not checked its own certificate."""
    credentials = unchecked(folder, role).channel_credentials()
    with (
        grpc.secure_channel(address, credentials) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        rpc.ControllerStub(channel).ListJobs(pb.ListJobsRequest(), timeout=ANSWERS_WITHIN)
    return caught.value.code()
