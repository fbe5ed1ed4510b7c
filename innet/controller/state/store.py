"""The state that outlives the controller, in SQLite: switches, jobs and their workers.

A file belongs to one controller at a time.
"""

import contextlib
import errno
import json
import os
import pathlib
import sqlite3
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from innet.controller.jobs.changes import DatedEvent
from innet.controller.jobs.quotas import NO_QUOTA, Holding
from innet.controller.jobs.records import (
    JobRecord,
    JobSpec,
    SlotRange,
    SwitchRecord,
    WorkerRecord,
)
from innet.controller.state.checksum import (
    LAST_JOB,
    Checksum,
    Item,
    job_item,
    quota_item,
    switch_item,
    worker_item,
)
from innet.controller.state.rows import (
    agreement_of,
    agreement_text,
    attachment_of,
    attachment_row,
    stations_text,
    switch_record,
    uplinks_text,
)
from innet.controller.state.schema import CHECKSUM_SINCE, SCHEMA, SCHEMA_VERSION, UPGRADES
from innet.errors import ControllerError, UsageError
from innet.machine.replaced_file import replace_file

_APPLICATION = int.from_bytes(b"inet")
_MOST_EVENTS, _MOST_EVENTS_OF_JOB = 20_000, 500
_DROPPED_AT_ONCE = 100
_MAGIC = b"SQLite format 3\0"
_HEADER = struct.Struct(">16x44xI4xI")  # the file's user version and application id


@dataclass(frozen=True)
class State:
    """All state that was kept. Jobs are in the order of their creation.

    `last_id` and `last_number` are those of the job created last, even if it is gone.
    """

    switches: list[SwitchRecord]
    jobs: list[JobRecord]
    last_id: int
    last_number: int
    quotas: Mapping[str, Holding] = field(default_factory=dict)


class StateInUse(UsageError):
    """A state file that belongs to another controller at present."""


class Store:
    """The state of one controller, in a file or in memory. For one thread at a time.

    Raises UsageError if the file is damaged, of a newer version, or not a controller's, and StateInUse if
    another controller has it. Then the file is left unchanged. A file of an older version is upgraded,
    and a copy of it is kept as ``PATH.vN``, where N is its version. Changes are on disk when a call
    returns. If they cannot be written, the call raises ControllerError and has changed nothing.
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        self._where = str(path) if path else ":memory:"
        if path:
            _check_file(path)
        try:
            self._database = sqlite3.connect(
                self._where, isolation_level=None, check_same_thread=False, timeout=0
            )
            with contextlib.ExitStack() as stack:
                stack.callback(self._database.close)
                self._open()
                stack.pop_all()
        except (sqlite3.Error, ValueError, OverflowError) as problem:
            raise _unopened(self._where, problem) from None

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def load(self) -> State:
        """Return all that was kept."""
        try:
            run = self._database.execute
            switches = [switch_record(*row) for row in run("SELECT * FROM switches ORDER BY rowid")]
            jobs = [self._job(*row) for row in run("SELECT * FROM jobs ORDER BY number")]
            [[last_id, last_number]] = run("SELECT * FROM last_job")
            quotas = {owner: Holding(*quota) for owner, *quota in run("SELECT * FROM quotas")}
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as problem:
            raise UsageError(_unusable(self._where, problem)) from None
        return State(switches, jobs, last_id, last_number, quotas)

    def add_switch(self, switch: SwitchRecord) -> None:
        """Keep a switch."""
        service = astuple(switch.service)
        ports = json.dumps(switch.ports)
        row = (
            switch.name, switch.grpc_address, switch.device_id, ports, *service, switch.lanes,
            uplinks_text(switch), switch.target, switch.artifact, switch.drained, stations_text(switch),
        )  # fmt: skip
        with self._transaction(switch_item(switch.name)) as database:
            database.execute(f"INSERT INTO switches VALUES ({_marks(row)})", row)  # noqa: S608 - no input

    def change_switch(self, switch: SwitchRecord) -> None:
        """Keep the ports and uplinks of a switch, and whether it is drained, as they are now."""
        with self._transaction(switch_item(switch.name)) as database:
            database.execute(
                "UPDATE switches SET ports = ?, uplinks = ?, drained = ? WHERE name = ?",
                (json.dumps(switch.ports), uplinks_text(switch), switch.drained, switch.name),
            )

    def remove_switch(self, name: str) -> None:
        """Forget a switch."""
        with self._transaction(switch_item(name)) as database:
            database.execute("DELETE FROM switches WHERE name = ?", (name,))

    def save_job(
        self, job: JobRecord, events: Iterable[DatedEvent] = (), before: JobRecord | None = None
    ) -> None:
        """Keep a job as it is now, with its workers, and what has happened to it.

        `before` is the record that the file has of the job, or None. Only the workers that differ
        are written, so that a join takes as long in a large job as in a small one.
        """
        spec, slot_range = job.spec, job.slot_range
        row = (
            spec.name, spec.switch, spec.id, spec.workers, spec.quorum, spec.min_workers, spec.slots,
            spec.lease_s, spec.token_digest, spec.number, job.term,
            *(astuple(slot_range) if slot_range else (None, None, None)),
            job.fresh, agreement_text(job.agreement), json.dumps(job.departed), json.dumps(spec.others),
            spec.owner, json.dumps(sorted(job.drained)), json.dumps(sorted(job.lost)),
            spec.min_slots, spec.priority,
            *((job.loan.first_slot, job.loan.slots) if job.loan else (None, None)),
            json.dumps(spec.group_ranks),
        )  # fmt: skip
        changed, gone = job.since(before)
        workers = [
            (spec.name, each.rank, each.nonce, each.fallback, *attachment_row(each.where))
            for _, each in changed
        ]
        ranks = [*gone, *(each.rank for _, each in changed)]
        items = [worker_item(spec.name, rank) for rank in ranks]
        with self._transaction(job_item(spec.name), LAST_JOB, *items) as database:
            database.execute(self._save_job, row)
            database.executemany(
                "DELETE FROM workers WHERE job = ? AND rank = ?",
                [(spec.name, rank) for rank in ranks],
            )
            database.executemany("INSERT INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", workers)
            database.execute(
                "UPDATE last_job SET id = ?, number = ? WHERE number < ?",
                (spec.id, spec.number, spec.number),
            )
            _add_events(database, spec.name, events)

    def remove_job(self, name: str, events: Iterable[DatedEvent] = ()) -> None:
        """Forget a job, except for what has happened to it."""
        query = "SELECT rank FROM workers WHERE job = ?"
        ranks = [rank for [rank] in self._database.execute(query, (name,))]
        items = [worker_item(name, rank) for rank in ranks]
        with self._transaction(job_item(name), *items) as database:
            database.execute("DELETE FROM jobs WHERE name = ?", (name,))
            _add_events(database, name, events)

    def save_quota(self, owner: str, quota: Holding) -> None:
        """Keep an owner's quota, or forget it if it has no limit."""
        with self._transaction(quota_item(owner)) as database:
            database.execute("DELETE FROM quotas WHERE owner = ?", (owner,))
            if quota != NO_QUOTA:
                database.execute("INSERT INTO quotas VALUES (?, ?, ?, ?)", (owner, *astuple(quota)))

    def events(self, job: str) -> list[DatedEvent]:
        """Return what has happened to the jobs of this name, in order, as far as it is kept.

        Raises ControllerError.
        """
        query = "SELECT job, at, event, rank, term, why, owner FROM events WHERE job = ? ORDER BY number"
        try:
            return [DatedEvent(*row) for row in self._database.execute(query, (job,))]
        except sqlite3.Error as problem:
            raise ControllerError(f"cannot read {self._where}: {problem}") from None

    def _open(self) -> None:
        run = self._database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA foreign_keys = ON")
        [[application]], [[version]] = run("PRAGMA application_id"), run("PRAGMA user_version")
        _check_version(self._where, version)
        if application and version < SCHEMA_VERSION:
            self._back_up(f"{self._where}.v{version}")
        run("BEGIN EXCLUSIVE")  # fails if another controller has it
        if not application:
            run(f"PRAGMA application_id = {_APPLICATION}")
            run(f"PRAGMA user_version = {SCHEMA_VERSION}")
            for statement in SCHEMA:
                run(statement)
        [[found]] = run("PRAGMA integrity_check(1)")
        if found != "ok":
            raise UsageError(_unusable(self._where, found))
        if (
            application
            and version >= CHECKSUM_SINCE
            and not Checksum(self._database, version).fits()
        ):
            raise UsageError(_unusable(self._where, "its content does not fit its checksum"))
        [[version]] = run("PRAGMA user_version")
        for older in range(version, SCHEMA_VERSION):
            for statement in UPGRADES[older]:
                run(statement)
            run(f"PRAGMA user_version = {older + 1}")
        self._checksum = Checksum(self._database, SCHEMA_VERSION)
        columns = ", ".join(name for _, name, *_ in run("PRAGMA table_info(jobs)"))
        new = ", ".join(f"excluded.{name}" for name in columns.split(", "))
        # REPLACE would delete the row first, and the job's workers with it.
        self._save_job = (
            f"INSERT INTO jobs VALUES ({_marks(columns.split(', '))}) "  # noqa: S608 - no input
            f"ON CONFLICT (name) DO UPDATE SET ({columns}) = ({new})"
        )
        if not application or version < SCHEMA_VERSION:
            self._checksum.keep()
        run("COMMIT")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")

    def _back_up(self, target: str) -> None:
        """Copy a file of an older version before it is upgraded."""
        try:
            replace_file(pathlib.Path(target), self._database.serialize(), 0o600)
        except OSError as problem:
            raise UsageError(
                f"cannot back up {self._where} to {target} before its upgrade: {problem.strerror}"
            ) from None

    def _job(self, *row: Any) -> JobRecord:
        (
            *spec,
            term,
            index,
            first_slot,
            slots,
            fresh,
            agreement,
            departed,
            others,
            owner,
            drained,
            lost,
            min_slots,
            priority,
            borrowed_first,
            borrowed_slots,
            group_ranks,
        ) = row
        slot_range = None if index is None else SlotRange(index, first_slot, slots)
        workers = self._database.execute(
            "SELECT * FROM workers WHERE job = ? ORDER BY rank", (spec[0],)
        )
        return JobRecord(
            replace(
                JobSpec(*spec),
                others=tuple(json.loads(others)),
                owner=owner,
                min_slots=min_slots,
                priority=priority,
                group_ranks=tuple(json.loads(group_ranks)),
            ),
            term,
            slot_range,
            bool(fresh),
            agreement_of(agreement),
            tuple((rank, reason) for rank, reason in json.loads(departed)),
            tuple(
                WorkerRecord(rank, nonce, bool(fallback), attachment_of(*where))
                for _, rank, nonce, fallback, *where in workers
            ),
            frozenset(json.loads(drained)),
            frozenset(json.loads(lost)),
            borrowed_first
            if borrowed_first is None
            else SlotRange(index, borrowed_first, borrowed_slots),
        )

    @contextlib.contextmanager
    def _transaction(self, *changed: Item) -> Iterator[sqlite3.Connection]:
        """Change these items, or raise ControllerError and change nothing."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database
            self._checksum.keep(*changed)
            self._database.execute("COMMIT")
        except sqlite3.Error as problem:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            with contextlib.suppress(sqlite3.Error):
                self._checksum.recount()
            raise ControllerError(f"cannot write to {self._where}: {problem}") from None


def _marks(row: Collection[object]) -> str:
    return ", ".join("?" * len(row))


def _add_events(database: sqlite3.Connection, job: str, events: Iterable[DatedEvent]) -> None:
    """Add events of a job, and drop the oldest if there are too many.

    If all jobs together have too many, those of the owner with most of them go. So an owner can push out
    only the owner's own events, also those of earlier jobs of the same name.
    """
    events = [*events]
    rows = [astuple(each) for each in events]
    if not rows:
        return
    database.executemany(
        "INSERT INTO events (job, at, event, rank, term, why, owner) VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    for owner in {each.owner for each in events}:
        database.execute(
            "DELETE FROM events WHERE job = ? AND owner = ? AND number <= (SELECT number FROM events "
            "WHERE job = ? AND owner = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (job, owner, job, owner, _MOST_EVENTS_OF_JOB),
        )
    [[kept]] = database.execute("SELECT count(*) FROM events")
    if kept > _MOST_EVENTS:
        database.execute(
            "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE owner = (SELECT owner "
            "FROM events GROUP BY owner ORDER BY count(*) DESC LIMIT 1) ORDER BY number LIMIT ?)",
            (max(kept - _MOST_EVENTS, _DROPPED_AT_ONCE),),
        )


def _unopened(where: str, problem: Exception) -> UsageError:
    """Return the error for a file that cannot be opened."""
    code = getattr(problem, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_BUSY:
        return StateInUse(
            f"{where} is the state of another controller that runs: stop that one, or name another file; "
            "with --standby this one waits"
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN):  # the file may be sound
        return UsageError(f"cannot keep the state in {where}: {problem}")
    return UsageError(_unusable(where, problem))


def _check_file(path: pathlib.Path) -> None:
    """Raise UsageError unless a file is new or a controller's, before SQLite touches it."""
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
            header = file.read(_HEADER.size)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise UsageError(
                f"{path} is a link, and the state is kept in none: name the file itself"
            ) from None
        raise UsageError(f"cannot keep the state in {path}: {problem.strerror}") from None
    if not header:
        return
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise UsageError(_unusable(str(path), "it is no SQLite file"))
    version, application = _HEADER.unpack(header)
    if application != _APPLICATION:
        raise UsageError(_unusable(str(path), "it is something else's"))
    if not version:
        raise UsageError(_unusable(str(path), "it has no version"))
    _check_version(str(path), version)


def _check_version(where: str, version: int) -> None:
    """Raise UsageError for the version of a newer file.

    The header does not have it yet if the controller that has upgraded the file was killed.
    """
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{where} is of a newer version of innet (format {version}; this one knows "
            f"{SCHEMA_VERSION}): use that version, or another file"
        )


def _unusable(where: str, why: object) -> str:
    said = " ".join(str(why).split())  # SQLite's message may have several lines
    return (
        f"{where} cannot be used as the controller's state: {said}; restore it from a copy, or name "
        "another file"
    )
