"""The command ``innet pbox``."""

import contextlib
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.table import Table

from innet import commands, logs

DEFAULT_ADDRESS = "127.0.0.1:19791"

app = typer.Typer(
    no_args_is_help=True, help="Parameter servers: gradients summed without a switch."
)


@app.command()
def serve(
    address: Annotated[
        str, typer.Option(help="Where to serve, HOST:PORT; port 0 picks a free one.")
    ] = DEFAULT_ADDRESS,
    cores: Annotated[int, typer.Option(min=1, help="Threads that aggregate.")] = 1,
    data_host: Annotated[
        list[str],
        typer.Option(
            help="An address of an interface for the cores, as often as there are interfaces; "
            "without one it is --address's."
        ),
    ] = [],  # noqa: B006  (typer copies it)
    memory: Annotated[
        float, typer.Option(min=0, help="GiB that all jobs may use; 0: half of this machine's.")
    ] = 0,
    pin: Annotated[bool, typer.Option("--pin", help="Give every core a CPU of its own.")] = False,
    metrics_address: Annotated[
        str,
        typer.Option(
            "--metrics-addr", metavar="HOST:PORT", help="Serve [b]/metrics[/b] for Prometheus here."
        ),
    ] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a parameter server, until Ctrl-C. It is for trusted networks: nothing is encrypted.

    When it serves it prints one line to standard output, [b]pbox HOST:PORT[/b]. With --metrics-addr
    a second line says [b]Metrics HOST:PORT[/b].
    """
    from innet.pbox.server import Server

    logs.configure(verbose=verbose)
    log = structlog.get_logger("innet.pbox")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            Server(
                address, cores, data_hosts=data_host, memory_bytes=int(memory * (1 << 30)),
                pin=pin, report=log.info,
            )
        )  # fmt: skip
        metrics = ""
        if metrics_address:
            from innet.pbox.metrics import serve_metrics

            metrics = stack.enter_context(serve_metrics(server.stats, metrics_address))
        stop = commands.StopRequest()  # from before the server says that it serves
        typer.echo(f"pbox {server.address}")
        if metrics:
            typer.echo(f"Metrics {metrics}")
        stop.wait()


@app.command()
def bench(
    addresses: Annotated[
        list[str], typer.Argument(help="The servers, HOST:PORT.", metavar="ADDRESS...")
    ],
    workers: Annotated[int, typer.Option(min=1, max=256, help="Workers, threads of this.")] = 2,
    megabytes: Annotated[float, typer.Option(min=0.001, help="Of parameters.")] = 16.0,
    steps: Annotated[int, typer.Option(min=1, help="Exchanges of every worker.")] = 20,
    optimizer: Annotated[
        str, typer.Option(help="None, for sums, or SGD, Momentum, ..., Adam.")
    ] = "None",
    chunk_bytes: Annotated[int, typer.Option(help="What a key is cut into.")] = 32768,
) -> None:
    """Exchange with parameter servers as fast as they can, computing nothing, and say how fast."""
    from innet.pbox import zero
    from innet.pbox.optimizers import by_name

    rate = zero.measure(
        addresses,
        workers=workers,
        floats=max(1, int(megabytes * 1e6 / 4)),
        steps=steps,
        optimizer=by_name(optimizer),
        chunk_bytes=chunk_bytes,
    )
    table = Table("workers", "optimizer", "ms per step", "MB/s pushed and pulled, all workers")
    table.add_row(
        str(workers), optimizer, f"{rate.seconds / steps * 1e3:.2f}",
        f"{rate.bytes_per_second / 1e6:.0f}",
    )  # fmt: skip
    Console().print(table)
