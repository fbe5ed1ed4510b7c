"""Situations that a worker, its link or its port is the cause of, one or more for each rule."""

from situations import WORKERS, Cases, Situation, into

from innet.observe.findings import Severity
from innet.rpc import innet_pb2 as pb

WORKER_CASES: Cases = {}
case = into(WORKER_CASES)


@case("not_joined", "worker 2", Severity.PROBLEM, "worker 2 has not joined", "INNET_TOKEN")
def _(it: Situation) -> None:
    it.without(2)
    for rank in (0, 1):
        it.says(rank, exchange=0, busy=False, chunks=0)


@case("departed", "worker 2", Severity.PROBLEM, "worker 2 has left the job")
def _(it: Situation) -> None:
    it.without(2)


@case(
    "departed/just now", "worker 1", Severity.PROBLEM, "worker 1 has left the job",
    "worker 1 left 12 s ago: its process has ended",
)  # fmt: skip
def _(it: Situation) -> None:
    it.without(1, from_the_start=False)
    it.job.departures.add(rank=1, ago_s=12.0, reason="its process has ended")


@case("departed/with a quorum", "worker 2", Severity.WARNING, "worker 2 has left the job")
def _(it: Situation) -> None:
    it.job.quorum = 2
    it.without(2, from_the_start=False)


@case(
    "departed/behind a quorum", "worker 2", Severity.WARNING, "has left the job", "gone on without"
)
def _(it: Situation) -> None:
    it.job.quorum = 2
    it.without(2)
    it.job.departures.add(
        rank=2, ago_s=12.0, reason="the other workers have gone on without this one"
    )


@case("not_joined/with a quorum", "worker 2", Severity.WARNING, "worker 2 has not joined")
def _(it: Situation) -> None:
    it.job.quorum = 2
    it.without(2)


@case("no_hello", "worker 1", Severity.PROBLEM, "no hello packet", "10.255.255.254", "INNET_LINK")
def _(it: Situation) -> None:
    for job, _ in (it.before, it.after):
        job.members[1].ClearField("address")
        job.members[1].ClearField("progress")


@case(
    "no_hello/in a rack", "worker 1", Severity.PROBLEM, "tor has", "right has", "ports", "1, 2, 9"
)
def _(it: Situation) -> None:
    it.racks()
    it.others = (pb.Switch(name="right", reachable=True, ports=[1, 2, 9]),)
    for job, _ in (it.before, it.after):
        job.members[1].ClearField("address")
        job.members[1].ClearField("progress")


@case("silent", "worker 1", Severity.WARNING, "no heartbeat for 2.5 s", "port 2 of tor")
def _(it: Situation) -> None:
    it.job.members[1].silent_s = 2.5


@case("silent/holding others up", "worker 1", Severity.PROBLEM, "no heartbeat for 2.5 s", "slot 3")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=(1,))
    it.job.members[1].silent_s = 2.5


@case(
    "silent/waited for",
    "worker 1",
    Severity.PROBLEM,
    "have waited 7.5 s for worker 1",
    "interpreter lock",
)
def _(it: Situation) -> None:
    it.job.members[1].silent_s = 60.0
    it.job.waiting_for.append(1)
    it.job.waiting_s = 7.5


@case(
    "unreachable", "worker 1", Severity.WARNING, "the machine of worker 1", "not answered for 4.0 s"
)
def _(it: Situation) -> None:
    it.job.members[1].silent_s = it.job.members[1].unreachable_s = 4.0


@case("unreachable/disconnected", "worker 1", Severity.WARNING, "its connection is lost")
def _(it: Situation) -> None:
    it.job.members[1].disconnected = True


@case("waited_for", "worker 2", Severity.PROBLEM, "the others wait for worker 2", "py-spy", "6.0 s")
def _(it: Situation) -> None:
    """Let a term begin while a worker is in its script: the switch is not to blame."""
    it.job.waiting_for.append(2)
    it.job.waiting_s = 6.0
    for job, _ in (it.before, it.after):
        job.path, job.term = pb.PATH_NONE, 8


@case("spoofed", "worker 0", Severity.WARNING, "pretend to be from the switch", "--service-ip")
def _(it: Situation) -> None:
    it.counts(1, spoofed=4)


@case("refused", "worker 0", Severity.WARNING, "`refused` of port 1 of tor", "by 17 in 1.0 s")
def _(it: Situation) -> None:
    it.counts(1, refused=17)


@case(
    "refused/holding others up", "worker 1", Severity.PROBLEM,
    "refuses packets that come in at worker 1's port", "`refused` of port 2 of tor has grown by 99",
    "10.0.0.1:20000", "worker 0 has waited 12.3 s for chunk 17 of 391 in exchange 42",
    "slot 5 with sequence number 9",
)  # fmt: skip
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=(1,), chunk=17, slot=5, sequence=9)
    it.stalls(1, silent_s=12.0)
    it.counts(2, refused=99)


@case("offload", "worker 0", Severity.WARNING, "port 1 of tor", "`ethtool -K IFACE tx off`",
      "`refused` of port 1 of tor has grown by 30", "20 of them (2.0%)", "10.0.0.0:20000")  # fmt: skip
def _(it: Situation) -> None:
    it.works(0, packets_sent=1000, chunks_done=980, retransmissions=20)
    it.counts(1, refused=30)


@case("corrupted", "worker 2", Severity.WARNING, "damaged when they reach the switch", "by 3 in")
def _(it: Situation) -> None:
    it.counts(3, corrupted=3)


@case("corrupted/holding others up", "worker 2", Severity.PROBLEM, "damaged", "for chunk 291")
def _(it: Situation) -> None:
    it.stalls(0, 1, lacking=(2,))
    it.stalls(2, silent_s=8.0)
    it.counts(3, corrupted=3)


@case("corrupted_results", "worker 1", Severity.WARNING, "damaged when they reach worker 1", "6")
def _(it: Situation) -> None:
    it.works(1, corrupted=6)


@case("cut_off", "worker 1", Severity.PROBLEM, "its link is dead", "does answer workers 0, 2",
      "has asked for 9.5 s", "worker 2 has waited 12.3 s for chunk 291")  # fmt: skip
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=(1,))
    it.stalls(1, silent_s=9.5, lacking=())


@case("cut_off/while nobody else asks", "worker 1", Severity.PROBLEM, "its link is dead")
def _(it: Situation) -> None:
    it.stalls(1, silent_s=9.5)
    for rank in (0, 2):
        it.says(rank, busy=False)


@case("behind", "worker 1", Severity.PROBLEM, "it is at exchange 41", "in exchange 42", "it is in")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=(1,))
    it.says(1, exchange=41)


@case("behind/and not busy", "worker 1", Severity.PROBLEM, "at exchange 41", "it is not in an")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=(1,))
    it.says(1, exchange=41, busy=False)


@case(
    "idle", "worker 1", Severity.PROBLEM, "worker 1 is not in an all-reduce", "exchange 42",
    "`pending` has grown by 40", "py-spy", "worker 0 has waited 12.3 s for chunk 291 of 391",
)  # fmt: skip
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=(1,))
    it.says(1, busy=False, chunks=0, remaining=0)
    it.job.counters.pending = 40


@case("idle/on the fallback", "worker 1", Severity.PROBLEM, "worker 1 is not in an all-reduce")
def _(it: Situation) -> None:
    it.job.path = pb.PATH_FALLBACK
    it.stalls(0, 2)
    it.says(1, busy=False)


@case("lost_on_the_way", "worker 1", Severity.PROBLEM, "get lost on their way", "sent 30 packets")
def _(it: Situation) -> None:
    it.stalls(0, 2, lacking=(1,))
    it.works(1, retransmissions=30, packets_sent=30)


@case("loss", "worker 1", Severity.WARNING, "between worker 1 and the switch", "20 of them (2.0%)")
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.works(rank, packets_sent=1000, chunks_done=980)
    it.works(1, retransmissions=20)


@case("loss/of all", "job train", Severity.WARNING, "packets of all workers get lost", "worker 2")
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.works(rank, packets_sent=1000, chunks_done=980, retransmissions=20)


@case("corrupted/in a rack", "worker 1", Severity.WARNING, "at port 2 of right", "by 3 in 1.0 s")
def _(it: Situation) -> None:
    it.racks()
    it.others_before, it.others = (
        (pb.Switch(name="right", reachable=True, port_counters=[counters]),)
        for counters in (pb.PortCounters(port=2), pb.PortCounters(port=2, corrupted=3))
    )


@case("congestion", "worker 2", Severity.WARNING, "window to 4 of 32 chunks", "0.20 ms")
def _(it: Situation) -> None:
    it.says(2, window=4)
    it.works(2, packets_sent=1000, retransmissions=5)
