"""Membership: a group of processes gets a job, and each process becomes one of its workers.

They do this together, because a group goes through the switch as a whole or not at all. All read
their settings, rank 0 finds or creates the job, and all join it. After each of these steps they
exchange the outcome over Gloo. Errors that the user has to fix are raised on every rank. If the
controller refuses, Gloo carries the group.

Where nodes have several ranks each, the ranks of a node meet in shared memory (:mod:`innet.host.node`).
If there are several nodes, the group then has a job for every slice of a vector, in which one rank of
each node is a worker. If there is only one, its ranks need no switch, and have one job.

Gloo is not encrypted, and no token crosses it. For a job created for the group, every rank makes a
token of its own and sends the others its digest. Rank 0 gives the digests to the controller. For an
existing job every rank has the token in its environment.
"""

import contextlib
import logging
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from torch.distributed import (  # type: ignore[attr-defined]
    PrefixStore,
    ProcessGroupGloo,
    Store,
)

from innet.errors import ControllerError, InnetError, NoCapacity, UsageError
from innet.host.agent import Agent
from innet.host.fallback import NO_TIMEOUT, GlooFallback
from innet.host.job import Timeouts
from innet.host.join import join
from innet.host.node import Entrance, Node
from innet.machine.forks import Owner
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connected, translated
from innet.rpc.tokens import new_token, token_digest
from innet.torch.counts import NODE, SWITCH
from innet.torch.free_links import LINKS
from innet.torch.messages import Message, all_gathered, attempted, refusal_of
from innet.torch.nodes import Nodes, node_name
from innet.torch.settings import Settings
from innet.wire.layout import MOST_WORKERS

_JOB_LEASE = 20  # seconds without a worker, after which the controller deletes a group's job
_SLOTS = 128  # the controller's default, which the jobs of a group's slices share
_MEET_WITHIN = 30.0  # seconds
_log = logging.getLogger("innet")
Environment = Mapping[str, str]


@dataclass(frozen=True)
class GroupContext:
    """A process's rank in a group, and its connections to the others."""

    store: Store
    gloo: ProcessGroupGloo
    rank: int
    size: int
    timeout: timedelta
    first: bool  # whether this is the process's first group, which gets the environment's job
    prefix: str  # of the name of a job that is created for the group
    gathers: bool = False  # whether the job is only for the group's large all-gathers


class GroupMembership:
    """A group's membership: its `agent`, or None and the `reason` why Gloo carries everything.

    `reason` is a word for a metric; :func:`join_job` logs the explanation. `carrier` is that of the
    agent's collectives (:class:`innet.torch.counts.Way`). `gather_job` tells whether large all-gathers
    get a second job: all ranks wish it, and something leaves their node.

    A membership that its group has dropped without leaving ends as well, as soon as the collectives
    that have been called are done.
    """

    def __init__(
        self,
        agent: Agent | None,
        reason: str,
        leave: contextlib.ExitStack,
        own: "_OwnJob | None" = None,
        *,
        carrier: str = SWITCH,
        gather_job: bool = False,
    ) -> None:
        self.agent, self.reason = agent, reason
        self.carrier, self.gather_job = carrier, gather_job
        self._leave, self._own = leave, own
        self._owner = Owner(self)
        # The agent's thread keeps its connection alive. So its cable is free only when it is closed.
        self._dropped = weakref.finalize(self, _drop, agent, leave)
        self._dropped.atexit = False

    def leave(self) -> None:
        """Leave the job and give back the cable; as the last process of the group, delete the job."""
        self._dropped.detach()
        self._leave.close()

    def abandon(self) -> None:
        """Leave, and delete the job at once, since nobody needs it any more."""
        if self._own:
            self._own.over = True
        self.leave()


def _drop(agent: Agent | None, leave: contextlib.ExitStack) -> None:
    if agent:
        leave.callback(agent.close)  # which lets the calls that have been made finish
        LINKS.leave_soon(leave)


@dataclass
class _OwnJob:
    """A job that was created for the group, or for a slice of it.

    `over` tells that no process needs it any more.
    """

    store: Store
    settings: Settings
    name: str
    workers: int
    over: bool = False

    def leave(self) -> None:
        """Delete the job, if it is over or this is its last process. Otherwise its lease expires."""
        with contextlib.suppress(Exception):
            if self.over or self._last():
                _delete(self.settings, self.name)

    def _last(self) -> bool:
        left = f"left/{self.name}"
        last: bool = self.store.add(left, 1) == self.workers
        if last:
            self.store.delete_key(left)
        return last


@dataclass(frozen=True)
class _Part:
    """A process's part in a group's jobs: worker `rank` of `workers` in the job of slice `index`."""

    rank: int
    workers: int
    index: int = 0
    node: Node | None = None

    @classmethod
    def of_node(cls, rank: int, nodes: Nodes, node: Node) -> "_Part":
        """Return the part of a rank that sums in shared memory first."""
        jobs = nodes.jobs
        index = next(index for index, ranks in enumerate(jobs) if rank in ranks)
        return cls(jobs[index].index(rank), len(jobs[index]), index, node)

    @property
    def stays_in_node(self) -> bool:
        """Return whether nothing leaves the node, since it has all ranks of the group."""
        return self.node is not None and self.node.place.has_all


def join_job(group: GroupContext, environment: Environment) -> GroupMembership:
    """Make this process a worker of the group's job; all processes of the group have to call it.

    Raises the InnetErrors that the user has to fix, on every rank.
    """
    if group.size == 1:
        Settings.read(environment)
        return GroupMembership(None, "one_worker", contextlib.ExitStack())
    with contextlib.closing(Entrance()) as entrance, contextlib.ExitStack() as stack:
        token = new_token()
        settings, message = attempted(partial(_prepare, group, environment, token, entrance))
        messages = all_gathered(group.gloo, message)
        refusal = refusal_of(messages)
        if settings is None or refusal:
            return _refused(group, refusal)
        nodes, node = _meet(group, messages, entrance, stack)
        digests = [bytes.fromhex(each.token_digest) for each in messages]
        gather_job = all(each.gather_job for each in messages)
        _, message = attempted(partial(_find_jobs, group, settings, digests, nodes))
        found, *_ = messages = all_gathered(group.gloo, message)
        if refusal := refusal_of(messages):
            return _refused(group, refusal)
        part = _Part(group.rank, group.size)
        if nodes and node and len(found.jobs) == len(nodes.jobs):
            part = _Part.of_node(group.rank, nodes, node)
        job = found.jobs[part.index]
        own = _OwnJob(group.store, settings, job, part.workers) if found.own else None
        if own:
            stack.callback(own.leave)
            settings = replace(settings, token=token)
        agent, message = attempted(partial(_join, group, settings, job, part, stack))
        refusal = refusal_of(all_gathered(group.gloo, message))
        if agent is None or refusal:
            return _refused(group, refusal)
        carrier = NODE if part.stays_in_node else SWITCH
        if carrier == NODE:
            _log_once(group, "all ranks are on one node, and sum in its memory")
        gather_job = gather_job and carrier == SWITCH
        return GroupMembership(
            agent, "", stack.pop_all(), own, carrier=carrier, gather_job=gather_job
        )


def join_for_gathers(group: GroupContext, environment: Environment) -> GroupMembership:
    """Join a job for the group's large all-gathers. If that fails, they share the group's job."""
    store = PrefixStore("gathers", group.store)
    further = replace(
        group, store=store, first=False, prefix=f"{group.prefix}-gathers", gathers=True
    )
    try:
        return join_job(further, environment)
    except InnetError as problem:  # on every rank
        return _refused(further, str(problem))


def _prepare(
    group: GroupContext, environment: Environment, token: str, entrance: Entrance
) -> tuple[Settings, Message]:
    """Take the first step, in all processes: read the settings."""
    settings = Settings.read(environment)
    given = settings.job if group.first else ""
    return settings, Message(
        token_digest=token_digest(token).hex(),
        node=node_name(environment),
        entrance=entrance.name,
        alone=f"the job {given!r} has a worker for each rank" if given else settings.alone,
        gather_job=settings.gather_job,
    )


def _meet(
    group: GroupContext,
    messages: Sequence[Message],
    entrance: Entrance,
    stack: contextlib.ExitStack,
) -> tuple[Nodes | None, Node | None]:
    """Connect the ranks of each node. Return the nodes and this one, or None for both."""
    nodes, reason = Nodes.of([each.node for each in messages])
    alone = next((each.alone for each in messages if each.alone), "")
    if nodes is None or alone:
        _log_own_contributions(group, reason or (alone if nodes else ""))
        return None, None
    place = nodes.place(group.rank)
    names = [messages[rank].entrance for rank in place.ranks]
    node, message = None, Message()
    try:
        node = entrance.meet(place, names, min(_MEET_WITHIN, group.timeout.total_seconds()))
        stack.callback(node.close)
    except OSError as problem:
        message = Message(
            text=f"rank {group.rank} does not reach the others of its node: {problem}"
        )
    if reasons := [each.text for each in all_gathered(group.gloo, message) if each.text]:
        _log_own_contributions(group, reasons[0])
        return None, None
    return nodes, node


def _log_own_contributions(group: GroupContext, reason: str) -> None:
    if reason:
        _log_once(group, f"every rank contributes for itself: {reason}")


def _log_once(group: GroupContext, message: str) -> None:
    if group.rank == 0:
        _log.info(message)


def _find_jobs(
    group: GroupContext, settings: Settings, digests: Sequence[bytes], nodes: Nodes | None
) -> tuple[None, Message]:
    """Take the second step, in rank 0: find the job, or create jobs with all ranks' token digests.

    If the controller has no room for a job for each slice, there is one for all ranks.
    """
    if group.rank:
        return None, Message()
    if settings.job and group.first:
        return None, Message(jobs=[settings.job])
    name = f"{group.prefix}-{uuid.uuid4().hex[:12]}"
    queue = not group.gathers  # all-gathers can share the group's job
    try:
        if nodes and len(nodes.jobs) > 1:
            jobs = _created_slices(settings, name, digests, nodes, queue=queue)
            return None, Message(jobs=jobs, own=True)
    except NoCapacity as problem:
        _log_own_contributions(group, f"there is no room for a job for each slice: {problem}")
    # A job needs a slot, also if nothing leaves the node.
    slots = 1 if nodes and len(nodes.jobs) == 1 else settings.slots
    _create(settings, name, digests, slots, queue=queue)
    return None, Message(jobs=[name], own=True)


def _created_slices(
    settings: Settings, name: str, digests: Sequence[bytes], nodes: Nodes, *, queue: bool
) -> list[str]:
    """Create a job for each slice, which share the slots. Raises ControllerError."""
    slots = max(1, (settings.slots or _SLOTS) >> (len(nodes.jobs) - 1).bit_length())
    jobs: list[str] = []
    try:
        for index, ranks in enumerate(nodes.jobs):
            carriers = [digests[rank] for rank in ranks]
            _create(settings, f"{name}-{index}", carriers, slots, ranks, queue=queue)
            jobs.append(f"{name}-{index}")
    except ControllerError:
        for job in jobs:
            _delete(settings, job)
        raise
    return jobs


def _create(
    settings: Settings,
    name: str,
    digests: Sequence[bytes],
    slots: int,
    ranks: Sequence[int] = (),
    *,
    queue: bool = True,
) -> None:
    """Create a job with a worker for each token digest. Raises ControllerError.

    `ranks` are the workers' ranks in the group, if it has others, too. The job may `queue` for slots.
    Until it has some, its workers sum over the fallback.
    """
    if len(digests) > MOST_WORKERS:
        raise NoCapacity(f"a job has at most {MOST_WORKERS} workers, and this has {len(digests)}")
    with (
        connected(settings.controller, settings.tls) as stub,
        translated("create a job for the group"),
    ):
        request = pb.CreateJobRequest(
            name=name,
            switch=settings.switch or _only_switch(stub),
            workers=len(digests),
            slots=slots,
            lease_s=_JOB_LEASE,
            queue=queue,
            token_digests=digests,
            group_ranks=ranks,
        )
        stub.CreateJob(request)


def _join(
    group: GroupContext, settings: Settings, job: str, part: _Part, stack: contextlib.ExitStack
) -> tuple[Agent, Message]:
    """Take the third step, in all processes: join the job, with the token of the settings."""
    # A separate group, so that an exchange's remnant does not meet the group's collectives. It needs
    # all processes, so it comes before anything that may fail in one of them.
    exchanges = ProcessGroupGloo(
        PrefixStore(f"fallback/{part.index}", group.store), part.rank, part.workers, group.timeout
    )
    # The timeout above was for connecting: a process may have died meanwhile.
    exchanges._set_default_timeout(NO_TIMEOUT)  # noqa: SLF001
    fallback = GlooFallback(part.workers, exchanges, exchanges)
    stack.callback(fallback.close)
    link = LINKS.take(settings.links)
    stack.callback(LINKS.give_back, link)
    agent = join(
        settings.controller,
        job,
        part.rank,
        link,
        token=settings.token,
        tls=settings.tls,
        fallback=fallback,
        timeouts=Timeouts(),
        node=part.node,
    )
    agent.timeouts.limit(group.timeout.total_seconds())
    stack.callback(agent.close, abandon=True)
    return agent, Message()


def _delete(settings: Settings, name: str) -> None:
    with (
        connected(settings.controller, settings.tls) as stub,
        translated("delete the group's job"),
    ):
        stub.DeleteJob(pb.DeleteJobRequest(name=name))


def _only_switch(stub: Any) -> str:
    names = [switch.name for switch in stub.ListSwitches(pb.ListSwitchesRequest()).switches]
    if len(names) == 1:
        return str(names[0])
    if names:
        raise UsageError(
            f"the controller has several switches: INNET_SWITCH has to be one of {names}"
        )
    raise UsageError("the controller has no switch: add one with `innet switch add`")


def _refused(group: GroupContext, refusal: str) -> GroupMembership:
    if group.gathers:
        _log.info("large all-gathers share the job of their group: %s", refusal)
    elif group.rank == 0:
        _log.warning("Gloo carries this process group instead of the switch: %s", refusal)
    return GroupMembership(None, "refused", contextlib.ExitStack())
