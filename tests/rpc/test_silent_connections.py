"""Silent connections leave a server the file descriptors that it needs for its other files."""

import contextlib
import socket
from pathlib import Path

import pytest
from commands import BIN
from waiting import WITHIN, until

from innet.errors import InnetError, NotAuthorized
from innet.local.processes import announced, spawned
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.rpc.client import connected, translated
from innet.rpc.issued import revoke

DESCRIPTORS, CONNECTIONS = 700, 800


def test_a_revocation_counts_while_silent_connections_fill_the_controller(tmp_path: Path):
    make(tmp_path, [])
    for name in ("alice", "bob"):
        issue(tmp_path, name, [tls.USER])
    controller = f"{BIN}/innet controller --address 127.0.0.1:0 --tls {tmp_path}"
    limited = ["bash", "-c", f"ulimit -n {DESCRIPTORS} && exec {controller}"]
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(spawned(limited))
        address = announced(process, "controller")
        host, _, port = address.rpartition(":")
        alice = stack.enter_context(connected(address, tmp_path / "alice"))
        assert not alice.ListJobs(pb.ListJobsRequest()).jobs
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection((host, int(port)), WITHIN))
        assert len([*Path(f"/proc/{process.pid}/fd").iterdir()]) < DESCRIPTORS - 100
        revoke(tmp_path, "alice")
        with pytest.raises(NotAuthorized, match="has been revoked"), translated("list"):
            alice.ListJobs(pb.ListJobsRequest())

        def others_come_in() -> bool:
            with contextlib.suppress(InnetError), connected(address, tmp_path / "bob") as bob:
                return not bob.ListJobs(pb.ListJobsRequest()).jobs
            return False

        until(others_come_in)
        process.terminate()
        process.wait(WITHIN)
