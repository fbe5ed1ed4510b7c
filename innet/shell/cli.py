"""The command ``innet shell``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.client import DEFAULT_ADDRESS, connected, translated
from innet.terminal.options import ControllerAddress, TlsFolder


def shell(
    switch: Annotated[str, typer.Argument(help="A switch that the controller knows.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Look at a switch with p4runtime-shell: its tables, groups and counters.

    The controller stays in charge of the switch, so the shell can only read. If
    p4runtime-shell is not installed beside innet, the first call installs it in
    the user's cache, in an environment of its own.
    """
    from innet.shell.environment import MODULE, python

    with connected(address, tls_folder) as stub, translated("find the switch"):
        found = stub.GetSwitch(pb.GetSwitchRequest(name=switch))
    started = [*python(), "-m", MODULE, *_options(found, tls_folder)]
    os.execv(started[0], started)  # noqa: S606 - it is no shell of the system


def _options(switch: pb.Switch, tls_folder: Path | None) -> list[str]:
    """Return the shell's options for a switch."""
    host = switch.grpc_address.removeprefix(tls.INSECURE)
    options = ["--grpc-addr", host, "--device-id", str(switch.device_id)]
    # Lower than the controller's id, which is a time. Every client needs an id of its own.
    options += ["--election-id", f"0,{os.getpid()}"]
    if tls_folder and host == switch.grpc_address:
        authority, *_ = tls.authorities(tls_folder, tls.ADMIN)
        certificate = tls.certificate_path(tls_folder, tls.ADMIN)
        key = tls.key_path(tls_folder, tls.ADMIN)
        options += ["--ssl", "--cacert", str(authority), "--cert", str(certificate)]
        options += ["--private-key", str(key)]
    return options
