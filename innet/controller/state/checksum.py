"""A checksum over the content of a state file: SQLite notices damage to its structure only.

Every switch, every job with its workers, every quota, the counter of jobs and the schema have a
digest. Their sum is kept in the file. A change replaces the digests of the items that it has changed.
"""

import hashlib
import sqlite3
from collections.abc import Iterable

Item = tuple[str, str]
"""An item with a digest: a kind and a name, which is empty for kinds with one item."""

LAST_JOB: Item = ("last_job", "")
_SCHEMA: Item = ("schema", "")
_BYTES = 32
_QUERIES = {
    "switch": ("SELECT rowid, * FROM switches WHERE name = ?",),
    "job": (
        "SELECT * FROM jobs WHERE name = ?",
        "SELECT * FROM workers WHERE job = ? ORDER BY rank",
    ),
    "quota": ("SELECT * FROM quotas WHERE owner = ?",),
    "last_job": ("SELECT * FROM last_job WHERE ?1 = ''",),
    "schema": ("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE ?1 = '' ORDER BY name",),
}
_NAMES = {
    "switch": "SELECT name FROM switches",
    "job": "SELECT name FROM jobs UNION SELECT job FROM workers",
    "quota": "SELECT owner FROM quotas",
}
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_TABLE_OF = {"switch": "switches", "job": "jobs", "quota": "quotas"}


def switch_item(name: str) -> Item:
    """Return the item of a switch."""
    return "switch", name


def job_item(name: str) -> Item:
    """Return the item of a job."""
    return "job", name


def quota_item(owner: str) -> Item:
    """Return the item of a quota."""
    return "quota", owner


class Checksum:
    """The checksum of an open database. Methods raise sqlite3.Error."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._digests: dict[Item, int] = {}
        self.recount()

    def recount(self) -> None:
        """Read the whole content again."""
        items = [LAST_JOB, _SCHEMA]
        tables = {name for [name] in self._database.execute(_TABLES)}
        for kind, query in _NAMES.items():
            if _TABLE_OF[kind] not in tables:  # the file is of a version before it
                continue
            items += [(kind, name) for [name] in self._database.execute(query)]
        self._digests = {each: self._digest(each) for each in items}

    def fits(self) -> bool:
        """Return whether the content still has the checksum that was kept."""
        [[kept]] = self._database.execute("SELECT value FROM checksum")
        return bool(kept == self._total())

    def keep(self, *changed: Item) -> None:
        """Keep the checksum of the content after these items have changed."""
        self._digests.update({each: self._digest(each) for each in changed})
        self._database.execute("UPDATE checksum SET value = ?", (self._total(),))

    def _total(self) -> bytes:
        return _sum(self._digests.values()).to_bytes(_BYTES)

    def _digest(self, item: Item) -> int:
        """Return the digest of an item's rows, or 0 if there are none."""
        kind, name = item
        rows = [self._database.execute(query, (name,)).fetchall() for query in _QUERIES[kind]]
        if not any(rows):
            return 0
        content = repr((item, rows)).encode("utf-8", "backslashreplace")
        return int.from_bytes(hashlib.sha256(content).digest())


def _sum(digests: Iterable[int]) -> int:
    return sum(digests) % (1 << 8 * _BYTES)
