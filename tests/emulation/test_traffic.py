"""The links' counters: each link has its own, and the series of samples stay of one length."""

import pytest

from innet.emulation import traffic
from innet.emulation.plan import plan
from innet.emulation.topology import parse
from innet.emulation.traffic import LinkCounters, TrafficReader, TrafficSampler


def test_a_sample_that_cannot_be_read_adds_nothing_to_any_series():
    counts = [LinkCounters(1, 1, 1, 1)]
    sampler = TrafficSampler(lambda: {"h1-eth0": counts.pop()})
    sampler._done.set()
    sampler._sample()
    with pytest.raises(IndexError):
        sampler._sample()
    assert len(sampler.samples.times) == 1
    assert sampler.samples.up_bytes == {"h1-eth0": [1]}


def test_two_links_between_the_same_switches_have_counters_of_their_own(monkeypatch):
    made = plan(
        parse("""
switches: [{name: spine}, {name: tor, uplinks: [spine, spine]}]
racks: [{switch: tor, hosts: 1}]
""")
    )
    ends = [link.child for link in made.links]
    uppers = [link.parent for link in made.links]
    sent = {end.interface: (each, 0) for each, end in enumerate([*ends, *uppers])}
    monkeypatch.setattr(traffic, "sent_by", lambda _: sent)
    found = TrafficReader(made.links, {end.node: 1 for end in [*ends, *uppers]}).read()
    assert [found[end.interface].up_bytes for end in ends] == [0, 1, 2, 3]
    assert [found[end.interface].down_bytes for end in ends] == [4, 5, 6, 7]
