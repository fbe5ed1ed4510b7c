"""The executed assembly for Tofino answers the recorded packets as BMv2 did with v1model's program."""

import differential
import numpy as np
import pytest
from aggregation_rack import LANES, SERVICE
from compared_switches import Output, embedded
from contributions import BELOW, TOP_JOB, tree_scenario
from scenarios import Scenario
from tofino_parser import TooShortError
from tofino_switch import TofinoSwitch

from innet.p4.artifacts import artifact
from innet.wire.check import intact
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES, LANE_BYTES, Flag, Kind, Operation
from innet.wire.records import get_field, packet_dtype

FEWEST = {f"innet-{LANES}": 20, f"tree-{LANES}": 7, f"quorum-{LANES}": 7}
"""The recorded vectors, each with the least number of packets that each scenario gives.

Those of trees are fewer, because a sum for a parent is a single packet.
"""

RECORDED = [
    *((chip, name) for chip in ("tofino", "tofino2") for name in FEWEST if name != "quorum-64"),
    ("tofino2", "quorum-64"),  # on Tofino 1, a result begins no chunk
]

_BARE = ENCAPSULATION_BYTES + HEADER_BYTES
_CALL = ENCAPSULATION_BYTES + 1
FULL_LENGTH = (_BARE - 14 + LANES * LANE_BYTES).to_bytes(2)

SEALED = {Kind.CONTRIBUTION, Kind.RESULT, Kind.PENDING, Kind.STALE}


@pytest.mark.parametrize("number", range(differential.RECORDED_SCENARIOS))
@pytest.mark.parametrize(("chip", "name"), RECORDED)
def test_recorded_packets_come_out_as_they_came_out_of_bmv2(chip: str, name: str, number: int):
    _, scenarios = differential.recorded(name)
    given, wanted = scenarios[number]
    assert compared(given, wanted.outputs, chip) > FEWEST[name]


@pytest.mark.parametrize("chip", ["tofino", "tofino2"])
@pytest.mark.parametrize("seed", range(2))
def test_a_long_walk_in_trees_is_the_same_on_innet_switch(chip: str, seed: int):
    given = tree_scenario(seed, 80)
    program = differential.load("tree-64")
    with embedded(program) as switch:
        wanted = differential.carry_out(switch, given, program.p4info)
    assert compared(given, wanted.outputs, chip) >= FEWEST["tree-64"]


def compared(given: Scenario, outputs: list[list[Output]], chip: str) -> int:
    """Assert that a chip does the same as another switch. Return the number of compared frames."""
    switch, program = TofinoSwitch(chip), artifact(LANES)
    for update in given.updates:
        switch.insert(update.entity, program)
    compared = 0
    for (port, frame), expected in zip(given.packets, outputs, strict=True):
        if corrupted(frame) or wraps(frame):
            continue  # Tofino cannot detect the one, which BMv2 drops, and refuses the other
        try:
            got = switch.send(port, frame)
        except TooShortError:
            continue  # Tofino's parser drops it
        assert [to for to, _ in got] == [to for to, _ in expected]
        for (_, made), (_, meant) in zip(got, expected, strict=True):
            same(made, meant, chip)
            compared += 1
    return compared


def wraps(frame: bytes) -> bool:
    """Return whether this is a packet of a wrapping sum."""
    return len(frame) > _CALL and frame[_CALL] & 15 == Operation.WRAPPING_SUM


def corrupted(frame: bytes) -> bool:
    """Return whether this is a contribution, or a parent's answer, with a wrong check."""
    # Frames may be longer than what IPv4 says.
    lanes = LANES if frame[16:18] == FULL_LENGTH else 0
    dtype = packet_dtype(lanes, ENCAPSULATION_BYTES)
    if len(frame) < dtype.itemsize:
        return False
    packet = np.frombuffer(frame, dtype, 1)
    source, port = int.from_bytes(frame[26:30], "big"), int.from_bytes(frame[34:36], "big")
    return get_field(packet, "kind")[0] in SEALED and not intact(packet, source, port)[0]


def same(made: bytes, meant: bytes, chip: str) -> None:
    """Assert that two frames differ at most in the check and in the switch's overflow flag.

    BMv2 also sets that flag when it finds an overflow in the sums. If two jobs share a slot, which
    no controller allows, BMv2 does not know the members of a sum that has not been sent up.
    """
    if meant[26:30] not in {SERVICE.ip_bytes, BELOW.ip_bytes} or len(meant) < _BARE:
        assert made == meant
        return
    if len(made) > len(meant):  # a copy that keeps its lanes: any, or one for a switch below
        assert len(meant) == _BARE
        assert chip == "tofino" or int.from_bytes(meant[46:48]) == TOP_JOB
        made = (
            made[:16]
            + meant[16:18]
            + made[18:24]
            + meant[24:26]
            + made[26:38]
            + meant[38:40]
            + made[40:_BARE]
        )
    assert made[:52] == meant[:52]
    flags, wanted = (int.from_bytes(each[52:54], "big") for each in (made, meant))
    if meant[43] >> 4 == Kind.CONTRIBUTION:  # a sum always asks for lanes
        wanted |= Flag.WANTED
    assert flags in {wanted, wanted & ~int(Flag.OVERFLOW)}
    assert made[54:58] == meant[54:58]
    assert made[58:62] in {
        meant[58:62],
        bytes(4),
    }  # a chip keeps the lower word of a parent's bitmap
    if meant[43] >> 4 != Kind.RESULT or any(meant[62:66]):
        assert made[62:66] == meant[62:66]  # else two jobs share a slot: a result without members
    assert made[66:70] == bytes(4)
    assert made[70:] == meant[70:]
