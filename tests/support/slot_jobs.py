"""Jobs of a few workers each, by number, for tests of the slot protocol."""

import itertools

import pytest
from aggregation_rack import FIRST_SLOT

ALONE, PAIR, TRIO, ONE_OF_TWO, TWO_OF_THREE = 11, 12, 13, 14, 15
QUORUM = {ALONE: 1, PAIR: 2, TRIO: 3, ONE_OF_TWO: 1, TWO_OF_THREE: 2}
WORKERS = {ALONE: 1, PAIR: 2, TRIO: 3, ONE_OF_TWO: 2, TWO_OF_THREE: 3}
"""The number of workers of each job. Worker r of a job is at port r + 1."""


SLOTS = itertools.count(FIRST_SLOT)


def of(job: int):
    return pytest.mark.parametrize("job", [job], indirect=True)
