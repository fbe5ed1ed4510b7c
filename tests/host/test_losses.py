"""The doctor's losses, on cables that lose packets, and on cables that only delay them."""

import contextlib

import numpy as np
import pytest
from racks import means, rack

from innet.local.faults import Faults, faulty
from innet.observe.sample import Observation, sample_job, sample_twice
from innet.observe.subjects import ObservedJob

WORKERS, VECTOR = 2, np.ones(40_000, np.float32)


@pytest.mark.parametrize(
    ("faults", "lossy"), [(Faults(reorder=0.2), False), (Faults(drop=0.05), True)]
)
def test_late_packets_are_repeated_but_only_lost_ones_count_as_lost(faults: Faults, lossy: bool):
    with (
        rack(WORKERS) as tor,
        tor.job(WORKERS) as name,
        tor.cables(WORKERS) as cables,
        faulty(cables, seed=3, up=faults, down=faults) as wiring,
        contextlib.ExitStack() as stack,
    ):
        agents = [
            stack.enter_context(tor.join(name, rank, link))
            for rank, link in enumerate(wiring.links)
        ]
        means(agents, *[VECTOR] * WORKERS)
        before = sample_twice(lambda: sample_job(tor.stub, name), 0.1).now
        for _ in range(5):
            means(agents, *[VECTOR] * WORKERS)
        now = sample_twice(lambda: sample_job(tor.stub, name), 0.1).now
        job = ObservedJob(Observation(before, now))
        assert all(worker.growth("retransmissions") for worker in job.workers)
        assert [worker.lossy for worker in job.workers] == [lossy] * WORKERS
