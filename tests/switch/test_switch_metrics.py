"""A switch's metrics for Prometheus."""

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from p4runtime_client import Controller, Names, group
from prometheus_client.parser import text_string_to_metric_families
from switch_commands import frame, run
from switches import Switch, receive, running_switch
from tiny_programs import FOLDER, program

PROGRAM = program("control_plane")
NAMES = Names(PROGRAM.p4info)
NO_PORT, DROPPED, PLAIN = 7, 8, 9
"""Ethertypes. One is forwarded to a port that does not exist, and one is dropped by a table."""


@pytest.fixture
def switch() -> Iterator[Switch]:
    with running_switch(2, "--metrics-addr", "127.0.0.1:0") as running:
        yield running


@pytest.fixture
def scrape(switch: Switch) -> Callable[[], dict]:
    """Return a function that reads all samples by name and labels, as Prometheus would."""
    said = switch.process.stdout.readline()
    assert said.startswith("Metrics 127.0.0.1:")
    url = f"http://{said.split()[1]}/metrics"

    def get() -> dict:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    return get


def samples_of_ports(samples: dict) -> list[tuple[str, str, str]]:
    return [key for key in samples if key[0].startswith("innet_switch_port")]


def test_without_a_program_a_switch_is_not_ready(scrape):
    samples = scrape()
    assert samples["innet_switch_ready",] == 0
    assert samples_of_ports(samples) == []


def test_packets_lookups_and_drops_are_counted(switch, scrape):
    with Controller(switch.address, 1) as controller:
        controller.configure(PROGRAM, cookie=77)
        forward = NAMES.entry("aging", {"type": NO_PORT}, "forward", port=100)
        controller.insert(forward, NAMES.entry("aging", {"type": DROPPED}, "drop"))
        for kind in (NO_PORT, DROPPED, PLAIN, PLAIN):
            switch.hosts[0].send(frame(kind))
        for _ in range(2):
            receive(switch.hosts[0])
    samples = scrape()
    assert samples["innet_switch_ready",] == 1
    assert any(name == "innet_switch_pipeline_info" and "77" in labels for name, *labels in samples)
    one = ("1", next(spec for name, number, spec in samples_of_ports(samples) if number == "1"))
    assert samples["innet_switch_port_receive_packets_total", *one] == 4
    assert samples["innet_switch_port_receive_bytes_total", *one] == 4 * 14
    assert samples["innet_switch_port_transmit_packets_total", *one] == 2
    assert samples["innet_switch_port_transmit_bytes_total", *one] == 2 * 14
    assert samples["innet_switch_table_hits_total", "ControlIngress.aging"] == 2
    assert samples["innet_switch_table_misses_total", "ControlIngress.aging"] == 2
    assert samples["innet_switch_program_drops_total", "ingress"] == 1
    assert samples["innet_switch_program_drops_total", "egress"] == 0
    assert samples["innet_switch_port_up", *one] == 1
    assert samples["innet_switch_drops_total", "", "no_such_port"] == 1
    lost = {
        key[-1]: value for key, value in samples.items() if key[0] == "innet_switch_drops_total"
    }
    assert not {"ingress", "egress"} & set(lost)
    assert samples["innet_switch_drops_total", "1", "receive_buffer_full"] == 0


def test_a_packet_that_its_port_cannot_take_is_a_send_failure(switch, scrape):
    """The program adds a header to the longest packet that fits a datagram."""
    longest = 65507
    with Controller(switch.address, 1) as controller:
        controller.configure(program("hub"))
        controller.insert(group(1, (1, 1), (2, 2)))
        switch.hosts[0].send(frame(1).ljust(longest, b"\0"))
        switch.hosts[0].send(frame(1))
        assert len(receive(switch.hosts[1])) == 20
    samples = scrape()
    assert samples["innet_switch_drops_total", "2", "send_failed"] == 1
    sent = {key[0]: value for key, value in samples.items() if key[1:2] == ("2",)}
    assert sent["innet_switch_port_transmit_packets_total"] == 1
    assert sent["innet_switch_port_transmit_bytes_total"] == 20


@pytest.mark.parametrize(
    ("address", "words"),
    [("9999", "is not HOST:PORT"), ("127.0.0.1:x", "is not HOST:PORT"), ("192.0.2.1:0", "cannot")],
)
def test_an_address_that_cannot_serve_metrics_is_refused(address, words):
    hub = str(FOLDER / "hub.json")
    code, said = run(hub, "--grpc-server-addr", "127.0.0.1:0", "--metrics-addr", address)
    assert code == 2
    assert words in said
