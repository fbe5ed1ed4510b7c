"""The options of BMv2's simple_switch_grpc: each is carried out, ignored with one warning, or refused."""

import pytest
from p4runtime_client import Controller
from switch_commands import run
from switches import ask, running_switch
from tiny_programs import FOLDER, program

from innet.errors import UsageError
from innet.switch.bmv2_options import IGNORED, translated

HUB = FOLDER / "hub.json"


@pytest.mark.parametrize(
    ("given", "kept", "ignored"),
    [
        ("--thrift-port 9090 p.json", "p.json", "--thrift-port"),
        ("--thrift-port=9090 p.json", "p.json", "--thrift-port"),
        ("p.json --debugger --log-flush", "p.json", "--debugger --log-flush"),
        ("-i 1@eth0 -- --cpu-port 255", "-i 1@eth0 --cpu-port 255", ""),
        ("-L warn -Lwarn --log-level off", "-L warn -Lwarn --log-level off", ""),
        ("--pcap", "--pcap=.", ""),
        ("--pcap=folder p.json", "--pcap=folder p.json", ""),
        ("--pcap folder p.json", "--pcap=folder p.json", ""),
        ("--pcap p.json", "--pcap=. p.json", ""),
        (f"--pcap {HUB}", f"--pcap=. {HUB}", ""),
        ("--pcap -i 1@eth0", "--pcap=. -i 1@eth0", ""),
        ("--pcap -- --cpu-port 255", "--pcap=. --cpu-port 255", ""),
    ],
)
def test_command_lines_of_bmv2_are_translated(given, kept, ignored):
    assert translated(given.split()) == (kept.split(), ignored.split())


@pytest.mark.parametrize("name", ["--use-files", "--packet-in", "--dp-grpc-server-addr"])
def test_options_that_take_packets_from_elsewhere_are_refused(name):
    with pytest.raises(UsageError, match=f"{name} is not supported: attach interfaces"):
        translated([name, "1"])


def test_an_option_without_its_value_is_refused():
    code, said = run("--no-p4", "--thrift-port")
    assert code == 2
    assert "--thrift-port needs a value" in said


# As p4lang's tutorials and ONOS start their switches.
SCRIPTED = """--nanolog ipc:///tmp/bm-0-log.ipc --device-id 3 --thrift-port 9090 --debugger
    --dump-packet-data 10000 --notifications-addr ipc:///tmp/n.ipc --max-port-count 300
    --restore-state state.txt --log-flush --log-file-max-size 100 --log-file-max-files 2
    -L debug -- --priority-queues 2 --cpu-port 255 --disable-swap --max-mc-groups 9
    --max-l1-entries 9 --max-l2-entries 9 --load-modules m.so --debugger-addr ipc:///tmp/d.ipc"""


def test_a_switch_starts_with_all_options_and_warns_once_of_those_it_ignores(tmp_path):
    log = tmp_path / "switch.log"
    options = [*SCRIPTED.split(), "--log-file", str(log), "--pcap", str(tmp_path)]
    assert set(options) >= IGNORED
    with running_switch(1, *options) as switch:
        with Controller(switch.address, 1, device=3) as controller:
            controller.configure(program("hub"))
        assert (tmp_path / "port1_in.pcap").exists()


@pytest.mark.parametrize(("level", "traced"), [("trace", True), ("debug", True), ("warn", False)])
def test_the_steps_of_packets_go_to_the_log_file_at_its_level(tmp_path, level, traced):
    log = tmp_path / "switch.log"
    tally = FOLDER / "tally.json"
    with running_switch(1, "--log-file", str(log), "-L", level, program=tally) as switch:
        ask(switch, bytes(12) + bytes.fromhex("88b5 01 00000000 00000000 00000001"))
    assert ("Processing packet received on port 1" in log.read_text()) == traced


def test_a_level_that_bmv2_does_not_know_and_two_logs_are_refused(tmp_path):
    code, said = run("--no-p4", "-L", "loud")
    assert code == 2
    assert "loud" in said
    code, said = run("--no-p4", "--log-console", "--log-file", str(tmp_path / "log"))
    assert code == 2
    assert "exclude each other" in said
