"""The command ``innet-switch``: a P4 switch in software, with simple_switch_grpc's options."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import structlog
import typer

from innet import commands, logs
from innet.errors import UsageError
from innet.switch.pcap import capture
from innet.switch.ports import MOST_PORTS, Port, open_port

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_log = structlog.get_logger("innet.switch")


@app.command()
def switch(
    json: Annotated[
        Path | None, typer.Argument(help="The program, as p4c-bm2-ss makes it.", metavar="[JSON]")
    ] = None,
    interface: Annotated[
        list[str],
        typer.Option(
            "-i",
            "--interface",
            metavar="N@PORT",
            help="Attach port N: a network interface, [b]1@eth0[/b], or a cable made of UDP, "
            "[b]1@udp:LOCAL_IP:PORT/REMOTE_IP:PORT[/b].",
        ),
    ] = [],  # noqa: B006  (typer copies it)
    grpc_address: Annotated[
        str, typer.Option("--grpc-server-addr", help="Where to serve P4Runtime.")
    ] = "0.0.0.0:9559",  # simple_switch_grpc's default
    device_id: Annotated[int, typer.Option(help="P4Runtime's name of this switch.")] = 0,
    cpu_port: Annotated[int, typer.Option(help="The port that leads to the controller.")] = 510,
    drop_port: Annotated[int, typer.Option(help="The port that means: drop.")] = 511,
    no_p4: Annotated[
        bool, typer.Option("--no-p4", help="Start without a program: P4Runtime brings it.")
    ] = False,
    keep_generated: Annotated[
        Path | None, typer.Option(help="Write the C that the program becomes to this folder.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Begin the program's random numbers with this, for tests.")
    ] = None,
    metrics_address: Annotated[
        str | None,
        typer.Option(
            "--metrics-addr", metavar="HOST:PORT", help="Serve [b]/metrics[/b] for Prometheus here."
        ),
    ] = None,
    priority_queues: Annotated[
        int, typer.Option(min=1, max=8, help="Queues of each port, by standard_metadata.priority.")
    ] = 1,
    log_console: Annotated[
        bool, typer.Option("--log-console", help="Say what becomes of every packet, step by step.")
    ] = False,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="[=FOLDER]", help="Capture what passes the interfaces: X_in.pcap, X_out.pcap."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a P4 program (v1model) on network interfaces, programmed through P4Runtime.

    The program is compiled to machine code with this machine's C compiler. When the switch is ready
    it prints one line to standard output, [b]P4Runtime HOST:PORT[/b]; port 0 picks a free one. With
    --metrics-addr a second line says [b]Metrics HOST:PORT[/b].

    Example, with two cables made of UDP and without privileges:

    [b]innet-switch --no-p4 -i 1@udp:127.0.0.1:9001/127.0.0.1:8001
    -i 2@udp:127.0.0.1:9002/127.0.0.1:8002 --grpc-server-addr 127.0.0.1:9559[/b]
    """
    from innet.switch.metrics import serve_metrics
    from innet.switch.p4runtime.device import Device
    from innet.switch.p4runtime.service import P4RuntimeService, serve

    logs.configure(verbose=verbose)
    if bool(json) == no_p4:
        raise UsageError("give a program's JSON, or --no-p4 to have P4Runtime bring it")
    _check_numbers(cpu_port, drop_port)
    with ExitStack() as stack:
        service = P4RuntimeService(device_id)
        ports = _open_ports(interface, {cpu_port, drop_port}, stack)
        if pcap:
            capture(pcap, ports)
        device = Device(
            ports,
            cpu_port,
            drop_port,
            service.tell,
            keep_generated,
            seed=seed,
            priority_queues=priority_queues,
            tracing=log_console,
        )
        stack.pop_all()  # the device closes the ports from here on
        service.device = device
        try:
            if json:
                device.load(_read(json))
            metrics = metrics_address and stack.enter_context(
                serve_metrics(device.stats, metrics_address)
            )
            server, port = serve(service, grpc_address)
            stop = commands.StopRequest()  # from before the switch says that it is ready
            sys.stdout.write(f"P4Runtime {commands.served_address(grpc_address, port)}\n")
            if metrics:
                sys.stdout.write(f"Metrics {metrics}\n")
            sys.stdout.flush()
            _log.info("ready", device_id=device_id, ports=[each.spec for each in ports])
            stop.wait()
            service.arbitration.close()
            server.stop(grace=0.5).wait()
        finally:
            device.close()


def _open_ports(specs: list[str], taken: set[int], stack: ExitStack) -> list[Port]:
    ports: list[Port] = []
    for spec in specs:
        port = open_port(spec)
        stack.callback(port.close)
        if port.number in taken:
            raise UsageError(f"port {spec!r}: number {port.number} is taken")
        taken.add(port.number)
        ports.append(port)
    return ports


def _check_numbers(cpu_port: int, drop_port: int) -> None:
    for name, number in (("--cpu-port", cpu_port), ("--drop-port", drop_port)):
        if not 0 < number < MOST_PORTS:
            raise UsageError(f"{name} {number}: port numbers are 1 to {MOST_PORTS - 1}")
    if cpu_port == drop_port:
        raise UsageError(f"--cpu-port and --drop-port are both {cpu_port}")


def _read(json: Path) -> bytes:
    try:
        return json.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot read {json}: {problem.strerror}") from None


def main() -> None:
    """Run the command.

    A bare ``--`` is skipped: BMv2 wants one before its target's options. Without ``=FOLDER``,
    ``--pcap`` is for the working folder.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--"]
    commands.run(app, ["--pcap=." if each == "--pcap" else each for each in arguments])
