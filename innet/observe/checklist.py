"""What a machine needs, checked one by one: as a worker's, and as a switch's."""

import contextlib
import importlib.util
import itertools
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from innet import environment as names
from innet import tls
from innet.controller.client import connect
from innet.errors import InnetError
from innet.host.link import parse_endpoints
from innet.host.links import links_of_all
from innet.host.quantizers.choice import Choice
from innet.native import cache_folder, find_compiler
from innet.observe.findings import Finding, Severity
from innet.observe.roles import Role
from innet.sockets import SOCKET_BUFFER_BYTES, UDP_GRO, UDP_SEGMENT, enlarge_buffers

Environment = Mapping[str, str]
Check = Callable[[Environment], Finding]


def check(role: Role, environment: Environment) -> list[Finding]:
    """All of a role's checks, in order. `environment` is what processes there will get."""
    return [each(environment) for each in CHECKS[role]]


def controller(environment: Environment) -> Finding:
    """Whether the controller can be reached, as a worker reaches it."""
    address, folder = environment.get(names.CONTROLLER), environment.get(names.TLS)
    if not address:
        return _note("controller", "INNET_CONTROLLER is not set: give it to innet.join()")
    try:
        identity = tls.load(Path(folder), tls.WORKER) if folder else None
        connect(address, identity=identity)[0].close()
    except InnetError as problem:
        return _problem("controller", str(problem), "see `innet controller --help`")
    return _good("controller", f"answers at {address}, {'with' if identity else 'without'} TLS")


def certificates(environment: Environment) -> Finding:
    """Whether the folder with the certificates is as it should be."""
    folder = environment.get(names.TLS)
    if not folder:
        return _note("certificates", "INNET_TLS is not set: links are not encrypted")
    try:
        identity = tls.load(Path(folder), tls.WORKER)
    except InnetError as problem:
        return _problem("certificates", str(problem), "see `innet certificates --help`")
    until = f"{identity.expires:%Y-%m-%d}"
    return _good("certificates", f"{folder} has what a worker needs, valid until {until}")


def job(environment: Environment) -> Finding:
    """Whether a worker is told which job it is in, and may join it."""
    needed = (names.JOB, names.TOKEN, "RANK")
    if absent := [name for name in needed if not environment.get(name)]:
        return _note(
            "job",
            f"not set: {', '.join(absent)}; give them to innet.join(), torchrun sets RANK",
        )
    rank = environment["RANK"]
    if not rank.isdecimal():
        return _problem("job", f"RANK is {rank!r}", "it has to be a number, from 0 on")
    return _good("job", f"{environment['INNET_JOB']}, as worker {rank}")


def link(environment: Environment) -> Finding:
    """Whether INNET_LINK makes sense."""
    links = links_of_all(environment)
    local = environment.get("LOCAL_RANK", "0")
    try:
        for each in itertools.chain(*links):
            if each != "host":
                parse_endpoints(each)
    except InnetError as problem:
        return _problem("link", str(problem), "set INNET_LINK to `host` for the machine's network")
    if len(links) != 1 and not (local.isdecimal() and int(local) < len(links)):
        why = f"INNET_LINK names {len(links)} links, and LOCAL_RANK is {local}"
        return _problem("link", why, "name one link for every worker on this machine")
    return _good("link", "+".join(links[int(local)] if len(links) > 1 else links[0]))


def segmentation(_: Environment) -> Finding:
    """Whether the kernel cuts one buffer into datagrams, and hands many over as one."""
    try:
        joined = _datagrams_at_once()
    except OSError as problem:
        return _warning(
            "segmentation",
            f"the kernel has no UDP_SEGMENT ({problem.strerror}): packets are sent one by one",
            "Linux 4.18 and later have it",
        )
    if not joined:
        return _warning(
            "segmentation",
            "the kernel has no UDP_GRO: packets are received one by one",
            "Linux 5.0 and later have it",
        )
    return _good("segmentation", "the kernel has UDP_SEGMENT and UDP_GRO")


def buffers(_: Environment) -> Finding:
    """Whether sockets get the buffers that bursts need."""
    wanted = SOCKET_BUFFER_BYTES
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        enlarge_buffers(sock)
        # The kernel counts its own bookkeeping in, and says twice what was asked for.
        got = {
            "rmem_max": sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2,
            "wmem_max": sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2,
        }
    if small := [name for name, size in got.items() if size < wanted]:
        settings = " ".join(f"net.core.{name}={wanted}" for name in small)
        return _warning(
            "socket buffers",
            f"sockets get {min(got.values()):,} of {wanted:,} bytes: bursts may be lost",
            f"as root: sysctl -w {settings}",
        )
    return _good("socket buffers", f"{wanted:,} bytes, both ways")


def pytorch(_: Environment) -> Finding:
    """Which PyTorch there is."""
    try:
        import torch
    except ImportError:
        return _note("PyTorch", "not installed: numpy arrays can be summed, tensors cannot")
    triton = "with Triton" if importlib.util.find_spec("triton") else "without Triton"
    if not torch.cuda.is_available():
        return _good("PyTorch", f"{torch.__version__}, without CUDA, {triton}")
    device = torch.cuda.get_device_name()
    return _good("PyTorch", f"{torch.__version__}, CUDA {torch.version.cuda} on {device}, {triton}")


def quantizer(environment: Environment) -> Finding:
    """What gradients become on the wire, and which code does it."""
    try:
        choice = Choice.read(environment.get("INNET_QUANTIZER") or "int32")
    except InnetError as problem:
        return _problem(
            "quantizer", str(problem), "set INNET_QUANTIZER as docs/quantization.md says"
        )
    code = "numpy, on the CPU"
    with contextlib.suppress(ImportError):
        import torch

        if torch.cuda.is_available() and choice.name != "strom":
            triton = importlib.util.find_spec("triton")
            code += f"; for tensors on a GPU there, {'Triton' if triton else 'PyTorch'}"
    return _good("quantizer", f"{choice} by {code}")


def compiler(_: Environment) -> Finding:
    """Whether there is a C compiler, which innet-switch needs to start a program."""
    try:
        path = find_compiler()
    except InnetError as problem:
        return _problem("C compiler", str(problem), "on Debian or Ubuntu: apt-get install gcc")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        return _problem("C compiler", f"{path} does not run", "set CC to one that does")
    return _good("C compiler", f"{path}: {done.stdout.partition(chr(10))[0]}")


def cache(_: Environment) -> Finding:
    """Whether compiled programs can be kept."""
    folder = cache_folder()
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return _problem("cache", f"{existing} cannot be written", "set INNET_CACHE_DIR")
    return _good("cache", str(folder))


def raw_sockets(_: Environment) -> Finding:
    """Whether ports can be network interfaces."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except OSError as problem:
        return _warning(
            "interfaces",
            f"no raw sockets ({problem.strerror}): ports can only be cables made of UDP",
            "run innet-switch as root, or with the capability CAP_NET_RAW",
        )
    return _good("interfaces", "raw sockets can be opened")


def packages(_: Environment) -> Finding:
    """Whether the Python packages of innet-switch are there."""
    absent = [name for name in ("p4", "prometheus_client") if not importlib.util.find_spec(name)]
    if absent:
        return _problem("packages", f"absent: {', '.join(absent)}", "pip install 'innet[switch]'")
    return _good("packages", "P4Runtime's and Prometheus's are installed")


def bmv2(_: Environment) -> Finding:
    """Whether BMv2 is there, which can be used instead of innet-switch."""
    if path := shutil.which("simple_switch_grpc"):
        return _good("BMv2", path)
    return _note("BMv2", "simple_switch_grpc is not on the PATH; innet-switch does without")


CHECKS: Mapping[Role, tuple[Check, ...]] = {
    Role.WORKER: (
        controller, certificates, job, link, segmentation, buffers, pytorch, quantizer,
    ),
    Role.SWITCH: (compiler, cache, raw_sockets, buffers, packages, bmv2),
}  # fmt: skip
"""What is checked on a machine, by what it is for."""


def _datagrams_at_once() -> bool:
    """Send two datagrams with one call; whether they come as one. Raises OSError if they cannot go."""
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


def _good(name: str, what: str) -> Finding:
    return Finding(Severity.GOOD, name, name, what)


def _note(name: str, what: str) -> Finding:
    return Finding(Severity.NOTE, name, name, what)


def _warning(name: str, what: str, remedy: str) -> Finding:
    return Finding(Severity.WARNING, name, name, what, remedy=remedy)


def _problem(name: str, what: str, remedy: str) -> Finding:
    return Finding(Severity.PROBLEM, name, name, what, remedy=remedy)
