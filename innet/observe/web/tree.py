"""The tree of switches and hosts, as the nodes of the page's tree."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from innet.observe.view import JobView, Load, SwitchView, View, WorkerView

Node = dict[str, Any]
_GOOD, _BAD, _WAITED_FOR = "positive", "negative", "warning"


def nodes(view: View) -> list[Node]:
    """Return the switches without parents. Below each switch are its hosts and its child switches.

    A switch with several parents stands below the first, and names them all.
    """
    names = {each.switch.name for each in view.switches}
    children: dict[str, list[SwitchView]] = defaultdict(list)
    for each in view.switches:
        parents = [link.parent for link in each.switch.uplinks if link.parent in names]
        children[parents[0] if parents else ""].append(each)

    def below(parent: str) -> list[Node]:
        return [
            _switch(view, each, [*_hosts(view, each.switch.name), *below(each.switch.name)])
            for each in children[parent]
        ]

    return below("")


def every_id(found: Iterable[Node]) -> Iterator[str]:
    """Yield the ids of nodes, and of all nodes below them."""
    for each in found:
        yield each["id"]
        yield from every_id(each.get("children", ()))


def _switch(view: View, shown: SwitchView, children: list[Node]) -> Node:
    switch = shown.switch
    parts = [f"switch {switch.name}", _state(shown)]
    parts += [f"{switch.slots - switch.free_slots} of {switch.slots} slots in use"]
    for parent in dict.fromkeys(link.parent for link in switch.uplinks):
        parts.append(f"to {parent}: {_load(view.uplink_load(switch.name, parent))}")
    return _node(
        f"switch {switch.name}", parts, "dns", _GOOD if switch.reachable else _BAD, children
    )


def _state(shown: SwitchView) -> str:
    if shown.switch.reachable:
        return "ready, drained" if shown.switch.drained else "ready"
    return f"lost: {shown.switch.problem}" if shown.switch.problem else "lost"


def _hosts(view: View, switch: str) -> Iterator[Node]:
    """Yield the hosts at a switch in the order of their ports. Workers at one port share a host."""
    ports: dict[int, list[tuple[JobView, WorkerView]]] = defaultdict(list)
    for job, worker in view.workers_at(switch):
        ports[worker.status.port].append((job, worker))
    for port, found in sorted(ports.items()):
        ips = dict.fromkeys(worker.status.address.ip for _, worker in found)
        workers = [f"{job.job.name} worker {worker.rank}" for job, worker in found]
        load = sum((_worker_load(worker) for _, worker in found), Load())
        known = any(worker.rates for _, worker in found)
        parts = [f"port {port}", ", ".join(ips), ", ".join(workers), _load(load) if known else ""]
        if gone := [str(worker.rank) for _, worker in found if worker.status.disconnected]:
            parts.append(f"disconnected: worker {', '.join(gone)}")
        yield _node(f"switch {switch} port {port}", parts, "computer", _color(found), [])


def _color(found: Iterable[tuple[JobView, WorkerView]]) -> str:
    workers = list(found)
    if any(worker.status.disconnected for _, worker in workers):
        return _BAD
    waited_for = any(job.wait and worker.rank in job.job.waiting_for for job, worker in workers)
    return _WAITED_FOR if waited_for else _GOOD


def _worker_load(worker: WorkerView) -> Load:
    rates = worker.rates
    return Load(rates.bytes_sent, rates.bytes_received) if rates else Load()


def _load(load: Load) -> str:
    return f"↑ {load.up / 1e6:.2f} ↓ {load.down / 1e6:.2f} MB/s"


def _node(name: str, parts: Iterable[str], icon: str, color: str, children: list[Node]) -> Node:
    label = " · ".join(part for part in parts if part)
    return {"id": name, "label": label, "icon": icon, "iconColor": color, "children": children}
