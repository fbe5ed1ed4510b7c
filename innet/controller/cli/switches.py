"""The commands ``innet switch``."""

from typing import Annotated

import typer
from rich.table import Table

from innet.controller import defaults
from innet.controller.cli.options import (
    ArtifactFolder,
    DeviceId,
    Ports,
    ServiceIp,
    ServiceMac,
    StationOptions,
    Target,
    UplinkOptions,
    parse_ports,
    parse_station,
    parse_uplink,
)
from innet.errors import InnetError, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.client import DEFAULT_ADDRESS, connected, translated
from innet.rpc.plain import as_plain
from innet.rpc.words import misplaced, reachable
from innet.terminal.console import console, say_json
from innet.terminal.options import AsJson, ControllerAddress, Lanes, TlsFolder
from innet.terminal.tables import folding_table
from innet.wire.layout import UDP_PORT

app = typer.Typer(no_args_is_help=True, help="Manage the switches that the controller programs.")
_out = console(soft_wrap=True)
_MOVES = {
    pb.PATH_SWITCH: "goes on through other switches",
    pb.PATH_FALLBACK: "goes on with its fallback",
    pb.PATH_NONE: "waits until the switch is undrained",
}


@app.command("add")
def add(
    name: Annotated[
        str, typer.Argument(help="A new name: letters, digits, [b].[/b], [b]_[/b] and [b]-[/b].")
    ],
    grpc_address: Annotated[str, typer.Argument(help="The switch's P4Runtime address, HOST:PORT.")],
    ports: Ports,
    device_id: DeviceId = 0,
    lanes: Lanes = defaults.LANES,
    service_ip: ServiceIp = defaults.SERVICE.ip,
    service_mac: ServiceMac = defaults.SERVICE.mac,
    uplink: UplinkOptions = None,
    station: StationOptions = None,
    target: Target = "bmv2",
    artifact: ArtifactFolder = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Connect to the switch without TLS, although the controller has --tls.",
        ),
    ] = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Add a switch: give it the aggregation program and its service address.

    Start the switch first: BMv2's [b]simple_switch_grpc[/b] or
    [b]innet-switch[/b], with --no-p4. For a Tofino, give --target; see
    docs/deploy-tofino.md.
    """
    request = pb.AddSwitchRequest(
        name=name,
        grpc_address=tls.INSECURE * insecure + grpc_address,
        device_id=device_id,
        ports=parse_ports(ports),
        service=pb.Address(mac=service_mac, ip=service_ip, udp_port=UDP_PORT),
        lanes=lanes,
        uplinks=[_uplink(each) for each in uplink or ()],
        stations=[
            pb.Station(port=port, mac=mac) for port, mac in map(parse_station, station or ())
        ],
        target=target,
        artifact=artifact,
    )
    with connected(address, tls_folder) as stub, translated("add the switch"):
        added = stub.AddSwitch(request)
    _out.print(
        f"switch {added.name}: {added.slots} slots of {added.lanes} lanes, at {added.service.ip}"
    )
    if problems := _uplink_problems(added):
        raise InnetError(problems)


@app.command("list")
def list_switches(
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show all switches."""
    with connected(address, tls_folder) as stub, translated("list the switches"):
        found = stub.ListSwitches(pb.ListSwitchesRequest()).switches
    if as_json:
        say_json([as_plain(each) for each in found])
        return
    table = folding_table(
        "switch", "P4Runtime", "device", "ports", "address", "lanes", "free slots", "reachable"
    )
    for each in found:
        ports = ",".join(str(port) for port in each.ports)
        free = f"{each.free_slots} of {each.slots}"
        table.add_row(
            each.name, each.grpc_address, str(each.device_id), ports, each.service.ip,
            str(each.lanes), free, reachable(each),
        )  # fmt: skip
    _out.print(table)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    as_json: AsJson = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Show a switch, its ports that are down, and the packets that it dropped, by ingress port."""
    with connected(address, tls_folder) as stub, translated("show the switch"):
        switch = stub.GetSwitch(pb.GetSwitchRequest(name=name))
    if as_json:
        say_json(as_plain(switch))
        return
    table = Table(show_header=False)
    table.add_row("switch", f"{switch.name} at {switch.grpc_address}, device {switch.device_id}")
    why = f": {switch.problem}" if switch.problem else ""
    table.add_row("reachable", f"{reachable(switch)}{why}")
    table.add_row("address", f"{switch.service.ip}, {switch.service.mac}")
    table.add_row("target", switch.target)
    table.add_row("lanes", str(switch.lanes))
    table.add_row("slots", f"{switch.free_slots} of {switch.slots} are free")
    for link in switch.uplinks:
        found = f"; a probe came out at {link.found}" if link.found else ""
        table.add_row(
            "uplink", f"from port {link.port} to port {link.parent_port} of {link.parent}{found}"
        )
    for each in switch.stations:
        table.add_row("station", f"{each.mac} at port {each.port}")
    _out.print(table)
    counters = folding_table("port", "state", "refused", "corrupted", "spoofed")
    for each in switch.port_counters:
        state = "down" if each.down else ""
        counts = each.refused, each.corrupted, each.spoofed
        counters.add_row(str(each.port), state, *map(str, counts))
    _out.print(counters)


@app.command("set")
def set_ports(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    ports: Ports = "",
    uplink: UplinkOptions = None,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Replace the list of a switch's ports, or of its uplinks. Its jobs go on.

    Ports that a worker or another switch uses must stay in the list. Before you
    change uplinks that a job sums over, drain their parent.
    """
    if not (ports or uplink):
        raise UsageError("nothing is to be changed: give --ports or --uplink")
    request = pb.SetSwitchPortsRequest(name=name, ports=parse_ports(ports) if ports else ())
    if uplink:
        request.uplinks.CopyFrom(pb.Uplinks(links=[_uplink(each) for each in uplink]))
    with connected(address, tls_folder) as stub, translated("change the switch"):
        switch = stub.SetSwitchPorts(request)
    _out.print(f"switch {switch.name}: ports {', '.join(map(str, switch.ports))}")
    if uplink and (problems := _uplink_problems(switch)):
        raise InnetError(problems)


@app.command("drain")
def drain(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Drain it even if jobs have no other path. Such jobs wait until you undrain it.",
        ),
    ] = False,
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Move a switch's jobs to other switches, or to their fallback. No step is lost.

    The switch takes no new jobs, and goes on as a bridge. After [b]innet switch
    undrain[/b], jobs use it again.
    """
    with connected(address, tls_folder) as stub, translated("drain the switch"):
        moved = stub.DrainSwitch(pb.DrainSwitchRequest(name=name, force=force)).jobs
    _out.print(f"switch {name} drained")
    for each in moved:
        _out.print(f"job {each.job} {_MOVES[each.path]}")


@app.command("undrain")
def undrain(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Use a drained switch again. Its jobs return to it."""
    with connected(address, tls_folder) as stub, translated("undrain the switch"):
        stub.UndrainSwitch(pb.UndrainSwitchRequest(name=name))
    _out.print(f"switch {name} is in use again")


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="The switch's name.")],
    address: ControllerAddress = DEFAULT_ADDRESS,
    tls_folder: TlsFolder = None,
) -> None:
    """Remove a switch that no job uses. It goes on as a bridge."""
    with connected(address, tls_folder) as stub, translated("remove the switch"):
        stub.RemoveSwitch(pb.RemoveSwitchRequest(name=name))
    _out.print(f"switch {name} removed")


def _uplink(text: str) -> pb.Uplink:
    parent, port, parent_port = parse_uplink(text)
    return pb.Uplink(parent=parent, port=port, parent_port=parent_port)


def _uplink_problems(switch: pb.Switch) -> str:
    """Return an error text for misplaced uplinks, and warn of uplinks whose probe has not arrived."""
    for link in switch.uplinks:
        if not link.probed:
            _out.print(
                f"warning: the probe from port {link.port} has not arrived at port "
                f"{link.parent_port} of {link.parent} yet: check the cable"
            )
    wrong = [sentence for link in switch.uplinks if (sentence := misplaced(switch.name, link))]
    if not wrong:
        return ""
    remedy = (
        "the switch was added or changed all the same; move the cables, or remove the switch and add it "
        "with other ports"
    )
    return f"{'; '.join(wrong)}: {remedy}"
