"""Any topology file is either a plan or refused in a few lines, in little time and memory.

``INNET_FUZZ_TOPOLOGIES=200000`` is the long mode.
"""

import contextlib
import copy
import itertools
import os
import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from innet.documents.bounded_yaml import MAX_BYTES, MAX_DEPTH
from innet.emulation.plan import Plan, plan
from innet.emulation.topology import load, parse
from innet.errors import UsageError

DOCUMENTS = int(os.environ.get("INNET_FUZZ_TOPOLOGIES", "300"))
TEXTS = [path.read_text() for path in sorted(Path("topologies").glob("*.yaml"))]
ONE_RACK = "switches: [{name: tor}]\nracks: [{switch: tor, hosts: 2}]\n"
WITHIN_S = 60
GROWTH = 160 << 20
"""Bytes by which this process's memory may grow: some 2 KB for each byte of the largest file."""

LEAVES = (
    0, -1, 1, 2, 64, 65, 509, 510, 2_000_000_000, 2**31, 2**63, 10**400, 1e308, float("inf"),
    float("nan"), True, None, "", "tor1", "ctl", "h1", "a" * 5000, "\ud800", "\n", "\x1b[31m", "[/x]",
    "9" * 500 + "gbit", "1e9mbit", "0.0000001ms", "٣ms", "0.0.0.0/0", "255.255.255.255/32", "::/0",
    [], {}, [[]], [{}], {"<<": {}}, {1: 2}, {None: None}, [None] * 600, {"name": "x"},
)  # fmt: skip
PIECES = (
    "&a ", "*a", "<<: ", "<<: *a\n", "!!int ", "!!python/object:os.system ", "[", "{", "]", "}", "? ",
    ": ", "- ", "|\n", ">\n", "'", '"', '"\\UFFFFFFFF"', '"\\ud800"', "%YAML 9.9\n", "---\n", "...\n",
    "0x" + "f" * 9999, "9" * 9999, "\t", "1:" * 999 + "1", "190:20:30.15", "2001-99-99", "0b_", ".nan",
    "~", "\x00", "\ufeff", "\u2028", "#",
)  # fmt: skip


def outcome(text: str) -> Plan | str:
    """Return the plan of a text, or the error message. Raise any other error."""
    try:
        return plan(parse(text, "file.yaml"))
    except UsageError as problem:
        return str(problem)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all containers with their keys."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def changed_content(chance: random.Random) -> str:
    """Return a topology with some parts replaced by others, written as YAML again, with aliases."""
    content = yaml.safe_load(chance.choice(TEXTS))
    there = [*places(content)]
    for _ in range(chance.randint(1, 3)):
        where, key = chance.choice(there)
        other, from_key = chance.choice(there)
        match chance.randrange(5):
            case 0 if isinstance(where, dict):
                where[key] = copy.deepcopy(other)
            case 1 if isinstance(where, list):
                where *= chance.choice([0, 2, 3, 40])
            case 2 if isinstance(where, dict):
                where[chance.choice(["name", "hosts", "link", "ports", 7, "\ud800", "x" * 999])] = 1
            case 3:
                where.clear()
            case 4 if isinstance(where, dict):
                where[key] = other.get(from_key) if isinstance(other, dict) else other  # shared
            case _ if isinstance(where, dict) or key < len(where):
                where[key] = copy.deepcopy(chance.choice(LEAVES))
    return yaml.dump(content)


def changed_text(chance: random.Random) -> str:
    """Return a topology with pieces inserted, removed, or repeated."""
    text = chance.choice(TEXTS)
    for _ in range(chance.randint(1, 4)):
        begin, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        piece = chance.choice([*PIECES, text[begin:end], chr(chance.randrange(0x300))])
        repeated = (piece * chance.choice([1, 1, 1, 2, 30, 2000]))[: 2 * MAX_BYTES]
        cut = chance.choice([begin, begin, begin + 1, end])
        text = (text[:begin] + repeated + text[cut:])[: 2 * MAX_BYTES]
    return text


@contextlib.contextmanager
def bounded_wait() -> Iterator[None]:
    """End a test that does not end by itself."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"it has not come to an end within {WITHIN_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(WITHIN_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def largest_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def assert_sound(result: Plan | str) -> None:
    if isinstance(result, str):
        assert result.startswith(("file.yaml", "port "))
        assert len(result) < 10_000
        assert all(line.isprintable() for line in result.splitlines())


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("change", [changed_content, changed_text])
def test_a_changed_topology_is_a_plan_or_is_refused(change):
    outcome(ONE_RACK)
    before, plans = largest_memory(), 0
    for seed in range(DOCUMENTS):
        text = change(random.Random(seed))
        try:
            with bounded_wait():
                result = outcome(text)
            assert_sound(result)
        except BaseException as problem:
            raise AssertionError(f"{change.__name__} with seed {seed}: {text[:500]!r}") from problem
        plans += isinstance(result, Plan)
    assert 0 < plans < DOCUMENTS
    assert largest_memory() - before < GROWTH


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "a0: &a0 {x: 1}\n" + "".join(
                f"a{n + 1}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 9)}]}}\n" for n in range(30)
            ),
            "file.yaml:2: aliases are not allowed: write the value out",
        ),
        (
            "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
            "file.yaml:2: aliases are not allowed: write the value out",
        ),
        ("&a [*a]", "file.yaml:1: aliases are not allowed: write the value out"),
        ("switches: !!python/name:os.system x", "file.yaml:1: tags are not allowed: remove it"),
        ("x: " + "[" * 60_000, f"file.yaml:1: nested too deeply: at most {MAX_DEPTH} levels"),
        ("x: " + "[" * 16 + "]" * 16, f"file.yaml:1: nested too deeply: at most {MAX_DEPTH} levels"),
        ("- " * 30_000, f"file.yaml:1: nested too deeply: at most {MAX_DEPTH} levels"),
        ("\nslots: " + "9" * 5000, f"file.yaml:2: '{'9' * 59}... is not a valid value"),
        ("slots: 0x" + "f" * 50_000, f"file.yaml:1: '0x{'f' * 57}... is not a valid value"),
        ("slots: 1" + ":0" * 5000 + ".0", f"file.yaml:1: '1{':0' * 29}... is not a valid value"),
        ("slots: 2001-99-99", "file.yaml:1: '2001-99-99' is not a valid value"),
        ('x: "\\UFFFFFFFF"', "file.yaml:1: it is not YAML"),
        ("#" * (MAX_BYTES + 1), "file.yaml: the file is too large: it may have 65536 bytes at most"),
        (
            ONE_RACK.replace("hosts: 2", "hosts: 2000000000"),
            "file.yaml:2: racks.0.hosts: hosts is 2000000000: give their number",
        ),
        (
            ONE_RACK + f"link: {{rate: {'9' * 400}gbit}}\n",
            f"file.yaml:3: link.rate: '{'9' * 59}... is not a rate: write it like 100mbit",
        ),
        (
            ONE_RACK + "link: {rate: 999999999gbit}\n",
            "file.yaml:3: link.rate: Input should be less than or equal to 1000000000000",
        ),
        (
            ONE_RACK + "link: {queue: 99999999ms}\n",
            "file.yaml:3: link.queue: Input should be less than or equal to 60000",
        ),
        (
            ONE_RACK + '"\\ud800\\n": 1\n',
            "file.yaml:3: '\\ud800\\n' is not a valid value",
        ),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_would_cost_time_or_memory_is_refused_in_one_line(text: str, why: str):
    with bounded_wait():
        said = outcome(text)
    assert isinstance(said, str)
    assert said.startswith(why)
    assert len(said.splitlines()) == 1


def test_of_many_errors_the_first_are_said():
    said = outcome("".join(f"x{number}: 1\n" for number in range(5000))).splitlines()
    assert len(said) == 21
    assert said[-1] == "file.yaml: and 4982 more"


def test_an_endless_file_is_not_read_to_its_end():
    with bounded_wait(), pytest.raises(UsageError, match="/dev/zero: the file is too large"):
        load(Path("/dev/zero"))
