"""Stored state comes back unchanged. A file that is not a controller's is refused, and left alone."""

import contextlib
import errno
import os
import pathlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_records import ADDRESS, CHIP, JOB, RACK, SPEC, SWITCH

from innet.controller.jobs.changes import DatedEvent
from innet.controller.jobs.events import Path, Resume
from innet.controller.jobs.quotas import Holding
from innet.controller.jobs.records import (
    Attachment,
    JobRecord,
    JobSpec,
    SlotRange,
    Station,
    Uplink,
    WorkerRecord,
)
from innet.controller.state import store as store_module
from innet.controller.state.checksum import Checksum
from innet.controller.state.schema import SCHEMA_VERSION, UPGRADES
from innet.controller.state.store import State, Store
from innet.errors import ControllerError, UsageError
from innet.wire.frames import Address

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=64)
numbers = st.integers(0, (1 << 32) - 1)
places = st.none() | st.builds(SlotRange, st.integers(0, 255), numbers, numbers)
attachments = st.none() | st.builds(
    Attachment,
    st.integers(0, 509),
    st.just(ADDRESS) | st.builds(Address, names, names, numbers),
    st.sampled_from(["tor", "rack"]),
)
workers = st.lists(
    st.builds(WorkerRecord, st.integers(0, 31), numbers, st.booleans(), attachments),
    unique_by=lambda each: each.rank,
    max_size=4,
)
agreement = st.none() | st.builds(
    Resume,
    numbers,
    st.sampled_from([Path.SWITCH, Path.FALLBACK]),
    shared=st.booleans(),
    reason=names,
)
records = st.builds(
    JobRecord,
    st.builds(
        JobSpec,
        names,
        st.just("tor"),
        numbers,
        st.integers(1, 32),
        st.integers(1, 32),
        st.integers(1, 32),
        numbers,
        st.floats(0, 1e9),
        st.binary(max_size=32),
        numbers,
        st.lists(names, max_size=2).map(tuple),
        st.just("") | names,
    ),
    st.integers(1, 0xFFFF),
    places,
    st.booleans(),
    agreement,
    st.lists(st.tuples(st.integers(0, 31), names), max_size=3).map(tuple),
    workers.map(lambda some: tuple(sorted(some, key=lambda each: each.rank))),
    st.frozensets(names, max_size=2),
    st.frozensets(names, max_size=2),
)


@given(
    st.lists(
        records,
        unique_by=(lambda r: r.spec.name, lambda r: r.spec.id, lambda r: r.spec.number),
        max_size=4,
    )
)
def test_jobs_come_back_as_they_were_in_the_order_of_their_creation(jobs: list[JobRecord]):
    store = Store()
    store.add_switch(SWITCH)
    store.add_switch(RACK)
    for job in jobs:
        same, others = job.workers[1:2], job.workers[2:]  # the first joins, and another one leaves
        changed = [replace(each, fallback=not each.fallback) for each in others]
        gone = WorkerRecord(32, 1, True, None)
        before = replace(job, term=1, workers=(*same, *changed, gone))
        store.save_job(before)
        store.save_job(job, before=before)
    state = store.load()
    assert state.jobs == sorted(jobs, key=lambda job: job.spec.number)
    assert state.switches == [SWITCH, RACK]
    for job in jobs[1:]:
        store.remove_job(job.spec.name)
    assert store.load().jobs == jobs[:1]
    store.close()


def test_a_file_keeps_what_a_store_was_told_though_it_was_not_closed(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    store = Store(path)
    store.add_switch(SWITCH)
    store.save_job(JOB)
    for name in (path.name, f"{path.name}-wal"):  # as a killed process leaves them
        (tmp_path / f"killed{name.removeprefix(path.name)}").write_bytes(
            (tmp_path / name).read_bytes()
        )
    store.close()
    for each in (path, tmp_path / "killed"):
        again = Store(each)
        state = again.load()
        assert (state.switches, state.jobs) == ([SWITCH], [JOB])
        assert (state.last_id, state.last_number) == (1, 1)
        again.close()


def _stored_job(path: pathlib.Path) -> JobRecord:
    """Store a job with a worker that is attached, and one that is not. Return the job."""
    where = Attachment(3, ADDRESS, "tor")
    job = replace(JOB, workers=(WorkerRecord(0, 5, True, where), WorkerRecord(1, 6, True, None)))
    store = Store(path)
    store.add_switch(SWITCH)
    store.save_job(job)
    store.close()
    return job


def test_a_file_from_before_there_were_trees_goes_on(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    job = _stored_job(path)
    with contextlib.closing(sqlite3.connect(path)) as older:
        trees = (("switches", "uplinks"), ("jobs", "others"), ("workers", "switch"))
        for table, column in (*trees, ("switches", "target"), ("switches", "artifact")):
            older.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        older.execute("DROP TABLE checksum")
        _forget_events_and_later(older)
        older.execute("PRAGMA user_version = 1")
        older.commit()
    for _ in range(2):
        store = Store(path)
        state = store.load()
        assert (state.switches, state.jobs) == ([SWITCH], [job])
        store.close()


def _forget_group_ranks(older: sqlite3.Connection) -> None:
    older.execute("ALTER TABLE jobs DROP COLUMN group_ranks")


def _forget_stations(older: sqlite3.Connection) -> None:
    _forget_group_ranks(older)
    older.execute("ALTER TABLE switches DROP COLUMN stations")


def _forget_loans(older: sqlite3.Connection) -> None:
    _forget_stations(older)
    for column in ("min_slots", "priority", "borrowed_first", "borrowed_slots"):
        older.execute(f"ALTER TABLE jobs DROP COLUMN {column}")


def _forget_losses(older: sqlite3.Connection) -> None:
    _forget_loans(older)
    older.execute("ALTER TABLE jobs DROP COLUMN lost")


def _forget_drains(older: sqlite3.Connection) -> None:
    _forget_quotas(older)
    for table in ("switches", "jobs"):
        older.execute(f"ALTER TABLE {table} DROP COLUMN drained")


def _forget_quotas(older: sqlite3.Connection) -> None:
    _forget_losses(older)
    older.execute("DROP TABLE quotas")


def _forget_events_and_later(older: sqlite3.Connection) -> None:
    older.execute("DROP TABLE events")
    older.execute("ALTER TABLE jobs DROP COLUMN owner")
    _forget_drains(older)


def _stored_before(
    path: pathlib.Path, version: int, forget: Callable[[sqlite3.Connection], None]
) -> State:
    """Store a state in a file of an older version, which `forget` makes. Return the state."""
    stored(path)
    store = Store(path)
    before = store.load()
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as older:
        forget(older)
        older.execute(f"PRAGMA user_version = {version}")
        Checksum(older, version).keep()
        older.commit()
    return before


def test_a_file_from_before_there_were_other_switches_than_bmv2_goes_on(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    store = Store(path)
    store.add_switch(SWITCH)
    store.add_switch(RACK)
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.execute("CREATE TABLE before AS SELECT * FROM switches")
        for column in ("target", "artifact"):
            older.execute(f"ALTER TABLE before DROP COLUMN {column}")
        older.execute("DROP TABLE switches")
        older.execute("ALTER TABLE before RENAME TO switches")
        older.execute("DROP TABLE checksum")
        _forget_events_and_later(older)
        older.execute("PRAGMA user_version = 2")
        older.commit()
    store = Store(path)
    assert store.load().switches == [SWITCH, RACK]
    store.add_switch(CHIP)
    assert store.load().switches[-1] == CHIP
    store.close()


def test_a_file_from_before_there_was_a_checksum_gets_one(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    stored(path)
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.execute("DROP TABLE checksum")
        _forget_events_and_later(older)
        older.execute("PRAGMA user_version = 3")
        older.commit()
    store = Store(path)
    before = store.load()
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as damaged:
        damaged.execute("UPDATE jobs SET term = term + 1 WHERE name = 'job 7'")
        damaged.commit()
    refused(
        path, "its content does not fit its checksum; restore it from a copy, or name another file"
    )
    with contextlib.closing(sqlite3.connect(path)) as damaged:
        damaged.execute("UPDATE jobs SET term = term - 1 WHERE name = 'job 7'")
        damaged.commit()
    store = Store(path)
    assert store.load() == before
    store.close()


def test_a_file_from_before_switches_could_be_drained_is_upgraded(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    before = _stored_before(path, 6, _forget_drains)
    store = Store(path)
    assert store.load() == before
    store.close()
    assert (tmp_path / "state.v6").exists()


def test_a_file_from_before_there_were_quotas_is_upgraded(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    before = _stored_before(path, 7, _forget_quotas)
    store = Store(path)
    assert store.load() == before
    store.save_quota("alice", Holding(jobs=1, workers=3))
    store.close()
    store = Store(path)
    assert store.load() == replace(before, quotas={"alice": Holding(jobs=1, workers=3)})
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as damaged:
        damaged.execute("UPDATE quotas SET jobs = 100")
        damaged.commit()
    refused(path, "its content does not fit its checksum")


def test_a_file_from_before_terms_left_out_lost_switches_is_upgraded(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    before = _stored_before(path, 8, _forget_losses)
    store = Store(path)
    assert store.load() == before
    store.close()


def test_a_file_from_before_each_worker_had_a_digest_is_upgraded(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    job = _stored_job(path)
    with contextlib.closing(sqlite3.connect(path)) as older:
        _forget_stations(older)
        older.execute("PRAGMA user_version = 11")
        Checksum(older, 11).keep()
        older.execute("UPDATE workers SET nonce = nonce + 1 WHERE rank = 1")
        older.commit()
    refused(path, "its content does not fit its checksum")
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.execute("UPDATE workers SET nonce = nonce - 1 WHERE rank = 1")
        older.commit()
    store, left = Store(path), replace(job, workers=job.workers[1:])
    assert store.load().jobs == [job]
    store.save_job(left, before=job)
    store.close()
    with contextlib.closing(Store(path)) as again:
        assert again.load().jobs == [left]


def test_trees_begin_a_new_term_when_bits_no_longer_are_ranks(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    agreed = replace(JOB, agreement=Resume(77, Path.SWITCH, 0, 32))
    spread = replace(agreed, spec=replace(SPEC, name="tree", id=2, number=2, others=("rack",)))
    store = Store(path)
    store.add_switch(SWITCH)
    for job in (agreed, spread):
        store.save_job(job)
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as older:
        _forget_loans(older)
        older.execute("PRAGMA user_version = 9")
        Checksum(older, 9).keep()
        older.commit()
    store = Store(path)
    assert store.load().jobs == [agreed, replace(spread, agreement=None)]
    store.close()


def test_a_file_from_before_slots_were_lent_is_upgraded(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    before = _stored_before(path, 10, _forget_loans)
    store = Store(path)
    assert store.load() == before
    store.close()


def test_a_file_from_before_switches_had_stations_is_upgraded(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    before = _stored_before(path, 12, _forget_stations)
    store = Store(path)
    assert store.load() == before
    known = replace(CHIP, stations=(Station("02:00:00:00:00:09", 128),))
    store.add_switch(known)
    store.close()
    with contextlib.closing(Store(path)) as again:
        assert again.load().switches[-1] == known


def test_a_file_from_before_jobs_had_ranks_of_a_group_is_upgraded(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    before = _stored_before(path, 13, _forget_group_ranks)
    store = Store(path)
    assert store.load() == before
    [*others, last] = before.jobs
    ranked = replace(last, spec=replace(last.spec, group_ranks=(1, 3, 5, 7)))
    store.save_job(ranked, before=last)
    store.close()
    with contextlib.closing(Store(path)) as again:
        assert again.load().jobs == [*others, ranked]


def test_a_job_comes_back_with_the_slots_that_it_borrows(tmp_path: pathlib.Path):
    lending = replace(SPEC, min_slots=4, priority=2)
    job = replace(
        JOB, spec=lending, slot_range=SlotRange(3, 4, 4), loan=SlotRange(3, 32, 32)
    )  # fmt: skip
    store = Store(tmp_path / "state")
    store.add_switch(SWITCH)
    store.save_job(job)
    store.close()
    store = Store(tmp_path / "state")
    assert store.load().jobs == [job]
    store.close()


def test_a_drained_switch_comes_back_drained(tmp_path: pathlib.Path):
    store = Store(tmp_path / "state")
    store.add_switch(SWITCH)
    drained = replace(SWITCH, drained=True, ports=(1, 2), uplinks=(Uplink("spine", 2, 9),))
    store.change_switch(drained)
    job = replace(JOB, drained=frozenset({"tor", "rack"}), lost=frozenset({"spine"}))
    store.save_job(job)
    store.close()
    store = Store(tmp_path / "state")
    state = store.load()
    assert (state.switches, state.jobs) == ([drained], [job])
    store.close()


def test_a_file_from_before_events_were_kept_is_upgraded_and_copied_first(tmp_path: pathlib.Path):
    path, copy = tmp_path / "state", tmp_path / "state.v4"
    stored(path)
    store = Store(path)
    before = store.load()
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as older:
        _forget_events_and_later(older)
        older.execute("PRAGMA user_version = 4")
        Checksum(older, 4).keep()
        older.execute("UPDATE jobs SET term = term + 1 WHERE name = 'job 7'")
        older.commit()
    refused(path, "its content does not fit its checksum")
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.execute("UPDATE jobs SET term = term - 1 WHERE name = 'job 7'")
        older.commit()
    store = Store(path)
    assert store.load() == before
    assert store.events("job 7") == []
    store.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(copy)) as kept:
        assert kept.execute("PRAGMA user_version").fetchall() == [(4,)]
        assert kept.execute("SELECT count(*) FROM jobs").fetchall() == [(len(before.jobs),)]


def test_a_file_from_before_jobs_had_owners_goes_on(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    store = Store(path)
    store.add_switch(SWITCH)
    store.save_job(JOB, [event("job created", None)])
    before = store.load()
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as older:
        _forget_drains(older)
        older.execute("ALTER TABLE jobs DROP COLUMN owner")
        older.execute("ALTER TABLE events DROP COLUMN owner")
        older.execute("PRAGMA user_version = 5")
        Checksum(older, 5).keep()
        older.commit()
    store = Store(path)
    assert store.load() == before
    owned = replace(JOB, spec=replace(SPEC, owner="alice"))
    store.save_job(owned, [replace(event("term begins", None), owner="alice")])
    assert [each.owner for each in store.events(SPEC.name)] == ["", "alice"]
    store.close()
    store = Store(path)
    assert store.load().jobs == [owned]
    store.close()


def test_what_has_happened_to_a_job_outlives_it_and_the_controller(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    store = Store(path)
    store.add_switch(SWITCH)
    created, left = event("job created", None), event("worker left", 1)
    store.save_job(JOB, [created])
    store.save_job(JOB, [left])
    store.remove_job(JOB.spec.name, [event("job ended", None)])
    store.close()
    store = Store(path)
    assert store.events(JOB.spec.name) == [created, left, event("job ended", None)]
    assert store.events("another") == []
    store.close()


def test_the_oldest_events_of_a_job_are_dropped():
    store = Store()
    store.add_switch(SWITCH)
    store.save_job(JOB, [event("term begins", None, term) for term in range(1, 701)])
    assert [each.term for each in store.events(JOB.spec.name)] == [*range(201, 701)]
    store.close()


def event(what: str, rank: int | None, term: int = 7) -> DatedEvent:
    return DatedEvent(JOB.spec.name, 1000.5, what, rank, term, "because")


def test_the_last_number_is_known_when_the_job_is_gone():
    store = Store()
    store.add_switch(SWITCH)
    store.save_job(replace(JOB, spec=replace(SPEC, id=9, number=5)))
    store.remove_job("job")
    state = store.load()
    assert (state.last_id, state.last_number) == (9, 5)
    store.close()


def test_nothing_of_a_job_that_is_gone_stays_in_memory():
    store = Store()
    store.add_switch(SWITCH)
    before = len(store._checksum._digests)
    for number in range(1, 4):
        spec = replace(SPEC, name=f"job-{number}", id=number, number=number)
        store.save_job(replace(JOB, spec=spec, workers=(WorkerRecord(0, 1, True, None),)))
        store.remove_job(spec.name)
    assert len(store._checksum._digests) == before
    store.close()


def test_a_switch_is_forgotten_but_not_under_its_jobs():
    store = Store()
    store.add_switch(SWITCH)
    store.save_job(JOB)
    with pytest.raises(ControllerError, match="cannot write to :memory:: FOREIGN KEY"):
        store.remove_switch("tor")
    store.remove_job("job")
    store.remove_switch("tor")
    assert store.load().switches == []
    store.close()


def test_a_change_that_fails_changes_nothing():
    store = Store()
    store.add_switch(SWITCH)
    store.save_job(JOB)
    twice = (WorkerRecord(1, 2, True, None), WorkerRecord(1, 3, True, None))
    with pytest.raises(ControllerError, match="cannot write to :memory:: UNIQUE"):
        store.save_job(replace(JOB, term=78, workers=twice))
    assert store.load().jobs == [JOB]
    store.close()


def stored(path: pathlib.Path) -> bytes:
    """Make a file with some state, and return its bytes."""
    store = Store(path)
    store.add_switch(SWITCH)
    for number in range(1, 100):
        spec = replace(SPEC, name=f"job {number}", id=number, number=number)
        store.save_job(replace(JOB, spec=spec, agreement=Resume(7, Path.SWITCH, reason="x")))
    store.close()
    return path.read_bytes()


def refused(path: pathlib.Path, why: str) -> None:
    """Check that the file is refused, and unchanged."""
    before = path.read_bytes()
    with pytest.raises(UsageError, match=why):
        Store(path).load()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"x", b"SQLite format 3\0", b"{}" * 100])
def test_a_file_that_is_no_database_is_refused(tmp_path: pathlib.Path, content: bytes):
    path = tmp_path / "state"
    path.write_bytes(content)
    refused(path, "cannot be used as the controller's state: it is no SQLite file")


def test_a_database_of_something_else_is_refused(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE cookies (host)")
    database.close()
    refused(path, "it is something else's")


def test_a_state_of_a_newer_version_is_refused(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    stored(path)
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    refused(path, f"newer version of innet .format {SCHEMA_VERSION + 1}; this one knows")


def test_a_newer_version_is_known_though_its_controller_was_killed(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    stored(path)
    with contextlib.closing(Store(path)) as newer:
        newer._database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        for suffix in ("", "-wal"):  # as a killed process leaves them
            content = (tmp_path / f"state{suffix}").read_bytes()
            (tmp_path / f"killed{suffix}").write_bytes(content)
    with pytest.raises(UsageError, match="killed is of a newer version of innet"):
        Store(tmp_path / "killed")


def test_a_full_disk_is_not_the_fault_of_the_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "state"
    _stored_before(path, 12, _forget_stations)
    upgrade = (f"PRAGMA max_page_count = {path.stat().st_size // 4096}", "CREATE TABLE more (at)")
    monkeypatch.setitem(UPGRADES, 12, upgrade)
    refused(path, "^cannot keep the state in .*state: database or disk is full$")


def test_a_file_that_cannot_be_written_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    stored(tmp_path / "state")
    opened = os.open

    def read_only(path: str, flags: int, *more: int) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(UsageError, match=r"cannot keep the state in .*: Read-only file system"):
        Store(tmp_path / "state")


def test_an_empty_file_is_a_new_state(tmp_path: pathlib.Path):
    path = tmp_path / "state"
    path.touch()
    store = Store(path)
    assert store.load().jobs == []
    store.close()


@pytest.mark.parametrize("name", ["nowhere/state", "."])
def test_a_file_that_cannot_be_is_refused(tmp_path: pathlib.Path, name: str):
    with pytest.raises(UsageError, match="cannot keep the state in"):
        Store(tmp_path / name)


def test_a_second_controller_is_refused(tmp_path: pathlib.Path):
    first = Store(tmp_path / "state")
    with pytest.raises(
        UsageError, match="another controller that runs: stop that one, or name"
    ) as caught:
        Store(tmp_path / "state")
    assert "remove" not in str(caught.value)
    first.close()
    Store(tmp_path / "state").close()


def test_a_state_that_is_a_link_is_refused(tmp_path: pathlib.Path):
    stored(tmp_path / "state")
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with pytest.raises(UsageError, match="is a link"):
        Store(tmp_path / "link")


def test_an_owner_pushes_out_only_its_own_events(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "_MOST_EVENTS", 40)
    monkeypatch.setattr(store_module, "_MOST_EVENTS_OF_JOB", 5)
    monkeypatch.setattr(store_module, "_DROPPED_AT_ONCE", 2)
    store = Store()
    for owner, job in [("root", "train"), *[("alice", f"job-{at}") for at in range(100)]]:
        for _ in range(3):
            store.remove_job(job, [DatedEvent(job, 1.0, "job ended", None, 1, "", owner)])
    assert [each.owner for each in store.events("train")] == ["root"] * 3
    assert 30 <= sum(len(store.events(f"job-{at}")) for at in range(100)) <= 37
    for _ in range(20):  # a later job of the same name
        store.remove_job("train", [DatedEvent("train", 2.0, "job ended", None, 1, "", "alice")])
    assert [each.owner for each in store.events("train")] == ["root"] * 3 + ["alice"] * 5
    store.close()
