"""The view of a moment, and the web page's tree and rows, for made-up readings."""

from typing import Any

import pytest

from innet.observe.overview import Overview
from innet.observe.sample import Sample
from innet.observe.view import Load, View, Viewer
from innet.observe.web import jobs, tree
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.records import packet_bytes

FRAME = ENCAPSULATION_BYTES + packet_bytes(64)


def worker(rank: int, switch: str, port: int, **progress: Any) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        rank=rank, switch=switch, port=port, address=pb.Address(ip=f"10.0.0.{rank + 1}"),
        progress=pb.Progress(**{"window": 32, **progress}),
    )  # fmt: skip


def job(*members: pb.WorkerStatus, **more: Any) -> pb.Job:
    fields = {"name": "train", "switch": "spine", "workers": 2, "lanes": 64, "path": pb.PATH_SWITCH}
    ranks = [each.rank for each in members]
    return pb.Job(**{**fields, **more}, members=members, joined=ranks)


def switches(**left: Any) -> tuple[pb.Switch, ...]:
    """Return a spine, and two racks below it."""
    return (
        pb.Switch(name="spine", reachable=True, slots=1024, free_slots=1024),
        *(
            pb.Switch(
                name=name, slots=1024, free_slots=960, uplinks=[pb.Uplink(parent="spine")],
                **{"reachable": True, **(left if name == "left" else {})},
            )
            for name in ("left", "right")
        ),
    )  # fmt: skip


def seen(before: pb.Job, now: pb.Job, *states: pb.Switch) -> View:
    """Return the view of the second of two readings, which are 2 s apart."""
    viewer, both = Viewer(), states or switches()
    viewer.see(Overview(10.0, (Sample(10.0, before, both[0]),), both))
    return viewer.see(Overview(12.0, (Sample(12.0, now, both[0]),), both))


def over_two_racks(chunks: int, **more: Any) -> pb.Job:
    traffic = {"chunks_done": chunks, "bytes_sent": 400 * chunks, "bytes_received": 300 * chunks}
    shown = job(worker(0, "left", 1, **traffic), worker(1, "right", 7, **traffic), **more)
    shown.tree.add(switch="spine")
    for rank, name in enumerate(("left", "right")):
        shown.tree.add(switch=name, parents=["spine"], workers=[rank])
    return shown


def labels(nodes: list[tree.Node]) -> list[str]:
    return [each["label"] for each in nodes]


def test_a_chunk_loads_each_uplink_with_one_frame_in_each_direction():
    view = seen(over_two_racks(0), over_two_racks(1000))
    assert view.uplink_load("left", "spine") == Load(500 * FRAME, 500 * FRAME)
    assert view.uplink_load("spine", "left") == Load()


def test_a_new_job_has_no_rates_of_an_earlier_one_with_its_name():
    viewer, known = Viewer(), switches()
    readings = [(over_two_racks(0),), (over_two_racks(1000),), (), (over_two_racks(5),)]
    views = [
        viewer.see(Overview(at, tuple(Sample(at, each, known[0]) for each in shown), known))
        for at, shown in zip((10.0, 12.0, 14.0, 16.0), readings, strict=True)
    ]
    assert views[1].jobs[0].rates
    assert views[3].jobs[0].rates is None


def test_several_parents_divide_the_load_between_them():
    before, now = over_two_racks(0), over_two_racks(1000)
    for each in before, now:
        each.tree[1].parents.append("other spine")
    assert seen(before, now).uplink_load("left", "spine") == Load(250 * FRAME, 250 * FRAME)


def test_hosts_stand_below_their_racks_and_racks_below_their_parents():
    view = seen(over_two_racks(0), over_two_racks(10_000))
    [spine] = tree.nodes(view)
    assert spine["label"] == "switch spine · ready · 0 of 1024 slots in use"
    left, right = labels(spine["children"])
    assert left == "switch left · ready · 64 of 1024 slots in use · to spine: ↑ 1.63 ↓ 1.63 MB/s"
    assert right.startswith("switch right · ready")
    [host] = spine["children"][1]["children"]
    assert host["label"] == "port 7 · 10.0.0.2 · train worker 1 · ↑ 2.00 ↓ 1.50 MB/s"
    ids = [*tree.every_id([spine])]
    assert len(ids) == len({*ids}) == 5


def test_a_host_of_two_jobs_is_one_host_with_the_load_of_both():
    viewer = Viewer()
    for at, sent in (10.0, 0), (12.0, 2_000_000):
        both = [job(worker(0, "left", 3, bytes_sent=sent), name=name) for name in ("x", "y")]
        samples = tuple(Sample(at, each, pb.Switch()) for each in both)
        view = viewer.see(Overview(at, samples, switches()))
    [host] = tree.nodes(view)[0]["children"][0]["children"]
    assert host["label"] == "port 3 · 10.0.0.1 · x worker 0, y worker 0 · ↑ 2.00 ↓ 0.00 MB/s"


def test_a_lost_switch_and_a_disconnected_worker_stand_out():
    shown = over_two_racks(0)
    shown.members[0].disconnected = True
    view = seen(shown, shown, *switches(reachable=False, problem="no switch answers"))
    left, right = tree.nodes(view)[0]["children"]
    assert left["label"].startswith("switch left · lost: no switch answers · 64 of")
    assert left["children"][0]["label"].endswith("disconnected: worker 0")
    assert [left["iconColor"], left["children"][0]["iconColor"]] == ["negative"] * 2
    assert [right["iconColor"], right["children"][0]["iconColor"]] == ["positive"] * 2


def test_who_is_waited_for_stands_out():
    shown = over_two_racks(0, waiting_for=[1], waiting_s=7.4)
    view = seen(shown, shown)
    colors = [each["children"][0]["iconColor"] for each in tree.nodes(view)[0]["children"]]
    assert colors == ["positive", "warning"]
    assert jobs.row(view.jobs[0])["waits"] == "7 s for worker 1"


def test_a_job_has_a_row_with_its_losses_and_recoveries():
    counts = {"packets_sent": 1000, "packets_received": 900, "retransmissions": 200}
    before, now = (
        job(worker(0, "left", 1, **{name: each * n for name, each in counts.items()}), recoveries=3)
        for n in (0, 1)
    )
    row = jobs.row(seen(before, now).jobs[0])
    assert (row["recoveries"], row["lost/s"], row["repeated/s"], row["waits"]) == (
        3,
        "50",
        "100",
        "-",
    )
    first = Viewer().see(Overview(10.0, (Sample(10.0, before, pb.Switch()),), ()))
    assert jobs.row(first.jobs[0])["lost/s"] == "-"


LENDING = [
    ({"slots": 64, "min_slots": 4}, "64, 60 borrowed"),
    ({"slots": 4, "min_slots": 4}, "4, 60 lent"),
    ({"slots": 64, "min_slots": 64}, "64"),
]
"""Fields of a job that asks for 64 slots, and the words for them."""


@pytest.mark.parametrize(("fields", "words"), LENDING)
def test_the_slots_that_a_job_borrows_or_has_lent_are_shown(fields: dict[str, int], words: str):
    shown = job(worker(0, "left", 1), asked_slots=64, **fields)
    view = seen(shown, shown)
    assert jobs.row(view.jobs[0])["slots"] == words
