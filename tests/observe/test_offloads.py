"""The doctor tells offloads left on at a veth from an overloaded switch."""

import json
import os
import shutil
import subprocess

import pytest
from paths import SUPPORT
from preforked import forked_programs

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("ethtool")),
    reason="makes a veth: root, ip, ethtool",
)


def findings(way: str) -> dict[str, list]:
    """Return what doctor says about a worker behind a port of this kind."""
    done = subprocess.run(
        ["unshare", "--net", forked_programs() / "python", SUPPORT / "veth_rack.py", way],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The controller, in the same process, logs to the same place.
    return dict(json.loads(each) for each in done.stdout.splitlines() if each.startswith("["))


def test_offloads_left_at_a_veth_and_a_fallback_through_the_switch_are_found():
    said = findings("packet:")
    severity, what, remedy = said["route/before"]
    assert severity == "PROBLEM"
    assert "service address 10.77.0.254: Network is unreachable" in what
    assert "ip address add" in remedy
    assert said["route"] == ["GOOD", "10.77.0.254, from 10.77.0.1", ""]
    assert said["fallback"][0] == "GOOD"
    severity, what, remedy = said["fallback/shared"]
    assert severity == "WARNING"
    assert "through the switch (GLOO_SOCKET_IFNAME=h1)" in what
    assert "name another network" in remedy
    severity, what, remedy = said["machine/on"]
    assert (severity, remedy) == ("WARNING", "as root: ethtool -K h1 tx off")
    assert "h1 is a veth" in what
    assert said["machine/off"][0] == "GOOD"
    # The switch takes super-frames, so the job itself has no trouble.
    assert not {"offload", "refused", "loss"} & {rule for rule, *_ in said["job/on"]}
    assert not {"offload", "refused"} & {rule for rule, *_ in said["job/off"]}


def test_xdp_keeps_a_veth_from_sending_large_frames_and_the_sums_are_correct():
    assert not {"offload", "refused", "loss"} & {rule for rule, *_ in findings("xdp:")["job/on"]}
