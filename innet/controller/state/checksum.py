"""A checksum over the content of a state file: SQLite notices damage to its structure only.

Every switch, every job, every worker, every quota, the counter of jobs and the schema have a digest.
Their sum is kept in the file. A change replaces the digests of the items that it has changed. Files of
versions before :data:`WORKERS_SINCE` have one digest for a job and all its workers.
"""

import hashlib
import sqlite3
from collections.abc import Iterable

WORKERS_SINCE = 12
"""The first version of the file in which each worker has a digest of its own."""

Item = tuple[str, *tuple[str | int, ...]]
"""An item with a digest: a kind and a key. The key of a kind that has only one item is an empty name."""

LAST_JOB: Item = ("last_job", "")
_SCHEMA: Item = ("schema", "")
_BYTES = 32
_QUERIES = {
    "switch": ("SELECT rowid, * FROM switches WHERE name = ?",),
    "job": ("SELECT * FROM jobs WHERE name = ?",),
    "worker": ("SELECT * FROM workers WHERE job = ? AND rank = ?",),
    "quota": ("SELECT * FROM quotas WHERE owner = ?",),
    "last_job": ("SELECT * FROM last_job WHERE ? = ''",),
    "schema": ("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE ? = '' ORDER BY name",),
}
_NAMES = {
    "switch": "SELECT name FROM switches",
    "job": "SELECT name FROM jobs",
    "worker": "SELECT job, rank FROM workers",
    "quota": "SELECT owner FROM quotas",
}
_WITH_ITS_WORKERS = (*_QUERIES["job"], "SELECT * FROM workers WHERE job = ? ORDER BY rank")
_JOBS_OF_WORKERS = "SELECT name FROM jobs UNION SELECT job FROM workers"
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_TABLE_OF = {"switch": "switches", "job": "jobs", "worker": "workers", "quota": "quotas"}


def switch_item(name: str) -> Item:
    """Return the item of a switch."""
    return "switch", name


def job_item(name: str) -> Item:
    """Return the item of a job."""
    return "job", name


def worker_item(job: str, rank: int) -> Item:
    """Return the item of a worker of a job."""
    return "worker", job, rank


def quota_item(owner: str) -> Item:
    """Return the item of a quota."""
    return "quota", owner


class Checksum:
    """The checksum of an open database with the schema of a `version`. Methods raise sqlite3.Error."""

    def __init__(self, database: sqlite3.Connection, version: int) -> None:
        self._database, self._names = database, {**_NAMES}
        self._queries: dict[str, tuple[str, ...]] = {**_QUERIES}
        if version < WORKERS_SINCE:
            self._queries["job"], self._names["job"] = _WITH_ITS_WORKERS, _JOBS_OF_WORKERS
            del self._names["worker"]
        self._digests: dict[Item, int] = {}
        self._total = 0
        self.recount()

    def recount(self) -> None:
        """Read the whole content again."""
        items: list[Item] = [LAST_JOB, _SCHEMA]
        tables = {name for [name] in self._database.execute(_TABLES)}
        for kind, query in self._names.items():
            if _TABLE_OF[kind] not in tables:  # this version of the file has no such table
                continue
            items += [(kind, *key) for key in self._database.execute(query)]
        self._digests, self._total = {}, 0
        self._take(items)

    def fits(self) -> bool:
        """Return whether the content still has the checksum that was kept."""
        [[kept]] = self._database.execute("SELECT value FROM checksum")
        return bool(kept == self._value)

    def keep(self, *changed: Item) -> None:
        """Keep the checksum of the content after these items have changed."""
        self._take(changed)
        self._database.execute("UPDATE checksum SET value = ?", (self._value,))

    @property
    def _value(self) -> bytes:
        return (self._total % (1 << 8 * _BYTES)).to_bytes(_BYTES)

    def _take(self, items: Iterable[Item]) -> None:
        """Replace the digests of these items."""
        for each in items:
            digest = self._digest(each)
            self._total += digest - self._digests.get(each, 0)
            if digest:
                self._digests[each] = digest
            else:
                self._digests.pop(each, None)

    def _digest(self, item: Item) -> int:
        """Return the digest of an item's rows, or 0 if there are none."""
        kind, *key = item
        rows = [self._database.execute(query, key).fetchall() for query in self._queries[kind]]
        if not any(rows):
            return 0
        content = repr((item, rows)).encode("utf-8", "backslashreplace")
        return int.from_bytes(hashlib.sha256(content).digest())
