"""The commands of the pages about libraries, and the launchers that they need."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from paths import ROOT

PAGES = ROOT / "docs/libraries"
_COMMAND = re.compile(r"^innet rack --workers (\d+) -- (.*) examples/(\w+)\.py$", re.MULTILINE)


@dataclass(frozen=True)
class PageCommand:
    """A command with which a page starts an example: its workers, its launcher, and the example."""

    page: str
    workers: int
    launcher: tuple[str, ...]
    example: str

    def __str__(self) -> str:
        return f"{self.page}-{self.launcher[0]}-{self.example}"

    def line(self, commands: Path, more: list[str]) -> list[str]:
        """Return the page's command with more arguments, and programs from a folder.

        The launchers take any free port, and not their usual one, since tests run side by side.
        """
        program, *rest = self.launcher
        start = {
            "accelerate": [str(commands / "accelerate"), *rest, "--main_process_port", "0"],
            "python": [str(commands / "python"), *rest],
            "torchrun": [
                str(commands / "python"), "-m", "torch.distributed.run", "--standalone", *rest
            ],
        }[program]  # fmt: skip
        return [*start, str(ROOT / f"examples/{self.example}.py"), *more]


def torchrun(example: str) -> PageCommand:
    """Return the command of docs/pytorch.md for an example that needs no other library."""
    return PageCommand("pytorch", 2, ("torchrun", "--nproc-per-node", "2"), example)


def page_commands() -> list[PageCommand]:
    """Return the commands of all pages, in the order of the pages."""
    found = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text().replace("\\\n", "")
        for workers, launcher, example in _COMMAND.findall(text):
            words = tuple(shlex.split(launcher))
            found.append(PageCommand(page.stem, int(workers), words, example))
    return found
