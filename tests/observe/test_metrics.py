"""The metrics of agents and the controller for Prometheus."""

import contextlib
import logging
import re
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from commands import run, serving
from prometheus_client.parser import text_string_to_metric_families
from racks import WITHIN, Rack, free_cables, means, rack
from switches import running_switch

from innet.controller.controller import Controller
from innet.controller.jobs.history import Cause, History
from innet.controller.metrics import ControllerCollector
from innet.controller.state.registry import Policy
from innet.controller.state.store import Store
from innet.errors import UsageError
from innet.host.agent import Agent
from innet.local.ports import free_tcp_port
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect
from innet.telemetry import prometheus
from innet.telemetry.prometheus import BuildCollector

Samples = dict[tuple[str, ...], float]
WORKERS, LANES, ELEMENTS = 2, 64, 10_000
VECTOR = np.ones(ELEMENTS, np.float32)
SUMS = -(-ELEMENTS // LANES)
EXPONENTS = -(-(SUMS + 2) // LANES)


def samples(text: str) -> Samples:
    """Return samples by name and labels' values, in the order of the labels' names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(address: str) -> Samples:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WITHIN) as answer:
        return samples(answer.read().decode())


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(WORKERS, LANES) as running:
        yield running


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """Return a function that finds the agents' addresses of metrics in the log."""
    caplog.set_level(logging.INFO, logger="innet")
    monkeypatch.setenv("INNET_METRICS", "127.0.0.1:0")
    return lambda: re.findall(r"http://(127.0.0.1:\d+)/metrics", caplog.text)


def join(tor: Rack, job: str) -> list[Agent]:
    return [tor.join(job, rank) for rank in range(WORKERS)]


def test_an_agent_shows_what_it_has_sent_received_and_finished(tor: Rack, shown):
    with tor.job(WORKERS) as job:
        first, second = join(tor, job)
        with first, second:
            means([first, second], VECTOR, VECTOR)
            address, again = shown()
            assert address == again
            found = scrape(address)
            for rank, agent in enumerate((first, second)):
                at = (job, str(rank))
                assert found["innet_agent_exchanges_total", *at] == 2
                assert found["innet_agent_chunks_total", *at] == SUMS + EXPONENTS
                traffic = agent.traffic
                assert found["innet_agent_transmit_packets_total", *at] == traffic.packets_sent
                assert found["innet_agent_receive_bytes_total", *at] == traffic.bytes_received
                assert found["innet_agent_retransmissions_total", *at] == traffic.retransmissions
                assert found["innet_agent_busy", *at] == 0
                assert found["innet_agent_stuck_seconds", *at] == 0
                assert found["innet_agent_round_trip_seconds", *at] > 0
                for path, present in {"none": 0, "switch": 1, "fallback": 0}.items():
                    assert found["innet_agent_path", job, path, str(rank)] == present


def test_an_agent_that_waits_shows_whom_it_waits_for(tor: Rack, shown):
    with tor.job(WORKERS) as job:
        first, second = join(tor, job)
        with first, second:
            waiting = first.submit(VECTOR)
            address = shown()[0]
            while ("innet_agent_waits_for", job, "1", "0") not in (found := scrape(address)):
                assert not waiting.done()
            assert found["innet_agent_stuck_seconds", job, "0"] >= 1
            assert found["innet_agent_busy", job, "0"] == 1
            assert found["innet_agent_remaining_chunks", job, "0"] == EXPONENTS
            assert found["innet_agent_busy", job, "1"] == 0
            assert (second.all_reduce(VECTOR) == 1).all()
            assert (waiting.result(WITHIN) == 1).all()
            assert not [key for key in scrape(address) if key[0] == "innet_agent_waits_for"]


def test_metrics_are_served_as_long_as_an_agent_of_the_process_is_there(tor: Rack, shown):
    with tor.job(WORKERS) as job:
        first, second = join(tor, job)
        address = shown()[0]
        first.close()
        assert {key[2] for key in scrape(address) if key[0] == "innet_agent_busy"} == {"1"}
        second.close()
        with pytest.raises(OSError, match="Connection refused"):
            scrape(address)


def test_every_local_rank_has_a_port_of_its_own(tor: Rack, shown, monkeypatch):
    port = free_tcp_port()
    monkeypatch.setenv("INNET_METRICS", f"127.0.0.1:{port - 1}")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with tor.job(WORKERS) as job, tor.join(job, 0):
        assert shown() == [f"127.0.0.1:{port}"]
        assert ("innet_agent_busy", job, "0") in scrape(shown()[0])


@pytest.mark.parametrize(
    "setting",
    [
        "9100",
        "localhost:",
        "localhost:65535",
        "localhost:x",
        pytest.param("h:" + 5000 * "1", id="long"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_before_anybody_joins(tor, monkeypatch, setting):
    monkeypatch.setenv("INNET_METRICS", setting)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with tor.job(WORKERS) as job:
        with pytest.raises(
            UsageError, match="it has to be HOST:PORT, to which LOCAL_RANK is added"
        ):
            tor.join(job, 0)
        assert not tor.show(job).members


def test_where_the_port_is_taken_the_worker_leaves_again(tor: Rack, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken, tor.job(WORKERS) as job:
        monkeypatch.setenv("INNET_METRICS", f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UsageError, match=r"cannot serve metrics at .*: Address already in use"):
            tor.join(job, 0)
        monkeypatch.delenv("INNET_METRICS")
        means_of_one(tor, job)


def means_of_one(tor: Rack, job: str) -> None:
    """Check that the job works, with new workers."""
    first, second = join(tor, job)
    with first, second:
        for mean in means([first, second], VECTOR, VECTOR):
            assert (mean == 1).all()


# ---- the controller -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Rack, str]]:
    """Yield a rack whose controller is a command, and the address of its metrics."""
    with (
        running_switch(WORKERS) as switch,
        serving("--metrics-addr", "127.0.0.1:0") as (process, controller),
    ):
        name, metrics = process.stdout.readline().split()
        assert name == "Metrics"
        channel, stub = connect(controller)
        with channel:
            stub.AddSwitch(
                pb.AddSwitchRequest(
                    name="tor", grpc_address=switch.address, ports=[1, 2], lanes=LANES
                )
            )
            yield Rack(switch, controller, stub, free_cables(switch)), metrics


def test_the_controller_shows_jobs_workers_and_switches(served):
    tor, metrics = served
    with tor.job(WORKERS, slots=32) as job:
        found = scrape(metrics)
        assert found["innet_controller_job_path", job, "none"] == 1
        assert found["innet_controller_job_workers", job, "missing"] == WORKERS
        assert found["innet_controller_job_slots", job] == 32
        assert found["innet_controller_job_quorum", job] == WORKERS
        assert found["innet_controller_switch_reachable", "tor"] == 1
        assert found["innet_controller_switch_slots", "tor"] == 8192
        assert found["innet_controller_switch_free_slots", "tor"] == 8192 - 32
        assert found["innet_controller_drift_total", "tor"] == 0
        first, second = join(tor, job)
        with first, second:
            means([first, second], VECTOR, VECTOR)
            found = scrape(metrics)
        assert found["innet_controller_job_path", job, "switch"] == 1
        assert found["innet_controller_job_path", job, "none"] == 0
        assert found["innet_controller_job_workers", job, "joined"] == WORKERS
        done = found["innet_controller_job_contributions_total", job, "completed"]
        assert done == SUMS + EXPONENTS
        assert found["innet_controller_terms_total", "new_workers", job] == 1
        assert found["innet_controller_leases_lost_total", job] == 0
        for port, reason in product("12", ("refused", "corrupted", "spoofed")):
            name = "innet_controller_switch_port_dropped_packets_total"
            assert found[name, port, reason, "tor"] == 0
    assert not [key for key in scrape(metrics) if job in key]


def test_lost_leases_are_counted_by_job(monkeypatch):
    with contextlib.closing(Controller(Store(None), Policy())) as controller:
        history = History(Counter({Cause.NEW_WORKERS: 2}), leases_lost=1)
        monkeypatch.setattr(controller.jobs, "histories", lambda: {"train": history})
        found = {
            (each.name, *each.labels.values()): each.value
            for family in ControllerCollector(controller).collect()
            for each in family.samples
        }
    assert found["innet_controller_leases_lost_total", "train"] == 1


def test_switches_are_asked_at_once_so_that_those_that_hang_cost_one_timeout(monkeypatch):
    names = [f"tor{number}" for number in range(8)]
    all_asked = threading.Barrier(len(names))

    def view(name: str) -> pb.Switch:
        all_asked.wait(WITHIN)
        return pb.Switch(name=name)

    with contextlib.closing(Controller(Store(None), Policy())) as controller:
        listed = [pb.Switch(name=name) for name in names]
        monkeypatch.setattr(controller.switches, "views", lambda: listed)
        monkeypatch.setattr(controller.switches, "view", view)
        found = list(ControllerCollector(controller).collect())
    slots = next(each for each in found if each.name == "innet_controller_switch_slots")
    assert [each.labels["switch"] for each in slots.samples] == names


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("9999", "is not HOST:PORT"),
        ("192.0.2.1:0", "cannot serve metrics"),
        ("a" * 70 + ":1", "cannot serve metrics"),
    ],
)
def test_an_address_that_cannot_serve_metrics_ends_with_code_2(address: str, why: str):
    done = run("innet", "controller", "--address", "127.0.0.1:0", "--metrics-addr", address)
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]  # the controller's log comes before
    assert last.startswith("error: ")
    assert why in last


def test_connections_that_say_nothing_take_no_thread_without_bound(monkeypatch):
    monkeypatch.setattr(prometheus._Handler, "timeout", None)  # however slow this machine is
    with (
        prometheus.serve(BuildCollector(), "127.0.0.1:0", "--metrics-addr") as address,
        contextlib.ExitStack() as stack,
    ):
        host, _, port = address.rpartition(":")
        opened = [
            stack.enter_context(socket.create_connection((host, int(port)), WITHIN))
            for _ in range(100)
        ]
        ended = 0
        for each in opened[prometheus.MOST_CONNECTIONS :]:
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""
            ended += 1
        assert ended == 100 - prometheus.MOST_CONNECTIONS
        opened[0].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"200 OK" in opened[0].recv(100)
