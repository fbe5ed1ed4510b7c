"""Hundreds of workers at one controller: they cost no threads, and find a restarted controller again."""

from concurrent import futures
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from stored_records import SWITCH

from benchmarks.controller import (
    Controller,
    add_switch,
    all_going,
    create_jobs,
    remove_switch,
    switch,
)
from benchmarks.idle_workers import fleet, seats
from innet.controller.jobs.records import Uplink
from innet.controller.server import ControllerServer
from innet.controller.state.pace import MOST_PER_S, USUAL_S, Pace
from innet.controller.state.store import Store
from innet.errors import NoCapacity
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.client import connect, translated
from innet.wire.layout import MOST_CONTRIBUTORS, MOST_WORKERS

WORKERS = 8 * MOST_CONTRIBUTORS


def test_workers_cost_no_threads_and_all_go_on_after_a_kill(tmp_path: Path):
    with switch(2) as (tor, links), switch(1) as (other, _):
        controller = Controller(tmp_path, lease=60.0)
        try:
            add_switch(controller.address, "tor", tor, 2)
            jobs = create_jobs(controller.address, WORKERS)
            some = seats(jobs, MOST_CONTRIBUTORS)
            with fleet(controller.address, some[:MOST_CONTRIBUTORS], links[:1]) as first:
                all_going(first, MOST_CONTRIBUTORS)
                few = controller.threads
                with fleet(controller.address, some[MOST_CONTRIBUTORS:], links[1:]) as others:
                    all_going(others, WORKERS - MOST_CONTRIBUTORS)
                    add_switch(controller.address, "other", other, 1)
                    remove_switch(controller.address, "other")
                    assert controller.threads - few < MOST_CONTRIBUTORS
                    terms = first.terms + others.terms
                    controller.kill()
                    first.all_stopped()
                    others.all_stopped()
                    controller.start()
                    all_going(first, MOST_CONTRIBUTORS)
                    all_going(others, WORKERS - MOST_CONTRIBUTORS)
                    assert first.terms + others.terms == terms
                    assert controller.threads - few < MOST_CONTRIBUTORS
        finally:
            controller.close()


def test_a_job_of_the_most_workers_leaves_room_for_others_in_its_tree():
    """Each switch sums at most 64 of its workers, in each of two parts of the slots."""
    store = Store()
    for name in ("left", "right"):
        store.add_switch(replace(SWITCH, name=name, grpc_address=f"{name}:1"))
    links = Uplink("left", 1, 7), Uplink("right", 2, 7)
    store.add_switch(replace(SWITCH, name="rack", grpc_address="rack:1", uplinks=links))
    server = ControllerServer("127.0.0.1:0", state=store)
    try:
        for number in range(MOST_WORKERS // (2 * MOST_CONTRIBUTORS)):
            name = f"job-{number}"
            request = pb.CreateJobRequest(name=name, switch="left", workers=MOST_WORKERS, slots=2)
            server.controller.jobs.create(request)
        more = pb.CreateJobRequest(name="more", switch="left", workers=2, slots=2)
        with pytest.raises(NoCapacity, match="have room for 4096 workers, and 4096 are promised"):
            server.controller.jobs.create(more)
        server.controller.jobs.delete("job-0")
        server.controller.jobs.create(more)
    finally:
        server.close()


def test_what_a_controller_knows_of_many_jobs_reaches_its_clients():
    progress = pb.Progress(exchange=10_000, chunks=1 << 20, packets_sent=1 << 40, stuck_s=1.5)
    address = pb.Address(mac="02:00:00:00:00:01", ip="10.255.0.1", udp_port=50_000)
    worker = pb.WorkerStatus(switch="rack-63", port=63, address=address, progress=progress)
    jobs = [pb.Job(name=f"job-{each}", members=[worker] * MOST_WORKERS) for each in range(16)]
    found = pb.ListJobsResponse(jobs=jobs)
    assert found.ByteSize() > 4 << 20
    service = rpc.ControllerServicer()
    service.ListJobs = lambda *_: found
    server = grpc.server(futures.ThreadPoolExecutor(1))
    rpc.add_ControllerServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        channel, stub = connect(f"127.0.0.1:{port}")
        with closing(channel), translated("list the jobs"):
            assert len(stub.ListJobs(pb.ListJobsRequest(detailed=True)).jobs) == len(jobs)
    finally:
        server.stop(None).wait()


def test_all_workers_together_send_a_bounded_number_of_heartbeats():
    pace = Pace()
    assert not pace.follow(MOST_PER_S)
    assert pace.heartbeat_s == USUAL_S
    for workers in (MOST_PER_S + 1, 2000, 4096, 100_000):
        assert pace.follow(workers)
        assert workers / pace.heartbeat_s <= MOST_PER_S
    slow = pace.heartbeat_s
    assert not pace.follow(50_000)
    assert pace.follow(1)
    assert pace.heartbeat_s == USUAL_S < slow
