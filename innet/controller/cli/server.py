"""The command ``innet controller``."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from innet.controller import defaults
from innet.errors import UsageError
from innet.rpc import tls
from innet.rpc.addresses import local_address, served_address
from innet.rpc.client import DEFAULT_ADDRESS
from innet.telemetry import logs
from innet.terminal.console import say
from innet.terminal.options import (
    LogFormat,
    LogFormatted,
    MetricsAddress,
    ServedAddress,
    Verbose,
    finite,
)
from innet.terminal.signals import StopRequest

if TYPE_CHECKING:
    from innet.controller.controller import Controller
    from innet.controller.state.store import Store


def controller(
    address: ServedAddress = DEFAULT_ADDRESS,
    tls_folder: Annotated[
        Path | None,
        typer.Option(
            "--tls",
            help="Use TLS for all clients and switches, with ca.pem, workers-ca.pem, "
            "controller.pem and controller-key.pem from this folder.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Serve other machines without TLS. Anyone who connects may do everything.",
        ),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Save switches, jobs and workers in this file, so that the controller has them "
            "after a restart. Without this option they are only in memory."
        ),
    ] = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Wait while another controller has the state file, and take over when that controller "
            "has ended.",
        ),
    ] = False,
    lease: Annotated[
        float,
        typer.Option(
            min=0.1,
            callback=finite,
            help="If a worker's machine does not answer for this many seconds, remove the worker from "
            "its job. A process that is only busy or stopped stays in its job.",
        ),
    ] = defaults.WORKER_LEASE_S,
    most_slots_per_job: Annotated[
        int,
        typer.Option(min=0, help="Refuse jobs that ask for more slots than this; 0: no limit."),
    ] = 0,
    most_jobs: Annotated[
        int, typer.Option(min=0, help="Refuse more jobs than this at a time; 0: no limit.")
    ] = 0,
    metrics_address: MetricsAddress = "",
    web: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve a web page about switches and jobs at this address. For other machines, also "
            "give --tls or --web-token-file.",
        ),
    ] = "",
    web_token_file: Annotated[
        Path | None,
        typer.Option(
            help="Ask readers of the page for the token in this file, instead of a certificate. If the "
            "file is missing, the controller makes it.",
        ),
    ] = None,
    log_format: LogFormatted = LogFormat.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run the controller, until Ctrl-C.

    When it is ready, it prints [b]controller HOST:PORT[/b] to standard output.
    With --metrics-addr it also prints [b]Metrics HOST:PORT[/b], and with --web
    [b]Page URL[/b]. With --standby it prints [b]standby[/b] while it waits.
    """
    from innet.controller.server import ControllerServer
    from innet.controller.state.registry import Policy
    from innet.controller.web import WebPage
    from innet.machine.descriptors import raise_descriptor_limit
    from innet.telemetry.feed import LogFeed

    feed = LogFeed()
    logs.configure(verbose=verbose, log_format=log_format, also=[feed] if web else [])
    page = WebPage(web, tls_folder, web_token_file, log_format) if web else None
    if page:
        page.check()
    identity = tls.load(tls_folder, tls.CONTROLLER) if tls_folder else None
    policy = Policy(lease, most_slots_per_job, most_jobs)
    raise_descriptor_limit()
    with contextlib.ExitStack() as stack:
        stop = StopRequest() if standby else None
        kept = _taken_over(state, stop) if stop else state
        if stop and tls_folder:  # the files may have changed meanwhile
            identity = tls.load(tls_folder, tls.CONTROLLER)
        server = ControllerServer(address, identity, insecure=insecure, state=kept, policy=policy)
        stack.callback(server.close)
        metrics = metrics_address and stack.enter_context(
            _metrics(server.controller, metrics_address)
        )
        served = served_address(address, server.port)
        serve_page = page and (page.taken_over if standby else page.served)
        url = serve_page and stack.enter_context(serve_page(local_address(served), feed))
        stop = stop or StopRequest()  # before the line below, after which others may send signals
        say(f"controller {served}")
        if metrics:
            say(f"Metrics {metrics}")
        if url:
            say(f"Page {url}")
        stop.wait()


def _taken_over(state: Path | None, stop: StopRequest) -> "Store":
    """Wait until no other controller has the state file, and return the store."""
    from innet.controller.standby import await_state

    if not state:
        raise UsageError("--standby needs --state, with the file of the other controller")
    return await_state(state, lambda: say("standby"), stop.pause)


def _metrics(controller: "Controller", address: str) -> contextlib.AbstractContextManager[str]:
    from innet.controller.metrics import ControllerCollector
    from innet.telemetry.prometheus import serve

    return serve(ControllerCollector(controller), address, "--metrics-addr")
