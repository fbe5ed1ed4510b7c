"""The slots that a job needs, and what a switch can do with its slots.

A chunk occupies its slot for one round trip. So s slots carry s packets in a round trip, and a link
is full if slots >= bandwidth x round trip / packet bits.
"""

import math
from dataclasses import dataclass

from innet.errors import UsageError
from innet.model.all_reduce import SlotParameters
from innet.model.links import LinkModel

SWITCH_SLOTS = {64: 8192, 256: 1024, 1024: 1024}
"""The slots of the compiled programs, by lanes."""

_BYTES = 4  # of an integer


@dataclass(frozen=True)
class Capacity:
    """The capacity of a switch for jobs of one kind. Rates are in bits per second, per worker."""

    lanes: int
    packet_bytes: int
    round_trip: float
    """Seconds until a chunk's result is back and the slot is free again."""
    needed: int
    """The least number of slots with which a job fills its links."""
    slots: int
    """The slots of a job."""
    switch_slots: int
    jobs: int
    """Jobs that have their slots at the same time."""
    link: float
    """The rate of the link."""
    gradients: float
    """The rate at which a job sums, counted in the bytes of its gradients, one way."""


def capacity(
    link: LinkModel,
    lanes: int,
    *,
    hops: int = 1,
    round_trip: float = 0.0,
    slots: int = 0,
    switch_slots: int = 0,
) -> Capacity:
    """Return the capacity of a switch for jobs whose workers have such links.

    `round_trip` is measured, in seconds. Without one it is that of `hops` links each way. `slots`
    are those of a job, by default as many as fill the link. `switch_slots` are those of the switch,
    by default the compiled program's. Raises UsageError if the job does not fit the switch, or if
    no program has so many lanes.
    """
    switch_slots = switch_slots or SWITCH_SLOTS.get(lanes, 0)
    if not switch_slots:
        raise UsageError(f"no compiled program has {lanes} lanes: give --switch-slots")
    packet = SlotParameters(lanes=lanes).frame
    seconds = round_trip or 2 * hops * (link.alpha + packet * link.beta)
    needed = slots_needed(8 / link.beta, seconds, packet)
    slots = aligned(slots or needed)
    if slots > switch_slots:
        raise UsageError(
            f"a job with {slots} slots does not fit a switch with {switch_slots}: give fewer --slots, or "
            "more --lanes"
        )
    full = min(1.0, slots * packet * link.beta / seconds)
    share = _BYTES * lanes / packet
    return Capacity(
        lanes, packet, seconds, needed, slots, switch_slots, switch_slots // slots,
        8 / link.beta, full * share * 8 / link.beta,
    )  # fmt: skip


def slots_needed(bits_per_second: float, round_trip: float, packet_bytes: int) -> int:
    """Return bandwidth x round trip / packet bits, rounded up: the slots that fill a link."""
    exact = bits_per_second * round_trip / (8 * packet_bytes)
    return max(1, math.ceil(exact - 1e-9))  # a rounding error must not add a packet


def aligned(slots: int) -> int:
    """Return the slots that the controller reserves: the next power of two."""
    return 1 << (slots - 1).bit_length()
