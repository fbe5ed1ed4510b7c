"""Membership: a group of processes gets a job, and each process becomes one of its workers.

They do this together, because a group goes through the switch as a whole or not at all. All read
their settings, rank 0 finds or creates the job, and all join it. After each of these steps they
exchange the outcome over Gloo. Errors that the user has to fix are raised on every rank. If the
controller refuses, Gloo carries the group.

Where several nodes have several ranks each, the ranks of a node meet in shared memory
(:mod:`innet.host.node`). The group then has a job for every slice of a vector, in which one rank of
each node is a worker.

Gloo is not encrypted, and no token crosses it. For a job created for the group, every rank makes a
token of its own and sends the others its digest. Rank 0 gives the digests to the controller. For an
existing job every rank has the token in its environment.
"""

import contextlib
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
from torch.distributed import (  # type: ignore[attr-defined]
    DebugLevel,
    PrefixStore,
    ProcessGroupGloo,
    Store,
    get_debug_level,
)

from innet import errors
from innet.errors import (
    ControllerError,
    ControllerUnreachable,
    InnetError,
    NoCapacity,
    NotAuthorized,
    UsageError,
)
from innet.host.agent import Agent
from innet.host.fallback import NO_TIMEOUT, GlooFallback
from innet.host.job import Timeouts
from innet.host.join import join
from innet.host.node import Entrance, Node
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.client import connect, translated
from innet.rpc.tokens import new_token, token_digest
from innet.torch.nodes import Nodes, node_name
from innet.torch.settings import Settings
from innet.wire.layout import MOST_WORKERS

_SILENT_SWITCH = 30.0  # seconds
_JOB_LEASE = 20  # seconds without a worker, after which the controller deletes a group's job
_SLOTS = 128  # the controller's default, which the jobs of a group's slices share
_MEET_WITHIN = 30.0  # seconds
_MESSAGE_BYTES = 4096
_log = logging.getLogger("innet")
Result = TypeVar("Result")
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
    gathers: bool = False  # whether it is only the group's large all-gathers that need a job


@dataclass(frozen=True)
class _Message:
    """A message from one process to all others, over Gloo in plain text.

    `error` is the class of the error, or empty. `token_digest` is the SHA-256, in hexadecimal, of
    the process's token for a job of the group's own. `node` is the name of the process's node, or
    empty if it contributes for itself. `entrance` is where the others of the node find it. There is
    one of `jobs`, or one for each slice. `own` tells that they were created for the group, and are
    deleted after it.
    """

    error: str = ""
    text: str = ""
    token_digest: str = ""
    node: str = ""
    entrance: str = ""
    jobs: Sequence[str] = ()
    own: bool = False


class GroupMembership:
    """A group's membership: its `agent`, or None and the `reason` why Gloo carries everything.

    `reason` is a word for a metric; :func:`join_job` logs the explanation.
    """

    def __init__(
        self,
        agent: Agent | None,
        reason: str,
        leave: contextlib.ExitStack,
        own: "_OwnJob | None" = None,
    ) -> None:
        self.agent = agent
        self.reason = reason
        self._leave = leave
        self._own = own

    def leave(self) -> None:
        """Leave the job and give back the cable; as the last process of the group, delete the job."""
        self._leave.close()

    def abandon(self) -> None:
        """Do the same, but delete the job at once, since nobody needs it any more."""
        if self._own:
            self._own.over = True
        self.leave()


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


def join_job(group: GroupContext, environment: Environment) -> GroupMembership:
    """Make this process a worker of the group's job; all processes of the group have to call it.

    Raises the InnetErrors that the user has to fix, on every rank.
    """
    if group.size == 1 or debugging():
        Settings.read(environment)
        reason = "debug" if debugging() else "one_worker"
        return GroupMembership(None, reason, contextlib.ExitStack())
    with contextlib.closing(Entrance()) as entrance, contextlib.ExitStack() as stack:
        token = new_token()
        settings, message = _attempted(partial(_prepare, group, environment, token, entrance))
        messages = _all_gathered(group, message)
        refusal = _refusal(messages)
        if settings is None or refusal:
            return _refused(group, refusal)
        nodes, node = _meet(group, messages, entrance, stack)
        digests = [bytes.fromhex(each.token_digest) for each in messages]
        _, message = _attempted(partial(_find_jobs, group, settings, digests, nodes))
        found, *_ = messages = _all_gathered(group, message)
        if refusal := _refusal(messages):
            return _refused(group, refusal)
        part = _Part(group.rank, group.size)
        if nodes and node and len(found.jobs) > 1:
            part = _Part(nodes.number(group.rank), len(nodes.ranks), node.place.index, node)
        job = found.jobs[part.index]
        own = _OwnJob(group.store, settings, job, part.workers) if found.own else None
        if own:
            stack.callback(own.leave)
            settings = replace(settings, token=token)
        agent, message = _attempted(partial(_join, group, settings, job, part, stack))
        refusal = _refusal(_all_gathered(group, message))
        if agent is None or refusal:
            return _refused(group, refusal)
        return GroupMembership(agent, "", stack.pop_all(), own)


def join_for_gathers(group: GroupContext, environment: Environment) -> GroupMembership:
    """Do the same for the group's large all-gathers; they share its job if there cannot be another."""
    store = PrefixStore("gathers", group.store)
    further = replace(
        group, store=store, first=False, prefix=f"{group.prefix}-gathers", gathers=True
    )
    try:
        return join_job(further, environment)
    except InnetError as problem:  # on every rank
        return _refused(further, str(problem))


def debugging() -> bool:
    """Return whether PyTorch should check every collective, which it can only do over Gloo."""
    return get_debug_level() == DebugLevel.DETAIL


def _prepare(
    group: GroupContext, environment: Environment, token: str, entrance: Entrance
) -> tuple[Settings, _Message]:
    """Take the first step, in all processes: read the settings."""
    settings = Settings.read(environment)
    sliced = settings.local_sum and not (settings.job and group.first)
    return settings, _Message(
        token_digest=token_digest(token).hex(),
        node=node_name(environment) if sliced else "",
        entrance=entrance.name,
    )


def _meet(
    group: GroupContext,
    messages: Sequence[_Message],
    entrance: Entrance,
    stack: contextlib.ExitStack,
) -> tuple[Nodes | None, Node | None]:
    """Connect the ranks of each node. Return the nodes and this one, or None for both."""
    nodes, reason = Nodes.of([each.node for each in messages])
    if nodes is None:
        _log_own_contributions(group, reason)
        return None, None
    place = nodes.place(group.rank)
    names = [messages[rank].entrance for rank in place.ranks]
    node, message = None, _Message()
    try:
        node = entrance.meet(place, names, min(_MEET_WITHIN, group.timeout.total_seconds()))
        stack.callback(node.close)
    except OSError as problem:
        message = _Message(
            text=f"rank {group.rank} does not reach the others of its node: {problem}"
        )
    if reasons := [each.text for each in _all_gathered(group, message) if each.text]:
        _log_own_contributions(group, reasons[0])
        return None, None
    return nodes, node


def _log_own_contributions(group: GroupContext, reason: str) -> None:
    if reason and group.rank == 0:
        _log.info("every rank contributes for itself: %s", reason)


def _find_jobs(
    group: GroupContext, settings: Settings, digests: Sequence[bytes], nodes: Nodes | None
) -> tuple[None, _Message]:
    """Take the second step, in rank 0: find the job, or create jobs with all ranks' token digests.

    If the controller has no room for a job for each slice, there is one for all ranks.
    """
    if group.rank:
        return None, _Message()
    if settings.job and group.first:
        return None, _Message(jobs=[settings.job])
    name = f"{group.prefix}-{uuid.uuid4().hex[:12]}"
    with contextlib.suppress(NoCapacity):
        if nodes:
            return None, _Message(jobs=_created_slices(settings, name, digests, nodes), own=True)
    _create(settings, name, digests, settings.slots)
    return None, _Message(jobs=[name], own=True)


def _created_slices(
    settings: Settings, name: str, digests: Sequence[bytes], nodes: Nodes
) -> list[str]:
    """Create a job for each slice, which share the slots. Raises ControllerError."""
    slots = max(1, (settings.slots or _SLOTS) >> (nodes.slices - 1).bit_length())
    jobs: list[str] = []
    try:
        for index in range(nodes.slices):
            carriers = [digests[rank] for rank in nodes.carriers(index)]
            _create(settings, f"{name}-{index}", carriers, slots)
            jobs.append(f"{name}-{index}")
    except ControllerError:
        for job in jobs:
            _delete(settings, job)
        raise
    return jobs


def _create(settings: Settings, name: str, digests: Sequence[bytes], slots: int) -> None:
    """Create a job with a worker for each token digest. Raises ControllerError."""
    if len(digests) > MOST_WORKERS:
        raise NoCapacity(f"a job has at most {MOST_WORKERS} workers, and this has {len(digests)}")
    with _controller(settings) as stub, translated("create a job for the group"):
        request = pb.CreateJobRequest(
            name=name,
            switch=settings.switch or _only_switch(stub),
            workers=len(digests),
            slots=slots,
            lease_s=_JOB_LEASE,
            queue=True,  # until there are slots, the group sums over the fallback
            token_digests=digests,
        )
        stub.CreateJob(request)


def _join(
    group: GroupContext, settings: Settings, job: str, part: _Part, stack: contextlib.ExitStack
) -> tuple[Agent, _Message]:
    """Take the third step, in all processes: join the job, with the token of the settings."""
    link = stack.enter_context(_links.one_of(settings.links))
    # A separate group, so that an exchange's remnant does not meet the group's collectives.
    exchanges = ProcessGroupGloo(
        PrefixStore(f"fallback/{part.index}", group.store), part.rank, part.workers, group.timeout
    )
    # The timeout above was for connecting: a process may have died meanwhile.
    exchanges._set_default_timeout(NO_TIMEOUT)  # noqa: SLF001
    fallback = GlooFallback(part.workers, exchanges, exchanges)
    stack.callback(fallback.close)
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
    limit(agent, group.timeout)
    stack.callback(agent.close, abandon=True)
    return agent, _Message()


def limit(agent: Agent, timeout: timedelta) -> None:
    """Let the agent's all-reduces wait for other workers as long as a group's timeout allows."""
    seconds = timeout.total_seconds()
    agent.timeouts.switch, agent.timeouts.workers = min(_SILENT_SWITCH, seconds), seconds


def _delete(settings: Settings, name: str) -> None:
    with _controller(settings) as stub, translated("delete the group's job"):
        stub.DeleteJob(pb.DeleteJobRequest(name=name))


@contextlib.contextmanager
def _controller(settings: Settings) -> Iterator[Any]:
    identity = tls.load_operator(settings.tls) if settings.tls else None
    channel, stub = connect(settings.controller, identity=identity)
    with contextlib.closing(channel):
        yield stub


def _only_switch(stub: Any) -> str:
    names = [switch.name for switch in stub.ListSwitches(pb.ListSwitchesRequest()).switches]
    if len(names) == 1:
        return str(names[0])
    if names:
        raise UsageError(
            f"the controller has several switches: INNET_SWITCH has to be one of {names}"
        )
    raise UsageError("the controller has no switch: add one with `innet switch add`")


class _Links:
    """The links of this process: a cable belongs to one group at a time."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one_of(self, links: Sequence[str]) -> Iterator[str]:
        """Reserve a free link until the block is left. Raises NoCapacity."""
        with self._lock:
            free = [link for link in links if link not in self._taken]
            if not free:
                raise NoCapacity(
                    f"the {len(links)} cables of this worker carry other groups: give it more, "
                    "joined with + in INNET_LINK"
                )
            if free[0] != "host":
                self._taken.add(free[0])
        try:
            yield free[0]
        finally:
            with self._lock:
                self._taken.discard(free[0])


_links = _Links()


# The outcome of a step, exchanged between all processes.


def _attempted(step: Callable[[], tuple[Result, _Message]]) -> tuple[Result | None, _Message]:
    """Run a step. Return its outcome, and the message for the others."""
    try:
        return step()
    except InnetError as problem:
        return None, _Message(type(problem).__name__, str(problem))


def _all_gathered(group: GroupContext, mine: _Message) -> list[_Message]:
    """Return the messages of all processes, by rank."""
    content = json.dumps(asdict(replace(mine, text=mine.text[: _MESSAGE_BYTES // 8]))).encode()
    own = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
    own[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    found = [torch.empty_like(own) for _ in range(group.size)]
    group.gloo.allgather([found], [own]).wait()  # type: ignore[attr-defined]
    return [_Message(**json.loads(bytes(each.tolist()).rstrip(b"\0"))) for each in found]


def _refusal(messages: Sequence[_Message]) -> str:
    """Return why Gloo has to carry the group, or "". Raises the errors that the user has to fix."""
    refusals = []
    for rank, message in enumerate(messages):
        if message.error:
            kind = vars(errors)[message.error]
            if not _refuses(kind):
                raise kind(f"{message.text} (reported by rank {rank} of the group)")
            refusals.append(message.text)
    return refusals[0] if refusals else ""


def _refuses(kind: type[InnetError]) -> bool:
    """Return whether an error is the controller's refusal, rather than a failure to reach it."""
    return issubclass(kind, ControllerError) and not issubclass(
        kind, ControllerUnreachable | NotAuthorized
    )


def _refused(group: GroupContext, refusal: str) -> GroupMembership:
    if group.gathers:
        _log.info("large all-gathers share the job of their group: %s", refusal)
    elif group.rank == 0:
        _log.warning("Gloo carries this process group instead of the switch: %s", refusal)
    return GroupMembership(None, "refused", contextlib.ExitStack())
