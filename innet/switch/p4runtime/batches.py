"""Batches of updates, carried out either one by one or all together."""

from collections.abc import Callable, Iterable, Sequence

import grpc

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc.status import Refusal

Write = Callable[[p4rt.Update], None]
Undo = Callable[[p4rt.Update], Callable[[], None]]


def each_alone(updates: Iterable[p4rt.Update], write: Write) -> list[Refusal | None]:
    """Carry out all updates that are possible. Returns None or a refusal for each of them."""
    return [_attempt(update, write) for update in updates]


def all_or_none(updates: Sequence[p4rt.Update], write: Write, undo: Undo) -> list[Refusal | None]:
    """Carry out all updates, or undo those before the first that is refused.

    `undo` is called before an update, and returns a function that undoes it. Returns None or a
    refusal for each update. If all updates were carried out, there are no refusals.
    """
    undone: list[Callable[[], None]] = []
    for number, update in enumerate(updates):
        back = _prepared(undo, update)
        refusal = _attempt(update, write)
        if refusal:
            for each in reversed(undone):
                each()
            others = Refusal(
                grpc.StatusCode.ABORTED, f"not carried out: update {number} is refused"
            )
            return [refusal if i == number else others for i in range(len(updates))]
        undone.append(back)
    return [None] * len(updates)


def _prepared(undo: Undo, update: p4rt.Update) -> Callable[[], None]:
    try:
        return undo(update)
    except Refusal:
        return lambda: None  # the update itself is going to be refused too


def _attempt(update: p4rt.Update, write: Write) -> Refusal | None:
    try:
        write(update)
    except Refusal as refusal:
        return refusal
    return None
