"""A damaged state file is refused in one line, or it still contains the stored state.

``INNET_FUZZ_STATES=2000000`` is the long mode.
"""

import contextlib
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from stored_records import ADDRESS, CHIP, JOB, RACK, SPEC, SWITCH

from innet.controller.jobs import events
from innet.controller.jobs.events import Resume
from innet.controller.jobs.records import Attachment, SlotRange, WorkerRecord
from innet.controller.state.store import State, Store
from innet.errors import UsageError

STATES = int(os.environ.get("INNET_FUZZ_STATES", "400"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> tuple[bytes, State]:
    """Return a file with all kinds of content, and its state."""
    path = tmp_path_factory.mktemp("sound") / "state"
    store = Store(path)
    for switch in (SWITCH, RACK, CHIP):
        store.add_switch(switch)
    where = Attachment(3, ADDRESS, "tor")
    workers = (WorkerRecord(0, 5, True, where), WorkerRecord(1, 6, False, None))
    for number in range(1, 9):
        spec = replace(SPEC, name=f"job {number}", id=number, number=number, others=("rack",))
        slot_range = SlotRange(number, 32 * number, 32) if number % 2 else None
        agreement = Resume(77, events.Path.SWITCH, reason="x" * 40)
        departed = ((3, "it has left the job"),)
        job = replace(
            JOB,
            spec=spec,
            slot_range=slot_range,
            agreement=agreement,
            departed=departed,
            workers=workers,
        )
        store.save_job(job)
    store.remove_job("job 2")
    state = store.load()
    store.close()
    return path.read_bytes(), state


def damaged(chance: random.Random, content: bytes) -> bytes:
    """Return the content with flipped bits, with bytes overwritten, or cut off."""
    made = bytearray(content)
    kind = chance.randrange(4)
    if kind == 0:
        return bytes(made[: chance.randrange(1, len(made))])
    if kind == 1:
        start = chance.randrange(len(made))
        made[start : start + chance.randrange(1, 50)] = chance.randbytes(chance.randrange(50))
        return bytes(made)
    for _ in range(chance.choice((1, 1, 1, 3, 20))):
        used = [at for at, byte in enumerate(made[:100]) if byte] if kind == 2 else []
        made[chance.choice(used) if used else chance.randrange(len(made))] ^= 1 << chance.randrange(
            8
        )
    return bytes(made)


def opened(path: Path) -> State | str:
    """Return a file's state, or the message with which it is refused."""
    try:
        store = Store(path)
    except UsageError as problem:
        return str(problem)
    with contextlib.closing(store):
        return store.load()


def test_a_damaged_state_is_refused_or_contains_what_was_kept(sound, tmp_path: Path):
    chance, (content, kept) = random.Random(7), sound
    refused = 0
    for number in range(STATES):
        path = tmp_path / f"state-{number}"
        before = damaged(chance, content)
        path.write_bytes(before)
        found = opened(path)
        if isinstance(found, str):
            refused += 1
            assert "\n" not in found
            assert "remove" not in found
            assert path.read_bytes() == before
        else:
            assert found == kept, number
        for left in tmp_path.glob(f"{path.name}*"):
            left.unlink()
    assert STATES / 4 < refused < STATES
