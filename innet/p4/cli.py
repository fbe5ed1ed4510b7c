"""The commands ``innet p4``."""

from pathlib import Path
from typing import Annotated

import typer

from innet.errors import UsageError
from innet.terminal.console import console, say
from innet.terminal.options import Lanes

app = typer.Typer(no_args_is_help=True, help="Compile the P4 program, and look at its resources.")
_out = console(soft_wrap=True)


@app.command("compile")
def compile_program(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder for the compiled program.")
    ] = None,
    lanes: Lanes = 64,
    slots: Annotated[
        int, typer.Option(min=1, max=65536, help="The number of slots in the switch.")
    ] = 8192,
    target: Annotated[
        str, typer.Option(help="The architecture: v1model, tofino or tofino2.")
    ] = "v1model",
) -> None:
    """Compile the P4 program with p4c-bm2-ss, or p4c-barefoot, which must be on the PATH.

    Without --output, the command recompiles the programs that are installed
    with innet, and writes their manifest.
    """
    from innet.p4 import compile as bmv2
    from innet.p4 import tofino
    from innet.p4.artifacts import SLOTS

    if target != "v1model" and target not in tofino.CHIPS:
        raise UsageError(f"target {target!r} is unknown: choose v1model, tofino or tofino2")
    allowed = [tofino.LANES] if target in tofino.CHIPS else [*SLOTS]
    if lanes not in allowed:
        can = " or ".join(map(str, allowed))
        raise UsageError(f"{lanes} lanes: the program can only have {can}")
    if output:
        try:
            made = (
                tofino.compile_program(target, slots, output)
                if target in tofino.CHIPS
                else bmv2.compile_program(lanes, slots, output)
            )
        except OSError as problem:
            raise UsageError(f"cannot write to {output}: {problem.strerror}") from None
        for path in made:
            _out.print(str(path))
        return
    folder = bmv2.SOURCES / "compiled"
    if target in tofino.CHIPS:
        folder /= "tofino"
        tofino.compile_artifacts(folder)
    else:
        bmv2.compile_artifacts(folder)
    _out.print(f"compiled to {folder}")


@app.command("report")
def show_report(
    source: Annotated[
        Path | None, typer.Option("--from", help="An assembly file (.bfa) from p4c-barefoot.")
    ] = None,
) -> None:
    """Show the resources that the program compiled by p4c-barefoot uses on Tofino 1 and 2."""
    from innet.p4 import report, tofino

    if source:
        found = [report.ResourceReport.of(_read(source))]
    else:
        found = [tofino.report(chip) for chip in tofino.CHIPS]
    for each in found:
        for line in report.lines(each):
            say(line)
        say()


def _read(source: Path) -> str:
    try:
        return source.read_text("utf-8", "replace")  # the reader refuses what is no assembly
    except OSError as problem:
        raise UsageError(f"cannot read {source}: {problem.strerror}") from None
