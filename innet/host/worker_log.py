"""The log of a worker, through Python's logger ``innet``."""

import logging
from collections.abc import MutableMapping
from typing import Any

from innet.host.job import WorkerInfo
from innet.terminal.console import one_line


class WorkerLog(logging.LoggerAdapter[logging.Logger]):
    """The logger ``innet``, whose lines begin with the worker's job, and its rank in the group.

    Records also have the attributes ``job`` and ``rank``, for formatters that write JSON.
    """

    def __init__(self, info: WorkerInfo) -> None:
        rank = info.in_group(info.rank)
        self._prefix = f"job {info.job_name or info.job}, worker {rank}: ".replace("%", "%%")
        about = {"job": info.job_name or info.job, "rank": rank}
        super().__init__(logging.getLogger("innet"), about)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line. Text in `args`, which may come from other machines, adds no line of its own."""
        shown = (one_line(each) if isinstance(each, str) else each for each in args)
        super().log(level, msg, *shown, **kwargs)

    def process(
        self, msg: str, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        """Return the line with its prefix, and the record's attributes."""
        return self._prefix + msg, {**kwargs, "extra": self.extra}
