"""Checks of a machine, one by one, for a worker, for an operator and for a switch."""

import contextlib
import importlib.util
import itertools
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from innet.errors import InnetError
from innet.host.link import own_address
from innet.host.links import links_of_all
from innet.host.quantizers.spec import QuantizerSpec
from innet.machine import environment as names
from innet.machine.numbers import is_number
from innet.machine.sockets import SOCKET_BUFFER_BYTES, UDP_GRO, UDP_SEGMENT, enlarge_buffers
from innet.native.compiler import check_libraries, find_compiler, open_cache
from innet.observe import expiry, joining
from innet.observe.findings import Finding, good, note, problem, warning
from innet.observe.joining import WorkerEnvironment
from innet.observe.roles import Role
from innet.rpc import tls
from innet.rpc.client import connect

Environment = Mapping[str, str]
Check = Callable[[WorkerEnvironment], Finding]
Load = Callable[[Path], tls.Identity]


def check(role: Role, environment: Environment) -> list[Finding]:
    """Run all of a role's checks, in order. `environment` is that of the processes to be started."""
    worker = WorkerEnvironment(environment)
    return [each(worker) for each in CHECKS[role]]


def _of_worker(folder: Path) -> tls.Identity:
    return tls.load(folder, tls.WORKER)


def controller(environment: Environment, load: Load = _of_worker) -> Finding:
    """Check whether the controller can be reached, and whether its certificate stays valid."""
    address, folder = environment.get(names.CONTROLLER), environment.get(names.TLS)
    if not address:
        return note("controller", "INNET_CONTROLLER is not set: give it to innet.join()")
    try:
        identity = load(Path(folder)) if folder else None
        connect(address, identity=identity)[0].close()
    except InnetError as why:
        return problem("controller", str(why), "see `innet controller --help`")
    for soon in expiry.of_controller(address, identity) if identity else ():
        return soon
    return good("controller", f"answers at {address}, {'with' if identity else 'without'} TLS")


def certificates(environment: Environment, load: Load = _of_worker) -> Finding:
    """Check that the certificates are complete and valid, and stay valid for two weeks."""
    folder = environment.get(names.TLS)
    if not folder:
        return note("certificates", "INNET_TLS is not set: links are not encrypted")
    try:
        identity = load(Path(folder))
    except InnetError as why:
        return problem("certificates", str(why), "see `innet certificates --help`")
    for soon in expiry.of_owner(identity):
        return soon
    until = f"{identity.expires:%Y-%m-%d}"
    return good("certificates", f"{identity.certificate} is valid until {until}")


def link(environment: Environment) -> Finding:
    """Check whether INNET_LINK makes sense."""
    links = links_of_all(environment)
    local = environment.get("LOCAL_RANK", "0")
    try:
        for each in itertools.chain(*links):
            if each != "host":
                own_address(each)
    except InnetError as why:
        return problem("link", str(why), "set INNET_LINK to `host` for the machine's network")
    if len(links) != 1 and not (is_number(local) and int(local) < len(links)):
        statement = f"INNET_LINK names {len(links)} links, and LOCAL_RANK is {local}"
        return problem("link", statement, "name one link for every worker on this machine")
    return good("link", "+".join(links[int(local)] if len(links) > 1 else links[0]))


def segmentation(_: Environment) -> Finding:
    """Check whether the kernel splits one buffer into datagrams, and joins received ones."""
    try:
        joined = _kernel_joins_datagrams()
    except OSError as why:
        return warning(
            "segmentation",
            f"the kernel has no UDP_SEGMENT ({why.strerror}): packets are sent one by one",
            "Linux 4.18 and later have it",
        )
    if not joined:
        return warning(
            "segmentation",
            "the kernel has no UDP_GRO: packets are received one by one",
            "Linux 5.0 and later have it",
        )
    return good("segmentation", "the kernel has UDP_SEGMENT and UDP_GRO")


def buffers(_: Environment) -> Finding:
    """Check whether sockets get the buffers that bursts need."""
    wanted = SOCKET_BUFFER_BYTES
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        enlarge_buffers(sock)
        # The kernel reports twice the size requested, because it includes its own bookkeeping.
        got = {
            "rmem_max": sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2,
            "wmem_max": sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2,
        }
    if small := [name for name, size in got.items() if size < wanted]:
        settings = " ".join(f"net.core.{name}={wanted}" for name in small)
        return warning(
            "socket buffers",
            f"sockets get {min(got.values()):,} of {wanted:,} bytes: bursts may be lost",
            f"as root: sysctl -w {settings}",
        )
    return good("socket buffers", f"{wanted:,} bytes, both ways")


def pytorch(_: Environment) -> Finding:
    """Report the installed PyTorch."""
    try:
        import torch
    except ImportError:
        return note("PyTorch", "not installed: numpy arrays can be summed, tensors cannot")
    triton = "with Triton" if importlib.util.find_spec("triton") else "without Triton"
    if not torch.cuda.is_available():
        return good("PyTorch", f"{torch.__version__}, without CUDA, {triton}")
    device = torch.cuda.get_device_name()
    return good("PyTorch", f"{torch.__version__}, CUDA {torch.version.cuda} on {device}, {triton}")


def quantizer(environment: Environment) -> Finding:
    """Report the quantizer for gradients, and where it runs."""
    try:
        spec = QuantizerSpec.read(environment.get("INNET_QUANTIZER") or "int32")
    except InnetError as why:
        return problem("quantizer", str(why), "set INNET_QUANTIZER as docs/quantization.md says")
    where = "on the CPU"
    with contextlib.suppress(ImportError):
        import torch

        if torch.cuda.is_available() and spec.name != "strom":
            triton = importlib.util.find_spec("triton")
            where += f"; for tensors on a GPU there, by {'Triton' if triton else 'PyTorch'}"
    return good("quantizer", f"{spec} {where}")


def compiler(_: Environment) -> Finding:
    """Check whether there is a C compiler, which innet-switch needs to start a program."""
    try:
        path = find_compiler()
    except InnetError as why:
        return problem("C compiler", str(why), "on Debian or Ubuntu: apt-get install gcc")
    with contextlib.suppress(OSError):  # it is no program
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", check=False
        )
        if not done.returncode:
            return good("C compiler", f"{path}: {done.stdout.partition(chr(10))[0]}")
    return problem("C compiler", f"{path} does not run", "set CC to one that does")


def cache(_: Environment) -> Finding:
    """Check whether compiled programs can be kept where no other user can change them."""
    try:
        folder = open_cache()
        check_libraries(folder)
    except InnetError as error:
        return problem("cache", str(error), "or set INNET_CACHE_DIR to a folder of your own")
    return good("cache", str(folder))


def raw_sockets(_: Environment) -> Finding:
    """Check whether ports can be network interfaces."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except OSError as why:
        return warning(
            "interfaces",
            f"no raw sockets ({why.strerror}): ports can only be cables",
            "run innet-switch as root, or with the capability CAP_NET_RAW",
        )
    return good("interfaces", "raw sockets can be opened")


def metrics(_: Environment) -> Finding:
    """Check whether the Python package for metrics is installed."""
    if importlib.util.find_spec("prometheus_client"):
        return good("metrics", "prometheus-client is installed")
    return note("metrics", "no prometheus-client, which --metrics-addr needs: innet[metrics]")


def bmv2(_: Environment) -> Finding:
    """Check whether BMv2 is installed, which can be used instead of innet-switch."""
    if path := shutil.which("simple_switch_grpc"):
        return good("BMv2", path)
    return note("BMv2", "simple_switch_grpc is not on the PATH; innet-switch does not need it")


CHECKS: Mapping[Role, tuple[Check, ...]] = {
    Role.WORKER: (
        controller, certificates, joining.job, link, joining.route, joining.offloads,
        joining.fallback, segmentation, buffers, cache, pytorch, quantizer,
    ),
    Role.OPERATOR: (
        partial(controller, load=tls.load_operator), partial(certificates, load=tls.load_operator),
    ),
    Role.SWITCH: (compiler, cache, raw_sockets, buffers, metrics, bmv2),
}  # fmt: skip
"""The checks of each role, in order."""


def _kernel_joins_datagrams() -> bool:
    """Send two datagrams with one call, and return whether they come in as one. Raises OSError."""
    with contextlib.ExitStack() as stack:
        sender, receiver = (
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)
        )
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(1.0)
        sender.connect(receiver.getsockname())
        size = struct.pack("=H", 4)
        try:
            receiver.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        except OSError:
            return False
        sender.sendmsg([b"onestwos"], [(socket.SOL_UDP, UDP_SEGMENT, size)])
        return len(receiver.recv(64)) > len(b"ones")
