"""How the processes of a group get a job, and each of them its seat in it.

They do it together, for a group goes through the switch as a whole or not at all: rank 0 finds or
creates the job, all join it, and after each of the two steps they tell each other over Gloo how it
went. What the user has to mend is raised on every rank; a controller that refuses is a reason to let
Gloo carry the group.
"""

import contextlib
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, Store  # type: ignore[attr-defined]

from innet import errors, tls
from innet.controller import innet_pb2 as pb
from innet.controller.client import connect, translated
from innet.errors import (
    ControllerError,
    ControllerUnreachable,
    InnetError,
    NoCapacity,
    NotAuthorized,
    UsageError,
)
from innet.host.agent import Agent, join
from innet.host.fallback import NO_TIMEOUT, GlooFallback
from innet.host.seat import Patience
from innet.torch.settings import Settings

MOST_WORKERS = 32
_SILENT_SWITCH = 30.0  # seconds
_JOB_LEASE = 20  # seconds without a worker, after which the controller deletes a group's job
_WORD_BYTES = 4096
_log = logging.getLogger("innet")
Result = TypeVar("Result")
Environment = Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """One process's place in a group, and how it reaches the others."""

    store: Store
    gloo: ProcessGroupGloo
    rank: int
    size: int
    timeout: timedelta
    first: bool  # of this process's groups: the environment's job is for it


@dataclass(frozen=True)
class _Job:
    name: str
    token: str
    own: bool  # created for the group, and deleted after it


@dataclass(frozen=True)
class _Word:
    """What a process tells the others: `error` is the class of what went wrong, empty if nothing."""

    error: str = ""
    text: str = ""
    job: str = ""
    token: str = ""
    own: bool = False


class Seat:
    """A group's share in innet: `agent`, or None and the `reason` why Gloo carries all of it.

    `reason` is a word for a metric; :func:`take` logs the whole story.
    """

    def __init__(self, agent: Agent | None, reason: str, leave: contextlib.ExitStack) -> None:
        self.agent = agent
        self.reason = reason
        self._leave = leave

    def leave(self) -> None:
        """Give back the seat, the cable, and, as the last of the group, the job."""
        self._leave.close()


def take(place: Place, environment: Environment) -> Seat:
    """Get a seat for this process; all processes of the group have to call it.

    Raises the InnetErrors that the user has to mend, on every rank.
    """
    if place.size == 1:
        Settings.read(environment)
        return Seat(None, "one_worker", contextlib.ExitStack())
    with contextlib.ExitStack() as stack:
        settings, word = _tried(lambda: _prepare(place, environment))
        words = _told(place, word)
        refusal = _refusal(words)
        if settings is None or refusal:
            _give_up(settings, words[0])
            return _refused(place, refusal)
        job = _Job(words[0].job, words[0].token, words[0].own)
        if job.own:
            stack.callback(_leave, place, settings, job)
        agent, word = _tried(lambda: _join(place, settings, job, stack))
        refusal = _refusal(_told(place, word))
        if agent is None or refusal:
            return _refused(place, refusal)
        return Seat(agent, "", stack.pop_all())


def _prepare(place: Place, environment: Environment) -> tuple[Settings, _Word]:
    """The first step: everybody reads the settings, rank 0 finds or creates the job."""
    settings = Settings.read(environment)
    if place.size > MOST_WORKERS:
        raise NoCapacity(f"a job has up to {MOST_WORKERS} workers, the group {place.size}")
    if place.rank:
        return settings, _Word()
    if settings.job and place.first:
        return settings, _Word(job=settings.job, token=settings.token)
    name = f"torch-{uuid.uuid4().hex[:12]}"
    with _controller(settings) as stub, translated("create a job for the group"):
        request = pb.CreateJobRequest(
            name=name,
            switch=settings.switch or _only_switch(stub),
            workers=place.size,
            slots=settings.slots,
            lease_s=_JOB_LEASE,
            queue=True,  # without slots the group goes over the fallback until there are some
        )
        token = stub.CreateJob(request).token
    return settings, _Word(job=name, token=token, own=True)


def _join(
    place: Place, settings: Settings, job: _Job, stack: contextlib.ExitStack
) -> tuple[Agent, _Word]:
    """The second step."""
    seconds = place.timeout.total_seconds()
    link = stack.enter_context(_links.one_of(settings.links))
    # Of its own: what an exchange leaves behind must not meet the group's collectives.
    exchanges = ProcessGroupGloo(
        PrefixStore("fallback", place.store), place.rank, place.size, NO_TIMEOUT
    )
    fallback = GlooFallback(place.size, exchanges, exchanges)
    stack.callback(fallback.close)
    agent = join(
        settings.controller,
        job.name,
        place.rank,
        link,
        token=job.token,
        tls=settings.tls,
        fallback=fallback,
        patience=Patience(switch=min(_SILENT_SWITCH, seconds), workers=seconds),
    )
    stack.callback(agent.close, abandon=True)
    return agent, _Word()


def _leave(place: Place, settings: Settings, job: _Job) -> None:
    """The last of a group deletes its job; if that fails, it ends when its lease is over."""
    with contextlib.suppress(Exception):
        if place.store.add("left", 1) == place.size:
            place.store.delete_key("left")
            _delete(settings, job.name)


def _give_up(settings: Settings | None, first: _Word) -> None:
    """Rank 0 has created a job that nobody will join."""
    if settings and first.own and first.job:
        with contextlib.suppress(InnetError):
            _delete(settings, first.job)


def _delete(settings: Settings, name: str) -> None:
    with _controller(settings) as stub, translated("delete the group's job"):
        stub.DeleteJob(pb.DeleteJobRequest(name=name))


@contextlib.contextmanager
def _controller(settings: Settings) -> Iterator[Any]:
    identity = tls.load(settings.tls, tls.ADMIN) if settings.tls else None
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
    raise UsageError("the controller has no switch: tell it of one with `innet switch add`")


class _Links:
    """The links of this process: a cable belongs to one group at a time."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one_of(self, links: Sequence[str]) -> Iterator[str]:
        """A link that is free, until the block is left. Raises NoCapacity."""
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


# How it went, from everybody to everybody.


def _tried(step: Callable[[], tuple[Result, _Word]]) -> tuple[Result | None, _Word]:
    """A step's outcome, and what to tell the others."""
    try:
        return step()
    except InnetError as problem:
        return None, _Word(type(problem).__name__, str(problem))


def _told(place: Place, mine: _Word) -> list[_Word]:
    """What all processes say, by rank."""
    content = json.dumps(asdict(replace(mine, text=mine.text[: _WORD_BYTES // 8]))).encode()
    own = torch.zeros(_WORD_BYTES, dtype=torch.uint8)
    own[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    found = [torch.empty_like(own) for _ in range(place.size)]
    place.gloo.allgather([found], [own]).wait()  # type: ignore[attr-defined]
    return [_Word(**json.loads(bytes(each.tolist()).rstrip(b"\0"))) for each in found]


def _refusal(words: Sequence[_Word]) -> str:
    """Why Gloo has to carry the group; empty if it need not. Raises what the user has to mend."""
    refusals = []
    for rank, word in enumerate(words):
        if word.error:
            kind = vars(errors)[word.error]
            if not _refuses(kind):
                raise kind(f"{word.text} (said by rank {rank} of the group)")
            refusals.append(word.text)
    return refusals[0] if refusals else ""


def _refuses(kind: type[InnetError]) -> bool:
    """Whether an error means that the controller does not want to, rather than that it cannot."""
    return issubclass(kind, ControllerError) and not issubclass(
        kind, ControllerUnreachable | NotAuthorized
    )


def _refused(place: Place, refusal: str) -> Seat:
    if place.rank == 0:
        _log.warning("Gloo carries this process group instead of the switch: %s", refusal)
    return Seat(None, "refused", contextlib.ExitStack())
