"""The switch as a Mininet switch class, and frames shorter than Ethernet's minimum."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import SUPPORT
from switches import receive, running_switch
from tiny_programs import FOLDER

from topologies import namespaces

SCRIPT = SUPPORT / "mininet_ping.py"
MININET = Path("/usr/lib/python3/dist-packages/mininet")


@pytest.fixture
def mininet():
    if reason := namespaces.unavailable():
        pytest.skip(reason)
    if not (MININET.exists() and shutil.which("mnexec")):
        pytest.skip("Mininet is not installed (Debian: package mininet)")
    if not shutil.which("ping"):
        pytest.skip("Mininet's pings need `ping` on the PATH")


@pytest.mark.usefixtures("mininet")
def test_two_hosts_reach_each_other_through_a_mininet_switch():
    # It runs in namespaces of its own, so that its interfaces and ports meet no others.
    command = ["unshare", "--net", "--mount", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, str(SCRIPT)],
        capture_output=True, text=True, timeout=250, check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "loss 0.0 version 1.4.1 device 1" in done.stdout


@pytest.mark.parametrize("length", [1, 13, 14, 59, 60])
def test_short_frames_pass_udp_ports_as_they_are(length):
    with running_switch(2, program=FOLDER / "wire.json") as switch:
        switch.hosts[0].send(bytes(range(length)))
        assert receive(switch.hosts[1]) == bytes(range(length))
        switch.hosts[1].send(bytes(range(length)))
        assert receive(switch.hosts[0]) == bytes(range(length))
