"""The log of a process in a pipe."""

import os
import select
from collections.abc import Iterator

import pytest

from innet.telemetry.feed import LogFeed, entries

ENTRY = {"timestamp": "2026-11-23T12:00:00Z", "level": "info", "event": "switch ready"}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_entries_from_before_and_after_arrive_in_order(pipe: tuple[int, int]):
    reader, writer = pipe
    feed = LogFeed()
    assert feed(None, "info", {**ENTRY, "switch": "tor"}) == {**ENTRY, "switch": "tor"}
    feed.attach(writer)
    feed(None, "info", {**ENTRY, "why": "a\x1b[31m", "avoids": "", "exc_info": True})
    feed.detach()
    feed(None, "info", ENTRY)
    lines = os.read(reader, 1 << 16).decode().splitlines()
    first, second = entries(lines)
    assert (first.timestamp, first.level, first.event) == tuple(ENTRY.values())
    assert (first.facts, second.facts) == ("switch=tor", r"why=a\x1b[31m")


def test_a_reader_that_does_not_read_stops_nothing_and_gets_whole_entries(pipe: tuple[int, int]):
    reader, writer = pipe
    feed = LogFeed()
    feed.attach(writer)
    for number in range(1000):
        feed(None, "info", {**ENTRY, "number": number, "why": "\N{PILE OF POO}" * 10_000})
    got = b""
    os.set_blocking(reader, False)
    while b"\n" not in got or not got.endswith(b"\n"):
        got += os.read(reader, 1 << 20)
    found = [*entries(got.decode().splitlines())]
    assert 0 < len(found) < 1000
    assert all(len(line) <= 4096 for line in got.splitlines())


@pytest.mark.parametrize("text", ["\N{PILE OF POO}", "\x1b", '"', "\udc80"], ids=ascii)
def test_entries_are_short_enough_to_be_written_whole(pipe: tuple[int, int], text: str):
    reader, writer = pipe
    feed = LogFeed()
    feed.attach(writer)
    feed(None, "info", {**ENTRY, "event": text * 10_000, "why": text * 10_000})
    [line] = os.read(reader, 1 << 20).splitlines(keepends=True)
    assert len(line) <= select.PIPE_BUF
    assert [each.level for each in entries([line.decode()])] == ["info"]


def test_a_reader_that_has_gone_stops_nothing():
    reader, writer = os.pipe()
    os.close(reader)
    feed = LogFeed()
    feed.attach(writer)
    for _ in range(2):
        feed(None, "info", ENTRY)
    os.close(writer)
