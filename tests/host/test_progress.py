"""A worker's report of its progress, from any thread, while exchanges are under way."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from exchanging_worker import Worker
from one_worker import TERM, Switch
from racks import means, rack

from innet.host.agent import Agent
from innet.host.job import Path, Term
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Kind

NEXT = Term(10, Path.SWITCH, TERM.first_slot, TERM.slots)
ALL_REDUCES, VECTOR = 30, np.ones(1000, np.float32)


def progress(worker: Worker) -> pb.Progress:
    said = pb.Progress()
    worker.exchanges.fill(said)
    return said


def test_silence_and_waiting_are_counted_on_through_terms(switch: Switch, worker: Worker):
    running = worker.start()
    while not worker.controller.troubles:
        worker.take(0)
    in_trouble = progress(worker)
    assert in_trouble.busy
    assert in_trouble.silent_s > 0
    assert in_trouble.stuck_s > 0
    worker.controller.say_recover(NEXT.number)
    while not worker.controller.readies:
        worker.controller.waker.wake()
    between = progress(worker)
    worker.controller.say_resume(NEXT)
    packets = [worker.take(slot) for slot in (0, 1)]
    again = progress(worker)
    assert in_trouble.silent_s <= between.silent_s <= again.silent_s
    assert in_trouble.stuck_s < between.stuck_s < again.stuck_s
    for packet in packets:
        switch.answer(packet, Kind.RESULT)
    running.result()
    done = progress(worker)
    assert (done.exchange, done.busy, done.silent_s, done.stuck_s) == (1, False, 0, 0)


def test_without_the_switch_waiting_is_counted_too(switch: Switch, worker: Worker):
    worker.controller.say_resume(Term(12, Path.FALLBACK))
    running = worker.start()
    *_, future = worker.others.take()
    first = progress(worker)
    assert first.busy
    assert progress(worker).stuck_s > first.stuck_s > 0
    future.set_exception(RuntimeError("enough"))
    worker.exchanges.stop()
    assert running.exception()
    assert not progress(worker).busy


def test_whenever_it_is_asked_for_no_number_is_negative():
    over = threading.Event()

    def ask(agent: Agent) -> int:
        asked = 0
        while not over.is_set():
            said = agent.progress()
            assert min(said.stuck_s, said.silent_s) >= 0
            asked += 1
        return asked

    with rack(2) as tor, tor.workers(2) as agents, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, agents[0])
        try:
            for _ in range(ALL_REDUCES):
                means(agents, VECTOR, VECTOR)
        finally:
            over.set()
        assert asking.result() > 0
