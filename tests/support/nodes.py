"""Nodes whose workers are threads of the test: they share memory as processes do."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from waiting import WITHIN

from innet.host.node import Entrance, Node, Place


@contextlib.contextmanager
def met(nodes: int, size: int) -> Iterator[list[Node]]:
    """Yield the node of each rank: so many nodes with so many ranks each, in order."""
    places = [
        Place(ranks.tolist(), index, nodes * size)
        for ranks in np.arange(nodes * size).reshape(nodes, size)
        for index in range(size)
    ]
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(places)) as pool:
        entrances = [stack.enter_context(contextlib.closing(Entrance())) for _ in places]

        def meet(rank: int) -> Node:
            names = [entrances[other].name for other in places[rank].ranks]
            return entrances[rank].meet(places[rank], names, WITHIN)

        found = list(pool.map(meet, range(len(places))))
        for node in found:
            stack.callback(node.close)
        yield found
