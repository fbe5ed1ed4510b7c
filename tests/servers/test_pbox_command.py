"""``innet pbox``, run as a user runs it."""

import contextlib
import re
import signal
import socket
import subprocess
import urllib.request

import numpy as np
import pytest
from commands import BIN, refuse, run
from pbox_workers import together
from waiting import WITHIN, until

from innet.errors import ServerLost
from innet.local.processes import announced
from innet.servers import pbox
from innet.servers.pbox import benchmark


@contextlib.contextmanager
def serving(*options, through=()):
    """Run ``innet pbox serve`` in a process group of its own, and yield the process."""
    command = [*through, str(BIN / "innet"), "pbox", "serve", "--address", "127.0.0.1:0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(number):
    with serving("--cores", "2", "--pin", "--metrics-addr", "127.0.0.1:0") as process:
        address, metrics = announced(process, "pbox"), announced(process, "Metrics")
        with pbox.connect(address, job="digits", rank=0, workers=1, keys=[50_000]) as client:
            client.push_pull([np.ones(50_000, np.float32)])
            values = values_at(metrics)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=WITHIN)
    assert (process.returncode, stdout) == (128 + number, "")
    assert re.search(r"job +.*job=digits workers=1", stderr)
    assert re.search(r"job ended +job=digits.* updates=7", stderr)
    assert values['innet_pbox_job_updates_total{job="digits"}'] == "7.0"
    assert values['innet_pbox_job_joined{job="digits"}'] == "1.0"
    assert float(values["innet_pbox_reserved_bytes"]) >= 2 * 50_000 * 4
    chunks = [float(values[f'innet_pbox_chunks_total{{core="{core}"}}']) for core in range(2)]
    assert sorted(chunks) == [3, 4]


def test_other_machines_are_served_if_the_user_says_so():
    with serving("--data-host", "0.0.0.0", "--insecure") as process:  # noqa: S104
        announced(process, "pbox")


def test_workers_may_have_more_connections_than_the_soft_limit_on_files():
    def work(client):
        mine = [np.ones(5000, np.float32)]
        client.push_pull(mine)
        return mine[0]

    limited = ["bash", "-c", 'ulimit -Sn 64; exec "$0" "$@"']
    with serving("--cores", "4", through=limited) as process:
        address = announced(process, "pbox")
        for sums in together([address], 20, work, keys=[5000], reduction="sum"):
            assert (sums == 20).all()
        given = ["--workers", "20", "--megabytes", "0.1", "--steps", "1"]
        bench = [*limited, str(BIN / "innet"), "pbox", "bench", address, *given]
        done = subprocess.run(bench, check=False, capture_output=True, text=True, timeout=WITHIN)
        assert (done.returncode, done.stderr) == (0, "")


def test_it_serves_although_the_disk_with_its_log_is_full():
    with serving(through=["bash", "-c", 'exec "$0" "$@" 2> /dev/full']) as process:
        address = announced(process, "pbox")
        for _ in range(2):
            with pbox.connect(address, job="test", rank=0, workers=1, keys=[4]) as client:
                client.push_pull([np.ones(4, np.float32)])


def test_bench_measures_servers():
    with serving() as one, serving("--cores", "2") as other:
        addresses = [announced(each, "pbox") for each in (one, other)]
        done = run(
            "innet", "pbox", "bench", *addresses, "--workers", "3", "--megabytes", "0.5",
            "--steps", "2", "--optimizer", "Adam",
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"3 +│ Adam +│ +\d+\.\d\d", done.stdout)


def test_bench_raises_the_error_of_the_worker_that_failed(monkeypatch):
    class Client(contextlib.nullcontext):
        def __init__(self, rank):
            super().__init__(self)
            self.rank = rank

        def push_pull(self, *_):
            if self.rank:
                raise ServerLost

    monkeypatch.setattr(benchmark, "connect", lambda _, rank, **__: Client(rank))
    with pytest.raises(ServerLost):  # rank 0 waits for rank 1 meanwhile
        benchmark.measure(["nowhere"], workers=2, floats=1, steps=1, timeout=WITHIN)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_whose_server_ends_says_which_and_what_to_do(number):
    with serving("--metrics-addr", "127.0.0.1:0") as process:
        address, metrics = announced(process, "pbox"), announced(process, "Metrics")
        command = ["pbox", "bench", address, "--workers", "1", "--megabytes", "1"]
        with subprocess.Popen(
            [str(BIN / "innet"), *command, "--steps", "100000000"],
            stderr=subprocess.PIPE, text=True,
        ) as worker:  # fmt: skip
            try:
                until(lambda: updates(metrics) > 0)
                process.send_signal(number)
                _, stderr = worker.communicate(timeout=WITHIN)
            finally:
                worker.kill()
    assert worker.returncode == 3
    what = (
        "has closed the connection: if it has ended,"
        if number == signal.SIGKILL
        else "was stopped:"
    )
    assert stderr.startswith(f"error: the parameter server at {address} {what} start it again")
    assert len(stderr.splitlines()) == 1


def updates(metrics):
    """Return how many updates a server has made for all jobs."""
    name = "innet_pbox_job_updates_total"
    return sum(float(each) for key, each in values_at(metrics).items() if key.startswith(name))


def values_at(metrics):
    """Return the values of a server's metrics by their names and labels."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=WITHIN) as answer:
        lines = answer.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_bench_that_waits_for_a_server_ends_when_it_is_told(number):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WITHIN)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [str(BIN / "innet"), "pbox", "bench", address, "--workers", "2"]
        with subprocess.Popen(command) as worker:
            try:
                with server.accept()[0]:
                    worker.send_signal(number)
                    assert worker.wait(50) == 128 + number  # a server has a minute to answer
            finally:
                worker.kill()


def test_what_is_wrong_is_said():
    refuse("--address 'nowhere' is not HOST:PORT", "innet", "pbox", "serve", "--address", "nowhere")
    serve = ("innet", "pbox", "serve", "--address")
    refuse("--address 'a..b:1' is not HOST:PORT", *serve, "a..b:1")
    refuse("--data-host 'a..b:0' is not", *serve, "[::1]:0", "--data-host", "a..b", "--insecure")
    refuse("address 'a..b:1' is not HOST:PORT", "innet", "pbox", "bench", "a..b:1")
    nobody = ("innet", "pbox", "bench", "127.0.0.1:9", "--chunk-bytes", "0")
    refuse("chunks of 0 bytes: they have to be of 64 to 4194304 bytes, a multiple of 4", *nobody)
    refuse("cannot listen at 192.0.2.1:7", *serve, "192.0.2.1:7", "--insecure")
    refuse(
        "--data-host: cannot listen",
        *serve,
        "127.0.0.1:0",
        "--data-host",
        "192.0.2.1",
        "--insecure",
    )
    for address, host in (("0.0.0.0:0", "127.0.0.1"), ("127.0.0.1:0", "0.0.0.0")):  # noqa: S104
        refuse(
            r"0\.0\.0\.0:0 can be reached from other machines: give certificates with --tls.*--insecure",
            *serve, address, "--data-host", host,
        )  # fmt: skip
    refuse("--memory inf: it has to be a number", "innet", "pbox", "serve", "--memory", "inf")
    refuse(
        "--memory inf: it has to be",
        "innet",
        "pbox",
        "rack-server",
        "-i",
        "1@lo",
        "--memory",
        "inf",
    )
    refuse("--megabytes inf", "innet", "pbox", "bench", "127.0.0.1:9", "--megabytes", "inf")
    refuse("optimizer 'Lion'", "innet", "pbox", "bench", "127.0.0.1:9", "--optimizer", "Lion")
