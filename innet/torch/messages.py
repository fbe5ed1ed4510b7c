"""Messages that the processes of a group exchange over Gloo after each step of joining.

A step fails on one process, and all have to learn of it: each sends the error's class and text.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

import torch
from torch.distributed import ProcessGroupGloo

from innet import errors
from innet.errors import (
    ControllerError,
    ControllerUnreachable,
    InnetError,
    NotAuthorized,
)

_MOST_TEXT = 512
Result = TypeVar("Result")


@dataclass(frozen=True)
class Message:
    """A message from one process to all others, over Gloo in plain text.

    `error` is the class of the error, or empty. `token_digest` is the SHA-256, in hexadecimal, of
    the process's token for a job of the group's own. `node` is the name of the process's node.
    `entrance` is where the others of the node find it. `alone` says why the process contributes for
    itself wherever it is, or is empty. `gather_job` tells whether it wishes a second job for large
    all-gathers. `jobs` has one name, or one for each slice. `own` tells that the jobs were created for
    the group, and are deleted after it.
    """

    error: str = ""
    text: str = ""
    token_digest: str = ""
    node: str = ""
    entrance: str = ""
    alone: str = ""
    gather_job: bool = False
    jobs: Sequence[str] = ()
    own: bool = False


def attempted(step: Callable[[], tuple[Result, Message]]) -> tuple[Result | None, Message]:
    """Run a step. Return its outcome, and the message for the others."""
    try:
        return step()
    except InnetError as problem:
        return None, Message(type(problem).__name__, str(problem))


def all_gathered(gloo: ProcessGroupGloo, mine: Message) -> list[Message]:
    """Return the messages of all processes, by rank."""
    content = json.dumps(asdict(replace(mine, text=mine.text[:_MOST_TEXT]))).encode()
    # Scripts may choose another default device.
    sizes = [int(each) for each in _gathered(gloo, torch.tensor([len(content)], device="cpu"))]
    own = torch.zeros(max(sizes), dtype=torch.uint8, device="cpu")
    own[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return [
        Message(**json.loads(bytes(each.tolist()).rstrip(b"\0"))) for each in _gathered(gloo, own)
    ]


def _gathered(gloo: ProcessGroupGloo, own: torch.Tensor) -> list[torch.Tensor]:
    found = [torch.empty_like(own) for _ in range(gloo.size())]
    gloo.allgather([found], [own]).wait()  # type: ignore[attr-defined]
    return found


def refusal_of(messages: Sequence[Message]) -> str:
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
