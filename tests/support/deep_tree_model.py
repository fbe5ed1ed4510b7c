"""The slot protocol in a tree of any depth, small enough to visit every state of it.

:mod:`tree_model` has two levels, and also loses packets for good. Here a switch may have workers, and
switches below it, at once. A packet that was sent once may arrive at any time, any number of times, or
never. A variant does not compare the sequence numbers of answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slot_model import Cell, FalseAlarm, Sum, WrongSum

Contributor = tuple[str, int]
"""A contributor at a switch: ``("worker", rank)`` or ``("switch", number)``."""

TOP = 0


@dataclass(frozen=True)
class Packet:
    """A sum on its way up from a switch, or a result on its way down to a contributor."""

    of: Contributor
    slot: int
    sequence: int
    total: Sum


@dataclass(frozen=True)
class State:
    """The whole state of the model.

    `progress[worker][slot]` is the number of the slot's results that the worker has accepted.
    `cells` is [switch][slot][copy]. `sums` and `results` are all packets that switches have sent up
    and down.
    """

    progress: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[tuple[Cell, Cell], ...], ...]
    sums: frozenset[Packet] = frozenset()
    results: frozenset[Packet] = frozenset()


@dataclass(frozen=True)
class DeepTree:
    """A tree: `parents` of the switches from number 1 on, and `homes`, the switch of every worker.

    Each slot is used `uses` times.
    """

    parents: tuple[int, ...]
    homes: tuple[int, ...]
    uses: int
    slots: int = 1
    compares: bool = True

    def contributors(self, switch: int) -> tuple[Contributor, ...]:
        """Return the contributors at a switch."""
        workers = [("worker", rank) for rank, home in enumerate(self.homes) if home == switch]
        below = [("switch", at) for at, up in enumerate(self.parents, 1) if up == switch]
        return (*workers, *below)

    def first_state(self) -> State:
        """Return the state before the first packet."""
        cells = ((Cell(), Cell()),) * self.slots
        progress = ((0,) * self.slots,) * len(self.homes)
        return State(progress, (cells,) * (len(self.parents) + 1))

    def finished(self, state: State) -> bool:
        """Return whether every worker has every result."""
        return all(done == self.uses for progress in state.progress for done in progress)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield all possible next steps, each with the state after it. Raises Violation."""
        for worker, progress in enumerate(state.progress):
            for slot, done in enumerate(progress):
                for use in range(min(done + 1, self.uses)):
                    total = ((worker, use * self.slots + slot),)
                    packet = Packet(("worker", worker), slot, use + 1, total)
                    yield f"{packet} arrives", self.arrive(state, self.homes[worker], packet)
        for packet in state.sums:
            parent = self.parents[packet.of[1] - 1]
            yield f"{packet} arrives above", self.arrive(state, parent, packet)
        for packet in state.results:
            kind, number = packet.of
            if kind == "switch":
                yield f"{packet} arrives below", self.hear(state, number, packet)
            elif state.progress[number][packet.slot] + 1 == packet.sequence:
                yield f"{packet} is taken", self._take(state, number, packet)

    def arrive(self, state: State, switch: int, packet: Packet) -> State:
        """Let a contribution arrive at a switch: the tables `decision` and `decision_below`."""
        cell = state.cells[switch][packet.slot][packet.sequence % 2]
        contributors, below = self.contributors(switch), switch != TOP
        if packet.sequence < cell.sequence:
            self._check_stale(state, packet)
            return state
        if packet.sequence > cell.sequence:
            cell = Cell(packet.sequence, missing=len(contributors) + below)
        elif cell.missing == 0:
            return _with_results(state, packet, cell.total, [packet.of])
        elif packet.of in cell.arrived:
            return state  # the reply is PENDING, or the same sum goes up again
        total = tuple(sorted((*cell.total, *packet.total)))
        cell = replace(
            cell, arrived=cell.arrived | {packet.of}, missing=cell.missing - 1, total=total
        )
        state = self._with_cell(state, switch, packet, cell)
        if below and cell.missing == 1:
            sum_of = Packet(("switch", switch), packet.slot, packet.sequence, total)
            return replace(state, sums=state.sums | {sum_of})
        return state if cell.missing else _with_results(state, packet, total, contributors)

    def hear(self, state: State, switch: int, packet: Packet) -> State:
        """Let a result of the parent arrive at a switch."""
        cell = state.cells[switch][packet.slot][packet.sequence % 2]
        if (self.compares and packet.sequence != cell.sequence) or cell.missing != 1:
            return state
        state = self._with_cell(state, switch, packet, replace(cell, missing=0, total=packet.total))
        packet = replace(packet, sequence=cell.sequence)
        return _with_results(state, packet, packet.total, self.contributors(switch))

    def _check_stale(self, state: State, packet: Packet) -> None:
        """Raise FalseAlarm if the sender still needs the result of what it hears is over."""
        kind, number = packet.of
        if kind == "worker":
            needs = state.progress[number][packet.slot] + 1 == packet.sequence
        else:
            mine = state.cells[number][packet.slot][packet.sequence % 2]
            needs = mine.sequence == packet.sequence and mine.missing == 1
        if needs:
            raise FalseAlarm(f"{packet} hears that it is left behind")

    def _take(self, state: State, worker: int, packet: Packet) -> State:
        chunk = (packet.sequence - 1) * self.slots + packet.slot
        if packet.total != tuple((each, chunk) for each in range(len(self.homes))):
            raise WrongSum(f"worker {worker} takes {packet}")
        mine = list(state.progress[worker])
        mine[packet.slot] += 1
        before, after = state.progress[:worker], state.progress[worker + 1 :]
        return replace(state, progress=(*before, tuple(mine), *after))

    def _with_cell(self, state: State, switch: int, packet: Packet, cell: Cell) -> State:
        cells = [list(each) for each in state.cells]
        pair = list(cells[switch][packet.slot])
        pair[packet.sequence % 2] = cell
        cells[switch][packet.slot] = (pair[0], pair[1])
        return replace(state, cells=tuple(map(tuple, cells)))


def _with_results(
    state: State, packet: Packet, total: Sum, to: "list[Contributor] | tuple[Contributor, ...]"
) -> State:
    results = {Packet(each, packet.slot, packet.sequence, total) for each in to}
    return replace(state, results=state.results | results)
