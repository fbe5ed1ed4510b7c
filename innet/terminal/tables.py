"""Tables on a terminal."""

from rich.table import Column, Table


def folding_table(*names: str) -> Table:
    """Return a table with these columns. It folds long values instead of cutting them."""
    return Table(*(Column(name, overflow="fold") for name in names))
