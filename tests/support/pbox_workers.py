"""Workers of a parameter server, as threads of the test's process."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from innet.servers import pbox

WITHIN = 30.0


def together(
    addresses: list[str], workers: int, what: Callable[..., Any], **options: Any
) -> list[Any]:
    """Let every worker call ``what(client)`` at once. Return the results by rank, or raise an error."""

    def work(rank: int) -> Any:
        given = {"job": "test", "timeout": WITHIN, **options}
        with pbox.connect(addresses, rank=rank, workers=workers, **given) as client:
            return what(client)

    with ThreadPoolExecutor(workers) as pool:
        return [
            each.result(WITHIN) for each in [pool.submit(work, rank) for rank in range(workers)]
        ]
