"""The options of all experiments, and the output of their results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

Output = Annotated[Path, typer.Option(help="Folder for the JSON and the picture.")]
Seed = Annotated[int, typer.Option(help="Seed of the model and the batches.")]
Add = Annotated[
    bool, typer.Option("--add", help="Keep the folder's results of other seeds and parts.")
]
Show = Annotated[bool, typer.Option("--show", help="Only show the results in the folder.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print tables as the documents have them.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Check that it works, with few hosts and steps.")
]


@dataclass(frozen=True)
class Table:
    """A table of text cells. A row has as many cells as there are `headings`."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def read_result(file: Path) -> Any:
    """Return the result that an experiment has written. Raises BadParameter if there is none."""
    if not file.exists():
        raise typer.BadParameter(f"there is no {file}: nothing was measured yet")
    return json.loads(file.read_text())


def show(tables: Sequence[Table], *, markdown: bool = False, quick: bool = False) -> None:
    """Print tables, for a terminal or for a document; with `quick`, add that they mean nothing."""
    for each in tables:
        if markdown:
            first, *lines = (f"| {' | '.join(line)} |" for line in (each.headings, *each.rows))
            typer.echo("\n".join([first, "|---" * len(each.headings) + "|", *lines, ""]))
            continue
        drawn = RichTable(*each.headings)
        for row in each.rows:
            drawn.add_row(*row)
        Console(width=150).print(drawn)
    if quick:
        typer.echo("This is --quick, which shows whether it works: the figures mean nothing.")
