"""Tables on a terminal."""

from rich.console import Console, ConsoleOptions, RenderResult  # noqa: TID251 - a type only
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_UNLIMITED = 10_000


def folding_table(*names: str) -> Table:
    """Return a table with these columns. It folds long values instead of cutting them."""
    return Table(*(Column(name, overflow="fold") for name in names))


class FittingTable:
    """A table that leaves out columns where the terminal is too narrow, and names them below.

    The columns in `optional` go first, in this order. If the others still do not fit, values fold.
    """

    def __init__(self, *names: str, optional: tuple[str, ...] = ()) -> None:
        self._names = names
        self._optional = optional
        self._rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row with a cell for each column."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the widest table that fits, and the names of the columns that are left out."""
        hidden: list[str] = []
        table = self._without(hidden)
        for name in self._optional:
            unlimited = options.update_width(_UNLIMITED)
            if Measurement.get(console, unlimited, table).maximum <= options.max_width:
                break
            hidden.append(name)
            table = self._without(hidden)
        yield table
        if hidden:
            yield Text(f"on a wider terminal: {', '.join(hidden)}", style="dim")

    def _without(self, hidden: list[str]) -> Table:
        shown = [number for number, name in enumerate(self._names) if name not in hidden]
        table = folding_table(*(self._names[number] for number in shown))
        for cells in self._rows:
            table.add_row(*(cells[number] for number in shown))
        return table
