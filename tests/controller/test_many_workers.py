"""Hundreds of workers at one controller: they cost no threads, and find a restarted controller again."""

from pathlib import Path

from benchmarks.controller import (
    Controller,
    add_switch,
    all_going,
    create_jobs,
    remove_switch,
    switch,
)
from benchmarks.idle_workers import fleet, seats
from innet.controller.state.pace import MOST_PER_S, USUAL_S, Pace
from innet.wire.layout import MOST_CONTRIBUTORS

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
