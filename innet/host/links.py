"""The links of a worker to the switch, from INNET_LINK."""

import re
from collections.abc import Mapping

from innet.errors import UsageError
from innet.machine import environment as names
from innet.machine.numbers import is_number


def own_links(environment: Mapping[str, str]) -> list[str]:
    """Return the links of this process, of which each process group takes one.

    ``INNET_LINK`` is ``host``, the default, or a cable made of UDP or in shared memory. It may name
    the links of several workers, separated by commas or spaces; ``LOCAL_RANK`` picks one. A worker
    may have several cables, joined with ``+``. Any number of groups can use the host's network.

    Raises UsageError.
    """
    workers = links_of_all(environment)
    if len(workers) == 1:
        return workers[0]
    local_rank = environment.get("LOCAL_RANK", "")
    if not is_number(local_rank):
        raise UsageError(
            "no local rank for INNET_LINK, which names the links of several workers: start them "
            "with torchrun, which sets LOCAL_RANK, or name one link"
        )
    if int(local_rank) >= len(workers):
        raise UsageError(
            f"INNET_LINK names {len(workers)} links, local rank {local_rank} has none: start at most "
            f"{len(workers)} processes on this machine, or name a link for each"
        )
    return workers[int(local_rank)]


def links_of_all(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the links of the workers that ``INNET_LINK`` names, at least one."""
    setting = environment.get(names.LINK, "").strip() or "host"
    return [worker.split("+") for worker in re.split(r"[,\s]+", setting)]
