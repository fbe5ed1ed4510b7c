"""The measurements behind the finding `few_slots`: the rate of a link, and the shortest round trip."""

from pathlib import Path

import numpy as np
import pytest
from racks import rack
from waiting import until

from innet.machine import interfaces


@pytest.mark.parametrize(
    ("speed", "device", "rate"),
    [("25000", True, 25_000_000_000), ("-1", True, 0), ("10000", False, 0), ("", True, 0)],
    ids=["25G", "no cable", "made of software", "unknown"],
)
def test_only_a_devices_link_has_a_rate(tmp_path: Path, monkeypatch, speed, device, rate):
    monkeypatch.setattr(interfaces, "_INTERFACES", tmp_path)
    card = tmp_path / "eth0"
    card.mkdir()
    (card / "speed").write_text(f"{speed}\n")
    if device:
        (card / "device").mkdir()
    assert interfaces.bits_per_second("eth0") == rate


def test_the_loopback_interface_has_an_address_and_no_rate():
    assert interfaces.interface_at("127.0.0.1") == "lo"
    assert interfaces.interface_at("192.0.2.1") == ""
    assert interfaces.bits_per_second("lo") == interfaces.bits_per_second("") == 0


def test_a_worker_reports_its_shortest_round_trip():
    with rack(1) as tor, tor.workers(1) as [agent]:
        assert agent.progress().least_round_trip_s == 0
        for _ in range(3):
            agent.all_reduce(np.ones(100, np.float32))
        progress = agent.progress()
        assert 0 < progress.least_round_trip_s <= progress.round_trip_s
        assert progress.link_bits_per_s == 0  # a cable made of UDP
        [job] = tor.tokens
        until(lambda: tor.show(job).members[0].progress.least_round_trip_s)
