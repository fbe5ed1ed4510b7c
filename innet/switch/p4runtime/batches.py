"""Batches of updates, carried out either one by one or all together."""

from collections.abc import Callable, Iterable, Sequence

import grpc

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc.status import Refusal

Write = Callable[[p4rt.Update], None]
Existing = Callable[[p4rt.Entity], Iterable[p4rt.Entity]]


def each_alone(updates: Iterable[p4rt.Update], write: Write) -> list[Refusal | None]:
    """Carry out all updates that are possible. Returns None or a refusal for each of them."""
    return [_attempt(update, write) for update in updates]


def all_or_none(
    updates: Sequence[p4rt.Update], write: Write, existing: Existing
) -> list[Refusal | None]:
    """Carry out all updates, or undo those before the first that is refused.

    `existing` returns the present state of an update's entity, in a form that can be written again.
    Returns None or a refusal for each update. If all updates were carried out, there are no
    refusals.
    """
    undo: list[p4rt.Update] = []
    for number, update in enumerate(updates):
        before = [] if update.type == p4rt.Update.INSERT else _before(update, existing)
        refusal = _attempt(update, write)
        if refusal:
            for back in reversed(undo):
                write(back)
            others = Refusal(
                grpc.StatusCode.ABORTED, f"not carried out: update {number} is refused"
            )
            return [refusal if i == number else others for i in range(len(updates))]
        undo += _inverse(update, before)
    return [None] * len(updates)


def _before(update: p4rt.Update, existing: Existing) -> list[p4rt.Entity]:
    try:
        return list(existing(update.entity))
    except Refusal:
        return []  # the update itself is going to be refused too


def _attempt(update: p4rt.Update, write: Write) -> Refusal | None:
    try:
        write(update)
    except Refusal as refusal:
        return refusal
    return None


def _inverse(update: p4rt.Update, before: list[p4rt.Entity]) -> list[p4rt.Update]:
    if update.type == p4rt.Update.INSERT:
        return [p4rt.Update(type=p4rt.Update.DELETE, entity=update.entity)]
    kind = p4rt.Update.INSERT if update.type == p4rt.Update.DELETE else p4rt.Update.MODIFY
    return [p4rt.Update(type=kind, entity=entity) for entity in before]
