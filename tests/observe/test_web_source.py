"""The web page's readings, and its pages: a failure in one browser costs the others nothing."""

import asyncio
from typing import Any

from innet.observe.web import serve, source
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
