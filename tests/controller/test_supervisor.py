"""The supervisor of a switch, with a connection that fails in ways that no switch does."""

import threading
from collections.abc import Mapping, Sequence

from waiting import WITHIN

from innet.controller.jobs.records import Assignment
from innet.controller.switches.inspections import Inspections
from innet.controller.switches.supervisor import Supervisor


class Switch:
    """A connection to a switch that holds everything. Its first use fails without a reason."""

    broken = None
    held: Mapping = {}

    def __init__(self, uses: list[int]) -> None:
        self._uses = uses

    def check_ports(self) -> None:
        self._uses.append(len(self._uses))
        if len(self._uses) == 1:
            raise RuntimeError

    def start(self) -> bool:
        return True

    def hold(self, _: Sequence[Assignment]) -> dict[int, str]:
        return {}

    def expect(self, _: Mapping) -> None:
        pass

    def inspect(self) -> tuple[list[str], bool]:
        return [], False

    def damaged(self) -> dict[int, int]:
        return {}

    def close(self) -> None:
        pass


class Heard:
    """A listener that notes whether the switch can be used."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.ready = threading.Event()

    def assignments(self, _: str) -> list[Assignment]:
        return []

    def up(self, _: str) -> None:
        self.ready.set()

    def down(self, _: str, problem: str) -> None:
        self.problems.append(problem)

    def damaged(self, *_: object) -> None:
        pass


def test_a_switch_comes_back_after_an_error_without_a_message():
    uses, heard = [], Heard()
    supervisor = Supervisor("tor", lambda *_: Switch(uses), heard, Inspections())
    supervisor.start()
    try:
        assert heard.ready.wait(WITHIN)
        assert heard.problems == ["RuntimeError()"]
        assert supervisor.problem is None
    finally:
        supervisor.close()
