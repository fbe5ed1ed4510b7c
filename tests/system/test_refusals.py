"""Refusals of a worker's own kernel: the training goes on, with the same bits.

INNET_REFUSAL is the length of a refusal in seconds. If it is set, all kinds of refusals are tried.
"""

import contextlib
import errno
import itertools
import os
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outages import CONTROLLER, Cluster, Shell, cluster, needs_root
from waiting import until

pytestmark = needs_root

WORKERS, LEASE = 3, 30.0
REFUSAL = float(os.environ.get("INNET_REFUSAL") or 1.0)
REFUSED = 1
"""The rank whose kernel refuses packets."""

SENDMSG = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int *told; /* the errors of sending and of receiving, and a count of them */

void refuse_as(volatile int *numbers)
{
    told = numbers;
}

static int refused(int number)
{
    if (number) {
        told[2]++;
        errno = number;
    }
    return number;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (refused(told[0]))
        return -1;
    return syscall(SYS_sendmsg, fd, message, flags);
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    if (refused(told[1]))
        return -1;
    return (int)syscall(SYS_recvmmsg, fd, messages, count, flags, timeout);
}
"""
"""System calls of a worker's own library, which fail when they are told to, with any error."""

WORKER = """
import ctypes, hashlib, logging, mmap, os, time
import numpy as np
import innet
from innet.host import fastpath
logging.basicConfig(filename="{log}", level=logging.INFO, force=True)
shared = open("{told}", "r+b")
told = (ctypes.c_int * 4).from_buffer(mmap.mmap(shared.fileno(), 16))
library = None
if {compiled}:
    library = fastpath.compile_with({{"refusing.c": {code!r}.encode()}})
    library.refuse_as(told)
fastpath.compiled = lambda: library
fallback = None
if {fallback}:
    import torch.distributed as dist
    dist.init_process_group("gloo", "tcp://10.88.0.11:29500", rank={rank}, world_size={workers})
    fallback = dist.group.WORLD
def join(timeout=250):
    global agent
    agent = innet.join(
        "{controller}", "{job}", {rank}, "{link}", token="{token}", fallback=fallback, timeout=timeout,
        timeouts=innet.Timeouts(switch={silent}),
    )
def trained(steps, until=None):
    # Train for so many steps, or until the file exists. Return the steps and the parameters' digest.
    parameters = np.random.default_rng(7).standard_normal(3000).astype(np.float32)
    own = np.random.default_rng({rank})
    step, over = 0, False
    while step < steps and not over:
        gradients = np.float32(0.1) * parameters + own.standard_normal(3000).astype(np.float32)
        parameters -= np.float32(0.01) * agent.all_reduce(gradients)
        step += 1
        told[3] = step
        if until:
            over = agent.all_reduce(np.array([os.path.exists(until)], np.int32), op="max")[0]
            time.sleep(0.001)
    return step, hashlib.sha256(parameters.tobytes()).hexdigest()
"""

_jobs = itertools.count()


class Training:
    """Workers that train on machines of their own, until they are told to stop."""

    def __init__(self, racks: Cluster, shells: list[Shell], folder: Path) -> None:
        self.racks, self.shells, self._folder = racks, shells, folder
        self.machine = racks.machines[REFUSED]
        self._over, self._told = folder / "over", folder / f"{REFUSED}.told"

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` on the machine whose kernel refuses packets."""
        subprocess.run(["ip", "-n", self.machine, *arguments], check=True)

    def refuse(self, sending: int = 0, receiving: int = 0) -> None:
        """Let the worker's system calls fail with these errors, or succeed again."""
        with self._told.open("r+b") as file:
            file.write(struct.pack("=ii", sending, receiving))

    def counts(self) -> tuple[int, int]:
        """Return how often system calls were refused so far, and the steps of the training."""
        refusals, steps = struct.unpack("=8xii", self._told.read_bytes())
        return refusals, steps

    def log(self) -> str:
        """Return the log of the worker whose kernel refuses packets."""
        return (self._folder / f"{REFUSED}.log").read_text()

    def begin(self) -> None:
        """Let all workers join and train."""
        self._over.unlink(missing_ok=True)
        for shell in self.shells:
            shell.start(f"join(); result = trained(1 << 40, {str(self._over)!r})")

    def end(self) -> None:
        """End the training. Its parameters have to be those of one in which nothing is refused."""
        self._over.touch()
        results = [shell.done() for shell in self.shells]
        steps, _ = results[0]
        for shell in self.shells:
            shell.start(f"result = trained({steps})")
        assert [shell.done() for shell in self.shells] == results == results[:1] * WORKERS


@pytest.fixture(scope="module")
def racks(tmp_path_factory) -> Iterator[Cluster]:
    with cluster(WORKERS, tmp_path_factory.mktemp("racks"), LEASE) as running:
        yield running


@contextlib.contextmanager
def training(
    racks: Cluster,
    folder: Path,
    *,
    fallback: bool = True,
    compiled: bool = True,
    silent: float = 30.0,
) -> Iterator[Training]:
    name = f"job-{next(_jobs)}"
    token = racks.admin.do(f"result = create('{name}', {WORKERS})")
    with contextlib.ExitStack() as stack:
        shells = [
            stack.enter_context(Shell(machine, GLOO_SOCKET_IFNAME="ctl"))
            for machine in racks.machines
        ]
        for rank, (shell, link) in enumerate(zip(shells, racks.links, strict=True)):
            told = folder / f"{rank}.told"
            told.write_bytes(bytes(16))
            shell.start(
                WORKER.format(
                    controller=CONTROLLER, job=name, rank=rank, link=link, token=token, silent=silent,
                    fallback=fallback, workers=WORKERS, compiled=compiled, code=SENDMSG,
                    log=folder / f"{rank}.log", told=told,
                )
            )  # fmt: skip
        for shell in shells:
            shell.done()
        yield Training(racks, shells, folder)


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


@contextlib.contextmanager
def firewall(run: Training) -> Iterator[None]:
    """Let the kernel refuse with EPERM, as a rule of nftables does that drops packets."""
    policy = "dst", "10.89.0.254/32", "dir", "out"
    run.ip("xfrm", "policy", "add", *policy, "action", "block")
    yield
    run.ip("xfrm", "policy", "delete", *policy)


def route(kind: str) -> Callable[[Training], contextlib.AbstractContextManager[None]]:
    """Let a route of this kind refuse packets."""

    @contextlib.contextmanager
    def refusing(run: Training) -> Iterator[None]:
        run.ip("route", "add", kind, "10.89.0.254/32")
        yield
        run.ip("route", "delete", kind, "10.89.0.254/32")

    return refusing


@contextlib.contextmanager
def interface_down(run: Training) -> Iterator[None]:
    run.ip("link", "set", "data", "down")
    yield
    run.ip("link", "set", "data", "up")


@contextlib.contextmanager
def address_gone(run: Training) -> Iterator[None]:
    run.ip("address", "delete", "10.89.0.12/24", "dev", "data")
    yield
    run.ip("address", "add", "10.89.0.12/24", "dev", "data")


KINDS = {
    "firewall": (firewall, errno.EPERM, "nftables"),
    "prohibit": (route("prohibit"), errno.EACCES, "ip route get 10.89.0.254"),
    "unreachable": (route("unreachable"), errno.EHOSTUNREACH, "ip route get 10.89.0.254"),
    "blackhole": (route("blackhole"), errno.EINVAL, "ip route get 10.89.0.254"),
    "throw": (route("throw"), errno.ENETUNREACH, "ip route get 10.89.0.254"),
    "interface down": (interface_down, errno.ENETUNREACH, "ip address"),
    "address gone": (address_gone, errno.ENETUNREACH, "ip address"),
}


ALL = list(itertools.product(KINDS, [True, False]))
FEW = [("firewall", True), ("firewall", False), ("interface down", True)]


PASSING = [
    errno.EPERM, errno.EACCES, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EINVAL,
    errno.ENOBUFS, errno.ENOMEM, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO,
    errno.EHOSTDOWN, errno.ENONET, errno.EIO, errno.EOPNOTSUPP, errno.EMSGSIZE, errno.EAGAIN,
    errno.ECONNREFUSED, errno.ENOPROTOOPT, errno.EPROTO, errno.ETIMEDOUT, errno.EINTR, errno.ENOENT,
]  # fmt: skip
"""Errors that a kernel may give for a time."""


@pytest.mark.parametrize(("kind", "compiled"), ALL if os.environ.get("INNET_REFUSAL") else FEW)
def test_a_training_outlasts_a_refusal_over_its_fallback_and_says_what_refuses(
    racks: Cluster, tmp_path: Path, kind: str, compiled: bool
):
    refusing, number, check = KINDS[kind]
    with training(racks, tmp_path, compiled=compiled) as run:
        run.begin()
        until(lambda: run.counts()[1] > 3)
        with refusing(run):
            wait(REFUSAL)
            until(lambda: "summing over the fallback" in run.log())
            _, before = run.counts()
            until(lambda: run.counts()[1] > before)
        until(lambda: "summing over the switch again" in run.log())
        run.end()
        said = next(line for line in run.log().splitlines() if "summing over the fallback" in line)
        assert f"kernel refuses to send: {os.strerror(number)}; check " in said
        assert check in said


@pytest.mark.timeout(900 + 2 * len(PASSING) * REFUSAL)
@pytest.mark.parametrize("receiving", [False, True], ids=["send", "receive"])
def test_a_training_without_a_fallback_outlasts_every_error_that_may_pass(
    racks: Cluster, tmp_path: Path, receiving: bool
):
    with training(racks, tmp_path, fallback=False, silent=REFUSAL + 250) as run:
        run.begin()
        for number in PASSING:
            refusals, _ = run.counts()
            run.refuse(*((0, number) if receiving else (number, 0)))
            until(lambda refusals=refusals: run.counts()[0] > refusals)
            wait(REFUSAL)
            run.refuse()
            _, before = run.counts()
            until(lambda before=before: run.counts()[1] > before + 1)
        run.end()


def test_a_refusal_that_lasts_ends_the_job_when_nothing_else_is_left(
    racks: Cluster, tmp_path: Path
):
    with training(racks, tmp_path, fallback=False, silent=2.0) as run:
        run.begin()
        until(lambda: run.counts()[1] > 3)
        with firewall(run):
            kind, text = run.shells[REFUSED].ended()
        assert kind == "SwitchUnreachable"
        assert f"kernel refuses to send: {os.strerror(errno.EPERM)}; check nftables" in text


def test_a_worker_that_may_not_send_joins_when_it_may(racks: Cluster, tmp_path: Path):
    with training(racks, tmp_path, fallback=False) as run:
        refusal = f"kernel refuses to send: {os.strerror(errno.EPERM)}; check nftables"
        for refused, expected in (
            (firewall(run), "UsageError"),  # there is no way
            (hellos_refused(run), "ControllerError"),
        ):
            with refused:
                run.shells[REFUSED].start("join(5.0)")
                kind, text = run.shells[REFUSED].ended()
                assert (kind, refusal in text) == (expected, True), text
        run.begin()
        until(lambda: run.counts()[1] > 3)
        run.end()


@contextlib.contextmanager
def hellos_refused(run: Training) -> Iterator[None]:
    run.refuse(errno.EPERM)
    yield
    run.refuse()
