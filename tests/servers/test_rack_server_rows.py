"""A server above racks turns results into parameters on their way out, frame by frame."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import parameter_rows
import pytest
from p4runtime_client import COMMIT
from parameter_rows import SERVICE_NUMBER, WIDTH, begin, describe, floats, lanes, read, result, step
from sanitizers import run_sanitized

from innet.controller.switches.names import Names
from innet.p4.artifacts import artifact
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.servers.rack.device import ServerDevice
from innet.servers.rack.native import Parameters
from innet.wire.check import intact
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES, Flag, Kind, Operation
from innet.wire.parameters import MOST_CHUNKS, Ask, Refusal

VALUES = np.arange(WIDTH, dtype=np.float32)
ONES = np.ones(WIDTH, np.int32)
LANES_AT = ENCAPSULATION_BYTES + HEADER_BYTES


@pytest.fixture
def kept():
    with Parameters(1 << 20) as made:
        made.set_service(SERVICE_NUMBER)
        yield made


@pytest.fixture
def begun(kept: Parameters):
    kept.answer(describe())
    kept.answer(begin(VALUES))
    return kept


def refused(frame: bytes) -> Refusal:
    packet = read(frame)
    assert packet["flags"] & Ask.REFUSED
    assert not packet["flags"] & Ask.DONE
    return Refusal(packet["lanes"][0])


def test_a_step_is_answered_with_parameters_and_sealed(begun: Parameters):
    frame = begun.answer(step(4 * ONES, rate=0.5, scale=-1, workers=2))
    packet = read(frame)
    assert packet["flags"] == Ask.STEP | Ask.DONE
    np.testing.assert_array_equal(floats(frame), VALUES - 0.5)  # 4 / 2 workers / 2 * 0.5
    records = np.frombuffer(frame, parameter_rows.DTYPE)
    assert intact(records, SERVICE_NUMBER, parameter_rows.SERVICE.udp_port).all()
    assert frame[:42] == step(ONES)[:42]


def test_a_frame_that_was_padded_on_its_way_is_answered_alike(begun: Parameters):
    frame = begun.answer(step(ONES) + bytes(200))
    assert frame[-200:] == bytes(200)
    np.testing.assert_array_equal(floats(frame[:-200]), VALUES - 1)


def test_a_step_that_comes_again_is_answered_alike_and_not_taken_again(begun: Parameters):
    first = begun.answer(step(ONES))
    assert begun.answer(step(ONES)) == first
    assert begun.answer(step(ONES, term=9, sequence=3, slot=1))[LANES_AT:] == first[LANES_AT:]
    counts = begun.counts()
    assert (counts["steps"], counts["repeated"], counts["refused"]) == (1, 2, 0)


def test_the_threads_of_several_cores_take_every_step_once(kept: Parameters):
    """Each thread steps through a chunk of its own and one of all, while jobs begin and end beside."""
    threads, steps, shared = 4, 200, 4
    kept.answer(describe(chunks=threads + 1))
    for chunk in range(threads + 1):
        kept.answer(begin(VALUES, chunk))

    def work(chunk: int) -> np.ndarray:
        for number in range(1, steps + 1):
            last = kept.answer(step(ONES, number, chunk))
            repeated = kept.answer(step(ONES, 1, shared))
            np.testing.assert_array_equal(floats(repeated), VALUES - 1)
        return floats(last)

    def begin_others() -> None:
        for nonce in range(6, 6 + steps):
            kept.answer(describe(nonce=nonce, job=8))
            kept.answer(begin(VALUES, nonce=nonce, job=8))

    with ThreadPoolExecutor(threads + 1) as pool:
        others = pool.submit(begin_others)
        for values in pool.map(work, range(threads)):
            np.testing.assert_array_equal(values, VALUES - steps)
        others.result()
    counts = kept.counts()
    assert (counts["steps"], counts["repeated"]) == (threads * steps + 1, threads * steps - 1)
    assert (counts["jobs"], counts["refused"]) == (2, 0)


def test_a_beginning_that_comes_again_changes_nothing(begun: Parameters):
    begun.answer(step(ONES))
    assert read(begun.answer(describe()))["flags"] & Ask.DONE
    np.testing.assert_array_equal(floats(begun.answer(step(ONES, 2))), VALUES - 2)


def test_a_new_beginning_forgets_the_old_one(begun: Parameters):
    begun.answer(describe(nonce=6))
    assert refused(begun.answer(step(ONES))) == Refusal.UNKNOWN
    assert begun.counts()["jobs"] == 1
    begun.answer(begin(VALUES * 2, nonce=6))
    np.testing.assert_array_equal(floats(begun.answer(step(ONES, nonce=6))), VALUES * 2 - 1)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (step(ONES, 2), Refusal.OUT_OF_TURN),
        (step(ONES, 0), Refusal.OUT_OF_TURN),
        (begin(VALUES, chunk=3), Refusal.MALFORMED),
        (step(ONES, chunk=-1), Refusal.MALFORMED),
        (step(ONES, chunk=1), Refusal.UNKNOWN),
        (step(ONES, nonce=4), Refusal.UNKNOWN),
        (step(ONES, job=8), Refusal.UNKNOWN),
        (step(ONES, workers=2, count=3), Refusal.DISAGREE),
        (describe(nonce=9, chunks=0), Refusal.MALFORMED),
        (describe(nonce=9, rule=99), Refusal.MALFORMED),
        (describe(nonce=9, chunks=MOST_CHUNKS, job=8), Refusal.NO_ROOM),
        (result(Ask.STEP, Operation.MAX, lanes(nonce=5, step=1)), Refusal.MALFORMED),
        (result(Ask.STEP | Ask.BEGIN, Operation.SUM, lanes(nonce=5)), Refusal.MALFORMED),
        (step(ONES, flags=Ask.STEP | Flag.OVERFLOW), Refusal.MALFORMED),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(begun: Parameters, frame, why):
    assert refused(begun.answer(frame)) == why
    np.testing.assert_array_equal(floats(begun.answer(step(ONES))), VALUES - 1)


@pytest.mark.parametrize(
    "frame",
    [
        step(ONES, kind=Kind.CONTRIBUTION),
        step(ONES, kind=Kind.PENDING),
        step(ONES, version=1),
        step(ONES, flags=0),
        step(ONES, flags=Ask.STEP | Ask.DONE),
        step(ONES, flags=Ask.STEP | Ask.REFUSED),
        step(ONES)[:-1],
        step(ONES)[:LANES_AT],
        b"",
    ],
)
def test_everything_else_leaves_as_it_is(begun: Parameters, frame: bytes):
    assert begun.answer(frame) == frame
    assert begun.counts()["steps"] == 0


def test_what_others_send_through_the_server_is_let_alone(begun: Parameters):
    begun.set_service(SERVICE_NUMBER - 1)
    assert begun.answer(step(ONES)) == step(ONES)
    begun.set_service(SERVICE_NUMBER)
    assert begun.counts()["steps"] == 0
    np.testing.assert_array_equal(floats(begun.answer(step(ONES))), VALUES - 1)


def test_the_address_that_is_left_is_served_if_another_is_deleted():
    """A controller may write the new address before it deletes the old one."""
    names, made = Names(artifact(64).p4info), p4rt.Update.INSERT
    old, new = (
        names.entry("service", {"address": number}, "serve", {"mac": 1})
        for number in (1, SERVICE_NUMBER)
    )
    with Parameters(1 << 20) as kept:
        device = ServerDevice(kept, [], 510, lambda _: None)
        with contextlib.closing(device):
            config = p4rt.ForwardingPipelineConfig(
                p4info=artifact(64).p4info, p4_device_config=artifact(64).json
            )
            device.configure(COMMIT, config)

            def write(kind: p4rt.Update.Type, entity: p4rt.Entity) -> bool:
                """Return whether frames are answered then."""
                assert device.write([p4rt.Update(type=kind, entity=entity)]) == [None]
                return bool(read(kept.answer(describe()))["flags"] & Ask.DONE)

            assert write(made, new)
            assert not write(made, old)
            assert write(p4rt.Update.DELETE, old)
            assert not write(made, old)
            assert not write(p4rt.Update.DELETE, new)
            assert write(made, new)
            assert write(p4rt.Update.DELETE, old)
            assert not write(p4rt.Update.DELETE, new)


def test_who_is_silent_makes_room():
    bytes_of_a_job = 3 * 16 + WIDTH * 4
    for silent_s, room in (60.0, False), (0.0, True):
        with Parameters(bytes_of_a_job, silent_s) as kept:
            kept.set_service(SERVICE_NUMBER)
            for job in (1, 2):
                kept.answer(describe(job=job))
                done = kept.answer(begin(VALUES, job=job))
            assert bool(read(done)["flags"] & Ask.DONE) == room
            assert kept.counts()["jobs"] == 1
            assert kept.counts()["bytes"] == bytes_of_a_job


def test_whatever_leaves_nothing_is_done_that_c_leaves_undefined():
    done = run_sanitized("parameters_fuzz.py", 1, 3000)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.startswith("clean: ")
