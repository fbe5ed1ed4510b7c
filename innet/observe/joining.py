"""Checks of a machine that need the controller: its worker's admission, and the route to the switch."""

import contextlib
import itertools
import socket
from functools import cached_property
from pathlib import Path

from innet.errors import ControllerUnreachable, InnetError, NotAuthorized, NotFound
from innet.host.fallback_network import through_switch
from innet.host.link import connect_to_service
from innet.host.links import links_of_all
from innet.machine import environment as names
from innet.machine import interfaces
from innet.machine.numbers import is_number
from innet.observe.findings import Finding, good, note, problem, warning
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.client import connect, translated
from innet.switch.ports import carries_super_frames

_RANKS = 1 << 32
_CABLE = "the link to the switch is a cable, and not this machine's network"
_ROUTE_HINT = "`ip route` shows where packets go"
_REMEDIES: tuple[tuple[type[InnetError], str], ...] = (
    (NotFound, "set INNET_JOB to a name of `innet job list`, or create the job"),
    (NotAuthorized, "`innet job create` prints the token, once; INNET_TLS names the certificates"),
    (InnetError, "set RANK to a number below the job's workers, which `innet job show` tells"),
)


class WorkerEnvironment(dict[str, str]):
    """The environment of a future worker, and the controller's answer about that worker."""

    @property
    def missing(self) -> list[str]:
        """Return the missing variables without which the controller cannot be asked."""
        return [name for name in (names.JOB, names.TOKEN, "RANK") if not self.get(name)]

    @cached_property
    def answer(self) -> pb.CheckJoinResponse | InnetError:
        """Return the controller's answer: the switch's address, or why the worker may not join."""
        folder = self.get(names.TLS)
        request = pb.CheckJoinRequest(job=self[names.JOB], rank=self.rank, token=self[names.TOKEN])
        try:
            identity = tls.load(Path(folder), tls.WORKER) if folder else None
            channel, stub = connect(self[names.CONTROLLER], identity=identity)
        except InnetError as obstacle:  # other checks tell it
            return ControllerUnreachable(str(obstacle))
        try:
            with channel, translated("join"):
                answer: pb.CheckJoinResponse = stub.CheckJoin(request)
                return answer
        except InnetError as refusal:
            return refusal

    @property
    def rank(self) -> int | None:
        """Return the worker's rank, or None if RANK is not a possible rank."""
        text = self.get("RANK", "")
        number = int(text) if is_number(text) else _RANKS
        return number if number < _RANKS else None

    @property
    def on_network(self) -> bool:
        """Return whether the link to the switch is the machine's network."""
        return "host" in itertools.chain(*links_of_all(self))

    @property
    def service(self) -> pb.Address | None:
        """Return the switch's service address, or None if the worker cannot get it."""
        known = self.get(names.CONTROLLER) and not self.missing and self.rank is not None
        if known and isinstance(self.answer, pb.CheckJoinResponse):
            return self.answer.service
        return None


def job(environment: WorkerEnvironment) -> Finding:
    """Check that the worker knows its job, and may join it."""
    if absent := environment.missing:
        return note(
            "job",
            f"not set: {', '.join(absent)}; give them to innet.join(), torchrun sets RANK",
        )
    if environment.rank is None:
        return problem("job", f"RANK is {environment['RANK']!r}", "set it to a number from 0 on")
    which = f"{environment[names.JOB]}, as worker {environment.rank}"
    if not environment.get(names.CONTROLLER):
        return note("job", f"{which}; without the controller nobody can say whether it may join")
    answer = environment.answer
    if isinstance(answer, ControllerUnreachable):
        return note("job", f"{which}; the controller does not say whether it may join")
    if isinstance(answer, InnetError):
        remedy = next(remedy for kind, remedy in _REMEDIES if isinstance(answer, kind))
        return problem("job", str(answer), remedy)
    if answer.taken:
        return note("job", f"{which}, which is in the job already: another one is refused")
    return good("job", f"{which}, which may join")


def route(environment: WorkerEnvironment) -> Finding:
    """Check that this machine's network has a route to the switch's service address."""
    name = "service address"
    if not environment.on_network:
        return note(name, _CABLE)
    if not (service := environment.service):
        return note(name, "not known: the controller tells it to workers that may join")
    try:
        own = _own_address(service)
    except InnetError as obstacle:
        return problem(
            name, str(obstacle), f"ip address add ADDRESS/PREFIX dev IFACE; {_ROUTE_HINT}"
        )
    if gateway := interfaces.gateway_to(service.ip):
        return warning(
            name,
            f"packets to {service.ip} leave for the gateway {gateway}, not for a port of the switch",
            f"give the interface that leads to the switch an address in its subnet; {_ROUTE_HINT}",
        )
    return good(name, f"{service.ip}, from {own}")


def fallback(environment: WorkerEnvironment) -> Finding:
    """Check that PyTorch's process group, the fallback, does not go through the switch."""
    name = "fallback"
    if not environment.on_network:
        return note(name, _CABLE)
    if not (service := environment.service):
        return note(name, "the switch's network is not known")
    with contextlib.suppress(InnetError):
        if shared := through_switch(_own_address(service), environment):
            return warning(
                name,
                f"it goes through the switch ({', '.join(shared)}) and fails together with it",
                "let MASTER_ADDR and GLOO_SOCKET_IFNAME name another network",
            )
    return good(name, "no setting leads it through the switch")


def offloads(environment: WorkerEnvironment) -> Finding:
    """Check whether a veth towards the switch leaves work to a network card, and the switch can do it.

    Both ends of a veth have the same kernel, so this one tells what innet-switch takes there.
    """
    name = "offloads"
    if not environment.on_network:
        return note(name, _CABLE)
    service = environment.service
    interface = interfaces.interface_to(service.ip) if service else ""
    if not interface:
        return note(name, "the interface that leads to the switch is not known")
    if interfaces.is_veth(interface) and interfaces.leaves_checksums(interface):
        if carries_super_frames():
            return good(name, f"on: {interface} is a veth. innet-switch can take that, BMv2 cannot")
        return warning(
            name,
            f"{interface} is a veth and leaves checksums and the cutting of large sends to a network "
            "card: a software switch refuses such packets on Linux before 6.2",
            f"as root: ethtool -K {interface} tx off",
        )
    return good(name, f"{interface} sends packets as a switch can read them")


def _own_address(service: pb.Address) -> str:
    """Return this machine's IPv4 address in the switch's network. Raises InnetError without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        connect_to_service(sock, service.ip, service.udp_port)
        address: str = sock.getsockname()[0]
        return address
