"""The web page's readings, and its pages: a failure in one browser costs the others nothing."""

import asyncio
import os
import socket
import subprocess
import sys
from typing import Any

from waiting import WITHIN

from innet.observe.web import source
from innet.observe.web.source import Source


def test_after_an_answer_that_is_not_understood_the_controller_is_read_again(monkeypatch):
    monkeypatch.setattr(source, "_EVERY", 0.02)
    monkeypatch.setattr(source, "_AT_MOST_EVERY", 0.01)
    answers: list[Any] = [KeyError("strange"), "a view"]
    shown: list[tuple[Any, str]] = []

    class Scripted(Source):
        def _read(self) -> Any:
            if isinstance(answer := answers.pop(0), Exception):
                raise answer
            return answer

    async def read_twice() -> None:
        made, both = Scripted("localhost:1", None), asyncio.Event()

        def changed() -> None:
            shown.append((made.view, made.problem))
            if not answers:
                both.set()

        running = asyncio.create_task(made.run(lambda: bool(answers), changed))
        await asyncio.wait([running, asyncio.create_task(both.wait())], timeout=10.0,
                           return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        running.cancel()

    asyncio.run(read_twice())
    why = "the controller's answer was not understood: KeyError('strange')"
    assert shown == [(None, why), ("a view", "")]


def test_a_page_that_cannot_be_updated_costs_the_others_nothing():
    from innet.observe.web import serve  # slow to import

    updated = []

    class Page:
        def __init__(self, name: str) -> None:
            self._name = name

        def update(self) -> None:
            if self._name == "broken":
                raise RuntimeError("the client is gone")
            updated.append(self._name)

    serve._update([Page(name) for name in ("first", "broken", "last")])  # type: ignore[list-item]
    assert updated == ["first", "last"]


def test_the_page_reads_the_log_and_ends_with_it_whatever_the_locale_is():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "innet.observe.web.serve"]
        options = ["--controller", "127.0.0.1:1", "--address", "127.0.0.1:0"]
        done = subprocess.run(
            [*command, "--socket", str(listener.fileno()), *options],
            input='{"timestamp": "", "level": "info", "event": "AddSwitch", "facts": "who=Jörg"}\n',
            check=False, capture_output=True, encoding="utf-8", pass_fds=[listener.fileno()],
            env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=WITHIN,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
