"""The command ``innet pbox``."""

import contextlib
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.table import Table

from innet.errors import UsageError
from innet.rpc.addresses import check_plain_text
from innet.servers.memory import bytes_of
from innet.telemetry import logs
from innet.terminal.console import console, say
from innet.terminal.options import LogFormat, LogFormatted, MetricsAddress, ServedAddress, Verbose
from innet.terminal.signals import StopRequest

DEFAULT_ADDRESS = "127.0.0.1:19791"
_MOST_MEGABYTES = 1_000_000

app = typer.Typer(
    no_args_is_help=True, help="Run parameter servers, which sum gradients without a switch."
)


@app.command()
def serve(
    address: ServedAddress = DEFAULT_ADDRESS,
    cores: Annotated[int, typer.Option(min=1, help="The number of threads that aggregate.")] = 1,
    data_host: Annotated[
        list[str],
        typer.Option(
            help="The address of an interface for the cores. Give one option for each "
            "interface. By default it is the host of --address."
        ),
    ] = [],  # noqa: B006  (typer copies it)
    memory: Annotated[
        float,
        typer.Option(min=0, help="Memory of all jobs in GiB; 0: half of this machine's memory."),
    ] = 0,
    pin: Annotated[
        bool, typer.Option("--pin", help="Pin every thread to a CPU of its own.")
    ] = False,
    tls_folder: Annotated[
        Path | None,
        typer.Option(
            "--tls",
            help="Use mutual TLS for all workers, with ca.pem, workers-ca.pem, controller.pem and "
            "controller-key.pem from this folder.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Serve other machines without TLS. Anyone who connects may create jobs.",
        ),
    ] = False,
    metrics_address: MetricsAddress = "",
    log_format: LogFormatted = LogFormat.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run a parameter server until Ctrl-C. Without --tls, it serves this machine only.

    When it is ready, it prints one line to standard output, [b]pbox
    HOST:PORT[/b]. With --metrics-addr it prints a second line, [b]Metrics
    HOST:PORT[/b].
    """
    from innet.machine.descriptors import raise_descriptor_limit
    from innet.servers.pbox.server import Server
    from innet.servers.pbox.sockets import parse_address

    parse_address(address, "--address")
    if not (tls_folder or insecure):
        for each in (address, *(f"{host}:0" for host in data_host)):
            check_plain_text(
                each, "give certificates with --tls, which `innet certificates make` makes"
            )
    raise_descriptor_limit()  # each worker has a connection to each core
    memory_bytes = bytes_of(memory)
    logs.configure(verbose=verbose, log_format=log_format)
    log = structlog.get_logger("innet.servers.pbox")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            Server(
                address, cores, data_hosts=data_host, memory_bytes=memory_bytes,
                pin=pin, tls=tls_folder, report=log.info,
            )
        )  # fmt: skip
        metrics = ""
        if metrics_address:
            from innet.servers.pbox.metrics import serve_metrics

            metrics = stack.enter_context(serve_metrics(server.stats, metrics_address))
        stop = StopRequest()  # before the server announces itself
        say(f"pbox {server.address}")
        if metrics:
            say(f"Metrics {metrics}")
        stop.wait()


@app.command()
def bench(
    addresses: Annotated[
        list[str], typer.Argument(help="The servers' addresses, HOST:PORT.", metavar="ADDRESS...")
    ],
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Workers, each a thread of this process.")
    ] = 2,
    megabytes: Annotated[
        float, typer.Option(min=0.001, help="Size of the parameters in megabytes.")
    ] = 16.0,
    steps: Annotated[
        int, typer.Option(min=1, help="The number of exchanges of every worker.")
    ] = 20,
    optimizer: Annotated[
        str,
        typer.Option(help="The optimizer: SGD, Momentum, ..., Adam; None: the servers only sum."),
    ] = "None",
    chunk_bytes: Annotated[
        int, typer.Option(help="Size in bytes of the chunks that a key is cut into.")
    ] = 32768,
    tls_folder: Annotated[
        Path | None,
        typer.Option(
            "--tls",
            envvar="INNET_TLS",
            help="Use TLS, with ca.pem, worker.pem and worker-key.pem from this folder.",
        ),
    ] = None,
) -> None:
    """Measure how fast parameter servers exchange gradients with workers that compute nothing."""
    from innet.machine.descriptors import raise_descriptor_limit
    from innet.servers.pbox import benchmark
    from innet.servers.pbox.optimizers import by_name

    raise_descriptor_limit()
    if not megabytes < _MOST_MEGABYTES:
        raise UsageError(
            f"--megabytes {megabytes:g}: it has to be a number below {_MOST_MEGABYTES}"
        )
    with console(stderr=True).status(f"measuring the exchange with {', '.join(addresses)}"):
        rate = benchmark.measure(
            addresses,
            workers=workers,
            floats=max(1, int(megabytes * 1e6 / 4)),
            steps=steps,
            optimizer=by_name(optimizer),
            chunk_bytes=chunk_bytes,
            tls=tls_folder,
        )
    table = Table("workers", "optimizer", "ms per step", "MB/s pushed and pulled, all workers")
    table.add_row(
        str(workers), optimizer, f"{rate.seconds / steps * 1e3:.2f}",
        f"{rate.bytes_per_second / 1e6:.0f}",
    )  # fmt: skip
    console().print(table)
