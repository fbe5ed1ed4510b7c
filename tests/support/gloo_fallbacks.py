"""The fallbacks of workers that are threads of one process."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from torch.distributed import HashStore, ProcessGroupGloo

from innet.host.fallback import GlooFallback


@contextlib.contextmanager
def gloo_fallbacks(workers: int) -> Iterator[list[GlooFallback]]:
    """Yield the fallback of each worker."""
    store, forever = HashStore(), timedelta(days=1)
    with ThreadPoolExecutor(workers) as pool:
        groups = pool.map(
            lambda rank: ProcessGroupGloo(store, rank, workers, forever), range(workers)
        )
        fallbacks = [GlooFallback(workers, group, group) for group in groups]
    yield fallbacks
    for each in fallbacks:
        each.close()
