"""The options that several benchmarks share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
