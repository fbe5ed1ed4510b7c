"""The options of BMv2's simple_switch_grpc that innet-switch ignores or wants in another form."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from innet.errors import UsageError

_WITH_VALUE = (
    "--thrift-port", "--nanolog", "--notifications-addr", "--debugger-addr", "--dump-packet-data",
    "--max-port-count", "--restore-state", "--log-file-max-size", "--log-file-max-files",
    "--load-modules", "--max-mc-groups", "--max-l1-entries", "--max-l2-entries",
)  # fmt: skip
_FLAGS = ("--debugger", "--disable-swap", "--log-flush")
_UNSUPPORTED = ("--use-files", "--packet-in", "--dp-grpc-server-addr")
"""The options that let packets come from elsewhere than from interfaces."""

IGNORED = frozenset({*_WITH_VALUE, *_FLAGS})
"""The options that are accepted and have no effect."""


def translated(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return a command line of BMv2 in the form for innet-switch, and the options that are left out.

    BMv2 wants a bare ``--`` before its target's options, and its option ``--pcap`` may stand without a
    folder, which then is the working folder. Raises UsageError.
    """
    kept: list[str] = []
    ignored: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if name in _UNSUPPORTED:
            raise UsageError(f"{name} is not supported: attach interfaces with -i NUMBER@INTERFACE")
        if name in IGNORED:
            ignored.append(name)
            if name in _WITH_VALUE and not equals:
                _value(name, rest)
        elif argument == "--pcap":
            kept += _folder(rest)
        elif argument != "--":
            kept.append(argument)
    return kept, ignored


def _value(name: str, rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None:
        raise UsageError(f"{name} needs a value")
    return value


def _folder(rest: Iterator[str]) -> Iterator[str]:
    """Yield ``--pcap=FOLDER``, and the next argument if it is not the folder."""
    following = next(rest, None)
    other = following is None or following.startswith("-") or _is_program(following)
    yield f"--pcap={'.' if other else following}"
    if other and following and following != "--":
        yield following


def _is_program(argument: str) -> bool:
    return argument.endswith(".json") or Path(argument).is_file()
