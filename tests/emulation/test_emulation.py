"""`innet emulate`, run as a user runs it: exact sums, true reports, and nothing left behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bmv2 import exact_mean
from emulated_worker import SIZES, floats, integers
from emulations import (
    ENDLESS,
    INNET,
    WITHIN,
    WORKER,
    Trace,
    alone,
    command,
    emulate,
    left,
    one_rack,
    running,
)
from paths import SUPPORT
from waiting import until

from innet.emulation import requirements
from innet.emulation.plan import plan
from innet.emulation.run import RUN_FOLDER
from innet.emulation.topology import load
from innet.machine.scratch import remove_leftovers
from innet.switch.ports import carries_super_frames


@pytest.fixture(autouse=True)
def able() -> Iterator[None]:
    if why := requirements.missing():
        pytest.skip(why)
    with alone():
        yield


@pytest.fixture(params=["embedded", "bmv2"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "bmv2" and not shutil.which(requirements.BMV2):
        pytest.skip(f"there is no {requirements.BMV2} (BMv2) on the PATH")
    return request.param


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trace]:
    """Mark the processes of this test. At its end there must be no process, nor anything else."""
    before = left()
    made = Trace(tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("INNET_MARK", str(tmp_path))
        yield made
    assert made.processes() == []
    assert left() == before


def test_one_rack_sums_exactly(kind: str, tmp_path: Path, trace: Trace):
    workers, report = 3, tmp_path / "report.json"
    file = one_rack(tmp_path, workers, kind, "{rate: 100mbit}")
    done = emulate(file, "--json", str(report), run=[sys.executable, str(WORKER), str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert_exact(tmp_path, workers, lanes=64)
    [tor] = json.loads(report.read_text())["switches"]
    assert tor["kind"] == kind
    assert tor["contributions"] == workers * tor["sums"]
    assert tor["sums"] >= sum(-(-size // 64) for size in SIZES)


@pytest.mark.parametrize("name", ["two-racks-spine", "two-racks-pbox", "leaf-spine"])
def test_trees_sum_exactly_and_each_rack_sends_up_one_sum(name: str, tmp_path: Path, trace: Trace):
    report = tmp_path / "report.json"
    file = Path("topologies") / f"{name}.yaml"
    done = emulate(file, "--json", str(report), run=[sys.executable, str(WORKER), str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert_exact(tmp_path, 8, lanes=256)
    made = plan(load(file))
    sums = {each["switch"]: each["sums"] for each in json.loads(report.read_text())["switches"]}
    assert set(sums) == {switch.name for switch in made.switches}
    tops = [switch.name for switch in made.switches if not switch.uplinks]
    for switch in made.switches:
        if switch.uplinks:
            assert sums[switch.name] == sum(sums[top] for top in tops)


SERVER = """
slots: 16
servers: [{name: pbox}]
switches: [{name: left, uplinks: [pbox]}, {name: right, uplinks: [pbox]}]
racks: [{switch: left, hosts: 2}, {switch: right, hosts: 1}]
"""


def test_a_server_on_top_keeps_parameters(tmp_path: Path, trace: Trace):
    file = tmp_path / "server.yaml"
    file.write_text(SERVER)
    example = ["examples/parameters.py", "--mib", "0.05", "--steps", "2"]
    done = emulate(file, run=[sys.executable, *example])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("step 2: ") == 3


JUMBO = """
mtu: 9000
lanes: 1024
link: {rate: 100mbit}
switches: [{name: tor}]
racks: [{switch: tor, hosts: 2}]
"""


def test_jumbo_frames_carry_1024_lanes(tmp_path: Path, trace: Trace):
    file = tmp_path / "jumbo.yaml"
    file.write_text(JUMBO)
    done = emulate(file, run=[sys.executable, str(WORKER), str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert_exact(tmp_path, 2, lanes=1024)


def test_offloads_are_on_where_all_switches_take_super_frames(
    kind: str, tmp_path: Path, trace: Trace
):
    show = "ethtool -k $GLOO_SOCKET_IFNAME | grep -E '^tx-(checksumming|udp-segmentation)'"
    done = emulate(one_rack(tmp_path, 2, kind), run=["sh", "-c", show])
    assert done.returncode == 0, done.stdout + done.stderr
    state = "on" if kind == "embedded" and carries_super_frames() else "off"
    assert len(re.findall(rf"h\d \| tx-\S+: {state}", done.stdout)) == 4, done.stdout
    assert f"offloads {state}" in done.stdout


def test_one_switch_without_super_frames_turns_offloads_off_for_all():
    assert not requirements.offloads(["embedded", "bmv2"])
    assert requirements.offloads(["embedded", "pbox"]) == carries_super_frames()


def test_a_super_frame_counts_with_the_bytes_of_its_frames_on_both_halves_of_its_way(
    tmp_path: Path, trace: Trace
):
    report = tmp_path / "report.json"
    file = one_rack(tmp_path, 2, link="{rate: 1gbit, queue: 100ms}")
    run = [sys.executable, str(SUPPORT / "train_sender.py")]
    done = emulate(file, "--json", str(report), run=run)
    assert done.returncode == 0, done.stdout + done.stderr
    links = {each["link"]: each["traffic"] for each in json.loads(report.read_text())["links"]}
    # 200 datagrams, and what finds the other host. The kernel cannot count the frames of a switch.
    assert 200 <= links["h2-tor"]["up_frames"] < 300, links
    assert 4 <= links["h1-tor"]["down_frames"] < 300, links
    for counted in (links["h2-tor"]["up_bytes"], links["h1-tor"]["down_bytes"]):
        assert 200 * (1000 + 42) <= counted < 1.1 * 200 * (1000 + 42), links


@pytest.mark.parametrize("queue", ["0.6ms", "0.1ms"])  # of one super-frame, and of a part of one
def test_sums_stay_exact_while_super_frames_are_lost(queue: str, tmp_path: Path, trace: Trace):
    file = tmp_path / "rack.yaml"
    file.write_text(f"""
slots: 256
link: {{rate: 1gbit, queue: {queue}}}
switches: [{{name: tor}}]
racks: [{{switch: tor, hosts: 3}}]
""")
    with running(file, run=[sys.executable, str(ENDLESS), str(tmp_path)]) as emulation:
        await_hosts(emulation, 3)
        before = trace.frames("tor-eth1")
        await_frames(emulation, trace, "tor-eth1", before + 2000)
        (tmp_path / "enough").touch()
        said = emulation.stdout.read()
        assert emulation.wait(WITHIN) == 0, said
    assert len(re.findall(r"h\d \| exact", said)) == 3, said


def test_a_host_that_is_killed_amid_super_frames_costs_no_wrong_sum(tmp_path: Path, trace: Trace):
    file = tmp_path / "rack.yaml"
    file.write_text("slots: 256\nswitches: [{name: tor}]\nracks: [{switch: tor, hosts: 3}]\n")
    with running(file, run=[sys.executable, str(ENDLESS), str(tmp_path)]) as emulation:
        await_hosts(emulation, 3)
        trace.kill_rank(2)
        said = emulation.stdout.read()
        assert emulation.wait(WITHIN) == 1, said
    assert "h3: killed by SIGKILL" in said, said
    assert "AssertionError" not in said, said


TWO_RACKS = """
lanes: 64
slots: 16
link: {rate: 100mbit}
switches: [{name: spine}, {name: tor1, uplinks: [spine]}, {name: tor2, uplinks: [spine]}]
racks: [{switch: tor1, hosts: 2}, {switch: tor2, hosts: 1}]
"""


@pytest.mark.parametrize("mended", [True, False])
def test_a_link_between_racks_that_is_cut_costs_no_sum_or_all_hear_of_it(
    mended: bool, tmp_path: Path, trace: Trace
):
    file = tmp_path / "racks.yaml"
    file.write_text(TWO_RACKS)
    with running(file, run=[sys.executable, str(ENDLESS), str(tmp_path)]) as emulation:
        await_hosts(emulation, 3)
        uplink = "tor2-eth2"
        trace.set_link(uplink, "down")
        if mended:
            asked = trace.frames("tor2-eth1")
            await_frames(emulation, trace, "tor2-eth1", asked + 10)  # its host retransmits
            trace.set_link(uplink, "up")
            before = trace.frames(uplink)
            await_frames(emulation, trace, uplink, before + 1000)  # the sums continue
            (tmp_path / "enough").touch()
        said = emulation.stdout.read()
        assert emulation.wait(WITHIN) == 0, said
    assert len(re.findall(r"h\d \| exact", said)) == (3 if mended else 0), said
    assert len(re.findall(r"h\d \| error (SwitchUnreachable|WorkersMissing)", said)) == (
        0 if mended else 3
    ), said


MIXED = """
lanes: 64
slots: 16
switches:
  - {name: spine, kind: SPINE}
  - {name: tor, kind: TOR, uplinks: [spine]}
  - {name: tor2, uplinks: [spine]}
racks: [{switch: tor, hosts: 2}, {switch: tor2, hosts: 1}]
"""


@pytest.mark.parametrize(("spine", "tor"), [("embedded", "bmv2"), ("bmv2", "embedded")])
def test_switches_of_both_kinds_sum_together(spine: str, tor: str, tmp_path: Path, trace: Trace):
    if not shutil.which(requirements.BMV2):
        pytest.skip(f"there is no {requirements.BMV2} (BMv2) on the PATH")
    file = tmp_path / "mixed.yaml"
    file.write_text(MIXED.replace("SPINE", spine).replace("TOR", tor))
    done = emulate(file, run=[sys.executable, str(WORKER), str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert_exact(tmp_path, 3, lanes=64)


def assert_exact(folder: Path, workers: int, lanes: int) -> None:
    """Check that every worker has the integers' sums, and the exact bits of their mean."""
    wanted = [np.sum(each, axis=0) for each in zip(*map(integers, range(workers)), strict=True)]
    mean = exact_mean(tuple(map(floats, range(workers))), lanes)
    for rank in range(workers):
        with np.load(folder / f"{rank}.npz") as got:
            for number, total in enumerate(wanted):
                assert np.array_equal(got[f"arr_{number}"], total)
            assert got["mean"].tobytes() == mean.tobytes()


def test_the_report_has_the_kernels_numbers_and_the_plot_is_made(tmp_path: Path, trace: Trace):
    report, plot = tmp_path / "report.json", tmp_path / "plot.png"
    file = one_rack(tmp_path, 2, link="{rate: 10mbit, cap: htb}")
    ping = "ping -q -c 5 -i 0.05 -s 1000 $MASTER_ADDR"
    # The second host's last reading is its link's traffic: nobody sends any more.
    script = f"test $RANK = 0 || {ping}; ip -j -s link show dev $GLOO_SOCKET_IFNAME"
    done = emulate(file, "--json", str(report), "--plot", str(plot), run=["sh", "-c", script])
    assert done.returncode == 0, done.stdout + done.stderr
    [said] = re.findall(r"h2 \| (\[\{.*)", done.stdout)
    counted = json.loads(said)[0]["stats64"]
    [link] = [each for each in json.loads(report.read_text())["links"] if each["link"] == "h2-tor"]
    assert link["rate"] == 10_000_000
    assert link["traffic"] == {
        "up_bytes": counted["tx"]["bytes"], "up_frames": counted["tx"]["packets"],
        "down_bytes": counted["rx"]["bytes"], "down_frames": counted["rx"]["packets"],
    }  # fmt: skip
    assert counted["tx"]["bytes"] >= 5 * 1042
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_files_that_the_pages_print_run(tmp_path: Path, trace: Trace):
    report, file = tmp_path / "report.json", tmp_path / "page.yaml"
    [rack], [whole] = (
        re.findall(r"```yaml\n(.*?)```", Path("docs", page).read_text(), re.DOTALL)
        for page in ("emulate.md", "topologies.md")
    )
    assert rack in Path("topologies/one-rack.yaml").read_text()
    file.write_text(whole)
    mean = "import numpy, innet; print(innet.join().all_reduce(numpy.full(1, 7, 'float32')))"
    done = emulate(file, "--json", str(report), run=[sys.executable, "-c", mean])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" | [7.]\n") == 6
    rates = {each["link"]: each["rate"] for each in json.loads(report.read_text())["links"]}
    assert rates.pop("tor2-spine") == 1_000_000_000
    assert rates.pop("ctl-spine") is None
    assert set(rates.values()) == {100_000_000}
    assert {"alice-tor2", "bob-tor2"} < set(rates)


def test_traffic_to_the_controller_goes_to_no_other_host(kind: str, tmp_path: Path, trace: Trace):
    file = tmp_path / "tree.yaml"
    file.write_text(f"""
lanes: 64
slots: 16
switches:
  - {{name: spine, kind: {kind}}}
  - {{name: left, kind: {kind}, uplinks: [{{to: spine}}]}}
  - {{name: right, kind: {kind}, uplinks: [{{to: spine}}]}}
racks: [{{switch: left, hosts: 2}}, {{switch: right, hosts: 2}}]
""")
    done = emulate(file, run=[sys.executable, str(SUPPORT / "overhearing_worker.py")])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" | overheard 0\n") == 4, done.stdout


def test_a_cap_that_tc_warns_of_holds_and_one_that_it_refuses_is_an_error(
    tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
):
    tc = tmp_path / "bin" / "tc"
    tc.parent.mkdir()
    monkeypatch.setenv("PATH", f"{tc.parent}:{os.environ['PATH']}")
    tc.write_text("#!/bin/sh\necho Warning: this is big. >&2\n")
    tc.chmod(0o755)
    file = one_rack(tmp_path, link="{rate: 1gbit, cap: htb}")
    assert emulate(file, run=["true"]).returncode == 0
    tc.write_text("#!/bin/sh\necho Error: this is wrong. >&2\nexit 2\n")
    refused = emulate(file, run=["true"])
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert re.match("error: cannot cap .* with 'tc qdisc add .*: Error: this is wrong.", line)


def test_a_host_that_fails_stops_the_others_and_is_named(tmp_path: Path, trace: Trace):
    run = ["sh", "-c", "test $RANK != 1 || exit 3; exec sleep 1000"]
    done = emulate(one_rack(tmp_path), run=run)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: h2: exit code 3; the other hosts were stopped"]
    assert "h1 stopped, h2 exit code 3" in done.stdout


def test_a_process_in_the_background_that_keeps_the_output_open_holds_up_nothing(
    tmp_path: Path, trace: Trace
):
    done = emulate(one_rack(tmp_path), run=["sh", "-c", "sleep 1000 & echo done"])
    assert done.returncode == 0
    assert "all 2 hosts ended with exit code 0" in done.stdout
    assert done.stdout.count("| done") == 2


def test_ctrl_c_ends_it_all(tmp_path: Path, trace: Trace):
    with running(one_rack(tmp_path), run=LONG) as emulation:
        await_hosts(emulation, 2)
        inside = trace.namespaces()
        assert len(inside) > 4  # of hosts, the switch, the controller, and of processes
        emulation.send_signal(signal.SIGINT)
        assert emulation.wait(WITHIN) == 130
        assert "h1 stopped, h2 stopped" in emulation.stdout.read()


def test_nothing_is_left_of_an_emulation_that_is_killed(tmp_path: Path, trace: Trace):
    before = left()
    with running(one_rack(tmp_path), run=LONG) as emulation:
        await_hosts(emulation, 2)
        inside = trace.descriptors()
        emulation.kill()
        trace.await_end(inside)
    assert trace.processes() == []
    [folder] = left() - before  # of sockets: the next emulation removes it
    remove_leftovers(RUN_FOLDER)
    assert folder not in left()


LONG = ["sh", "-c", "echo begun; sleep 1000 & exec sleep 1000"]


def await_hosts(emulation: "subprocess.Popen[str]", count: int) -> None:
    """Return when the command runs on this many hosts."""
    seen = 0
    while seen < count:
        line = emulation.stdout.readline()
        assert line, "it has ended"
        seen += line.endswith("begun\n")


def await_frames(
    emulation: "subprocess.Popen[str]", trace: Trace, interface: str, count: int
) -> None:
    """Return when an interface of a running emulation has received this many frames."""

    def received() -> bool:
        assert emulation.poll() is None
        return trace.frames(interface) >= count

    until(received)


def test_two_at_the_same_time_do_not_meet(tmp_path: Path, trace: Trace):
    other = tmp_path / "other"
    other.mkdir()
    run = ["sh", "-c", "ping -q -c 1 -W 5 10.0.0.1 && sleep 2"]
    with running(one_rack(tmp_path), run=run) as one, running(one_rack(other), run=run) as two:
        for each in (one, two):
            said = each.stdout.read()
            assert each.wait(WITHIN) == 0, said


def test_a_switch_that_does_not_start_is_an_error(tmp_path: Path, trace: Trace):
    folder = tmp_path / "path"
    folder.mkdir()
    broken = folder / requirements.BMV2
    broken.write_text("#!/bin/sh\necho it is broken\nexit 1\n")
    broken.chmod(0o755)
    done = subprocess.run(
        command(one_rack(tmp_path, kind="bmv2"), run=["true"]),
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "error: tor does not serve P4Runtime: it is broken" in done.stderr


def test_the_prompt_is_mininets(tmp_path: Path, trace: Trace):
    done = subprocess.run(
        [str(INNET), "emulate", str(one_rack(tmp_path)), "--cli"],
        input="h1 ping -c 1 h2\nexit\n",
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 received" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "run", "why"),
    [
        ([], [], "nothing to run: give a command after --, or --cli for a prompt"),
        (["--json", "/nowhere/x.json"], ["true"], "there is no folder /nowhere"),
        (["--json", "/"], ["true"], "cannot write to /: it is a folder"),
        (["--plot", "/x.xyz"], ["true"], "cannot draw to /x.xyz: name a PNG, SVG or PDF file"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_done(options, run, why, tmp_path, trace):
    done = emulate(one_rack(tmp_path), *options, run=run)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
