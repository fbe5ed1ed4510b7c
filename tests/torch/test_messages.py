"""The messages that the processes of a group exchange after each step of joining."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore, PrefixStore, ProcessGroupGloo
from waiting import WITHIN

from innet.torch.messages import Message, all_gathered

SIZE = 2


def exchanged(messages: list[Message]) -> list[list[Message]]:
    """Return what each process gets when all processes send their messages."""
    store = HashStore()

    def exchange(rank: int) -> list[Message]:
        timeout = timedelta(seconds=WITHIN)
        gloo = ProcessGroupGloo(PrefixStore("gloo", store), rank, len(messages), timeout)
        return all_gathered(gloo, messages[rank])

    with ThreadPoolExecutor(len(messages)) as pool:
        return list(pool.map(exchange, range(len(messages))))


@pytest.mark.parametrize(
    "large",
    [
        Message(jobs=[f"torch-gathers-0123456789ab-{index}" for index in range(256)], own=True),
        Message(alone="the job " + "x" * 5000 + " has a worker for each rank"),
        Message("UsageError", "\N{SNAKE}" * 512),
    ],
    ids=["jobs of 256 slices", "a long name", "no ASCII"],
)
def test_a_message_of_any_size_reaches_all(large: Message):
    small = Message(node="a")
    for found in exchanged([large, small]):
        assert [list(each.jobs) for each in found] == [list(large.jobs), []]
        assert [(each.error, each.text, each.alone, each.node) for each in found] == [
            (large.error, large.text, large.alone, ""),
            ("", "", "", "a"),
        ]
