"""The events that wait for one worker, and how they leave."""

import asyncio

from innet.controller.state.streams import Stream
from innet.machine.tcp import TcpConnection
from innet.rpc import innet_pb2 as pb

WITHIN = 10.0


def departure(rank: int) -> pb.JoinEvent:
    return pb.JoinEvent(departure=pb.Departure(rank=rank, reason=f"reason {rank}"))


def test_departures_that_wait_together_leave_in_one_message_and_in_order():
    recover = pb.JoinEvent(recover=pb.Recover(term=2))
    sent = [departure(1), departure(2), departure(3), recover, departure(4)]

    async def heard() -> list[pb.JoinEvent]:
        stream = Stream(TcpConnection())
        for each in sent:
            stream.send(each)
        stream.end()
        await asyncio.sleep(0)  # all of them wait now
        return [event async for event in stream.events(WITHIN)]

    first, *others = asyncio.run(heard())
    assert [first.departure.rank, *(each.rank for each in first.departure.more)] == [1, 2, 3]
    assert [each.reason for each in first.departure.more] == ["reason 2", "reason 3"]
    assert others == [recover, departure(4)]
    assert sent[0] == departure(1)  # others may be sent the same one
