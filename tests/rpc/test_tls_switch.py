"""The link to the switch under TLS, and all links together.

innet-switch and BMv2 obey the controller and administrators, and nobody else.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import grpc
import numpy as np
import pytest
from aggregation_rack import PROGRAM
from authorities import expired, mixed, tls_options, unchecked
from commands import run, serving
from racks import free_cables, means
from switches import running_switch

from innet.controller.switches.p4runtime import SwitchConnection
from innet.errors import NotAuthorized, SwitchError
from innet.host.join import join
from innet.local.ports import free_tcp_port
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc
from innet.rpc import channels, tls

BMV2 = "simple_switch_grpc"
ANSWERS_WITHIN = 120.0


@contextlib.contextmanager
def innet_switch(*options: str) -> Iterator[str]:
    with running_switch(0, *options) as switch:
        yield switch.address


@contextlib.contextmanager
def bmv2(*options: str) -> Iterator[str]:
    if not shutil.which(BMV2):
        pytest.skip(f"there is no {BMV2} (BMv2) on the PATH")
    address = f"127.0.0.1:{free_tcp_port()}"
    command = [BMV2, "--no-p4", "--device-id", "0", "--", "--grpc-server-addr", address, *options]
    with subprocess.Popen(command) as process:
        try:
            yield address
        finally:
            process.terminate()


Start = Callable[..., AbstractContextManager[str]]
SWITCHES = pytest.mark.parametrize("start", [innet_switch, bmv2])


@contextlib.contextmanager
def connected(address: str, identity: tls.Identity | None) -> Iterator[SwitchConnection]:
    connection = SwitchConnection(address, 0, PROGRAM.p4info, lambda *_: None, identity)
    try:
        yield connection
    finally:
        connection.close()


def refused(why: str) -> AbstractContextManager[object]:
    return pytest.raises(SwitchError, match=why)


@SWITCHES
def test_a_switch_obeys_the_controllers_certificate_and_no_other(
    start: Start, folder: Path, foreign: Path, tmp_path: Path
):
    stranger = mixed(tmp_path, folder, foreign)
    with start(*tls_options(folder)) as address:
        with connected(address, tls.load(folder, tls.CONTROLLER)) as connection:
            connection.run(PROGRAM.json)
            entry = connection.names.entry("bridge", {"destination": 1}, "forward", {"port": 1})
            connection.insert(entry)
            for identity in (
                unchecked(stranger, tls.CONTROLLER),
                unchecked(expired(tmp_path, folder), tls.CONTROLLER),
                unchecked(folder, tls.WORKER),
                unchecked(folder, tls.SWITCH),
                None,
            ):
                assert capabilities(address, identity) == grpc.StatusCode.UNAVAILABLE
            with refused("update 0"):
                connection.insert(entry)  # it is still there, and so is the connection
        assert capabilities(address, unchecked(folder, tls.ADMIN)) == grpc.StatusCode.OK


@SWITCHES
def test_a_controller_is_told_why_it_does_not_come_together_with_a_switch(
    start: Start, folder: Path, foreign: Path, tmp_path: Path
):
    stranger = mixed(tmp_path, folder, foreign)
    with start(*tls_options(folder)) as address:
        own = tls.load(folder, tls.CONTROLLER)
        for why, where, identity in (
            ("does not stand for", address, tls.load(foreign, tls.CONTROLLER)),
            (r"refuses .*controller.pem", address, tls.load(stranger, tls.CONTROLLER)),
            (
                "speaks only TLS: .* `innet controller` with --tls .* `innet deploy` with --tls",
                address,
                None,
            ),
            ("speaks only TLS: .* without --insecure", tls.INSECURE + address, own),
        ):
            with refused(f"the switch at {address} .*{why}"), connected(where, identity):
                pass


@SWITCHES
def test_a_switch_without_tls_is_spoken_to_only_if_the_address_says_so(start: Start, folder: Path):
    with start() as address:
        own = tls.load(folder, tls.CONTROLLER)
        with connected(tls.INSECURE + address, own) as connection:
            connection.run(PROGRAM.json)
        with (
            refused(r"does not speak TLS: .* with --insecure, `innet deploy` without --tls"),
            connected(address, own),
        ):
            pass


def test_gradients_are_summed_with_tls_on_every_link(folder: Path, tmp_path: Path):
    token = tmp_path / "token"
    with (
        running_switch(2, *tls_options(folder)) as switch,
        serving("--tls", str(folder)) as (_, controller),
    ):
        for command in (
            ("switch", "add", "tor", switch.address, "--ports", "1-2"),
            (
                "job",
                "create",
                "job",
                "--switch",
                "tor",
                "--workers",
                "2",
                "--token-file",
                str(token),
            ),
        ):
            done = run("innet", *command, INNET_CONTROLLER=controller, INNET_TLS=str(folder))
            assert done.returncode == 0, done.stderr
        links, own = free_cables(switch), {"token": token.read_text().strip(), "tls": folder}
        with pytest.raises(NotAuthorized, match="speaks only TLS"):
            join(controller, "job", 0, links[0], token=own["token"], timeout=ANSWERS_WITHIN)
        with (
            join(controller, "job", 0, links[0], **own) as first,
            join(controller, "job", 1, links[1], **own) as second,
        ):
            for mean in means(
                [first, second], np.full(1000, 1, np.float32), np.full(1000, 3, np.float32)
            ):
                assert mean.tolist() == [2.0] * 1000


def capabilities(address: str, identity: tls.Identity | None) -> grpc.StatusCode:
    """Return the status code of asking a switch for its version."""
    with channels.channel(address, identity) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        try:
            stub.Capabilities(p4rt.CapabilitiesRequest(), timeout=ANSWERS_WITHIN)
        except grpc.RpcError as problem:
            return problem.code()
    return grpc.StatusCode.OK
