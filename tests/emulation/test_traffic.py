"""The links' counters: each link has its own, and the series of samples stay of one length."""

import pytest

from innet.emulation.traffic import LinkCounters, TrafficSampler


def test_a_sample_that_cannot_be_read_adds_nothing_to_any_series():
    counts = [LinkCounters(1, 1, 1, 1)]
    sampler = TrafficSampler(lambda: {"h1-eth0": counts.pop()})
    sampler._done.set()
    sampler._sample()
    with pytest.raises(IndexError):
        sampler._sample()
    assert len(sampler.samples.times) == 1
    assert sampler.samples.up_bytes == {"h1-eth0": [1]}
