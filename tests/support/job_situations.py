"""Situations of a whole job, of its switches and of strangers, one or more for each rule."""

from situations import WORKERS, Cases, Situation, into

from innet.observe.findings import Severity
from innet.rpc import innet_pb2 as pb

JOB_CASES: Cases = {}
case = into(JOB_CASES)


@case(
    "outage",
    "job train",
    Severity.WARNING,
    "hears no worker",
    "network of the controller's machine",
)
def _(it: Situation) -> None:
    it.job.outage = True


@case("wrong_uplink", "switch right", Severity.PROBLEM, "the uplink at port 5 of right was said to "
      "lead to port 2 of tor, and leads to port 1 of tor", "move the cables")  # fmt: skip
def _(it: Situation) -> None:
    it.racks()
    link = pb.Uplink(parent="tor", port=5, parent_port=2, found="port 1 of tor", probed=True)
    it.others = (pb.Switch(name="right", reachable=True, uplinks=[link]),)


@case("switch_down/in a rack", "switch right", Severity.PROBLEM, "the switch right is down",
      "10.0.9.2:9559", "right does not answer", "start it again")  # fmt: skip
def _(it: Situation) -> None:
    it.racks()
    it.others = (pb.Switch(name="right", grpc_address="10.0.9.2:9559"),)
    for job, _ in (it.before, it.after):
        job.path, job.reason = pb.PATH_NONE, "right does not answer"


@case(
    "switch_unreachable/in a rack",
    "switch right",
    Severity.WARNING,
    "cannot reach the switch right",
)
def _(it: Situation) -> None:
    it.racks()
    it.others = (pb.Switch(name="right", grpc_address="10.0.9.2:9559"),)


@case(
    "switch_down", "job train", Severity.PROBLEM, "tor is down", "10.0.9.1:9559", "workers 0, 1, 2"
)
def _(it: Situation) -> None:
    it.switch.reachable = False
    it.stalls(0, 1, 2, silent_s=4.0)


@case("switch_down/between terms", "job train", Severity.PROBLEM, "tor is down")
def _(it: Situation) -> None:
    it.switch.reachable = False
    it.job.path = pb.PATH_NONE


@case("switch_taken", "job train", Severity.PROBLEM, "another controller", "which started later")
def _(it: Situation) -> None:
    it.switch.reachable, it.switch.taken = False, True
    it.switch.problem = "the switch has another controller, which started later"
    it.job.path = pb.PATH_NONE


@case("switch_unreachable", "job train", Severity.WARNING, "cannot reach", "does answer w")
def _(it: Situation) -> None:
    it.switch.reachable = False


@case(
    "switch_silent",
    "job train",
    Severity.PROBLEM,
    "answers no worker",
    "worker 2 has asked for 4.0",
)
def _(it: Situation) -> None:
    it.stalls(0, 1, 2, silent_s=4.0, lacking=())


@case("no_slots", "job train", Severity.PROBLEM, "waits for slots", "8160 of 8192 on tor", "queued")
def _(it: Situation) -> None:
    it.job.slots, it.job.path, it.job.reason = 0, pb.PATH_NONE, "queued behind 2 jobs"


@case("no_path", "job train", Severity.PROBLEM, "wait for a term", "not ready yet: worker 1")
def _(it: Situation) -> None:
    for job, _ in (it.before, it.after):
        job.path, job.reason = pb.PATH_NONE, "not ready yet: worker 1"


@case("drained", "job train", Severity.PROBLEM, "wait for a drained switch: tor", "tor is drained")
def _(it: Situation) -> None:
    it.switch.drained = True
    for job, _ in (it.before, it.after):
        job.path, job.reason = pb.PATH_NONE, "the switch tor is drained"


@case("fallback/drained", "job train", Severity.WARNING, "not in the switch", "tor is drained")
def _(it: Situation) -> None:
    it.switch.drained, it.switch.reachable = True, False
    it.job.path, it.job.reason = pb.PATH_FALLBACK, "the switch tor is drained"


@case("fallback", "job train", Severity.WARNING, "not in the switch", "the switch does not answer")
def _(it: Situation) -> None:
    it.job.path, it.job.reason = pb.PATH_FALLBACK, "the switch does not answer"


@case("fallback/without slots", "job train", Severity.WARNING, "the job has no slots; 8160 of")
def _(it: Situation) -> None:
    it.job.slots, it.job.path = 0, pb.PATH_FALLBACK


@case("new_term", "job train", Severity.WARNING, "7 was followed by 8", "a link was down")
def _(it: Situation) -> None:
    it.job.term, it.job.reason = 8, "a link was down"


@case("nobody", "job train", Severity.WARNING, "none of the 3 workers has joined", "INNET_JOB")
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.without(rank)


@case("sizes_disagree", "job train", Severity.PROBLEM, "different sizes", "worker 1: 17 chunks in")
def _(it: Situation) -> None:
    it.says(1, chunks=17)


@case("left_behind", "job train", Severity.WARNING, "too late", "`stale` has grown by 5", "2 of 3")
def _(it: Situation) -> None:
    it.job.quorum, it.job.counters.stale = 2, 5


@case(
    "between", "job train", Severity.NOTE, "no worker is in an all-reduce", "has done 42 exchanges"
)
def _(it: Situation) -> None:
    for rank in range(WORKERS):
        it.says(rank, busy=False)


@case("unexplained", "job train", Severity.PROBLEM, "no known cause fits", "worker 0 has waited")
def _(it: Situation) -> None:
    it.stalls(0)


@case(
    "uplink_silent", "switch right", Severity.PROBLEM, "right sends its sums up to tor", "no answer",
    "`raised` has grown by 9 in 1.0 s, `completed` by 0", "below it: workers 1, 2",
    "worker 2 has waited 12.3 s for chunk 291", "worker 0 has waited 12.3 s for chunk 291",
)  # fmt: skip
def _(it: Situation) -> None:
    it.racks(raised=9, pending=1)
    it.stalls(0, lacking=(1, 2))
    it.stalls(1, 2, lacking=(), silent_s=8.0)


@case("rack_missing", "switch right", Severity.WARNING, "sums wait at tor for that of right",
      "below it: workers 1, 2", "worker 0 has waited 12.3 s for chunk 291")  # fmt: skip
def _(it: Situation) -> None:
    it.racks()
    it.stalls(0, lacking=(1, 2))
    it.stalls(1, 2, lacking=())


@case("stranger", "port 4 of tor", Severity.WARNING, "no worker of the job is", "`refused` 8")
def _(it: Situation) -> None:
    it.counts(4, refused=8)


@case("history", "port 2 of tor", Severity.NOTE, "none just now", "`refused` 800, `spoofed` 1")
def _(it: Situation) -> None:
    for _, switch in (it.before, it.after):
        switch.port_counters[1].refused, switch.port_counters[1].spoofed = 800, 1


@case(
    "few_slots", "job train", Severity.NOTE, "has 32 slots, and needs 1024",
    "worker 1: 10 Gb/s x 200 us, its shortest round trip, are 767 packets of 326 bytes",
)  # fmt: skip
def _(it: Situation) -> None:
    it.says(1, link_bits_per_s=10_000_000_000, least_round_trip_s=0.0002)
    it.says(2, link_bits_per_s=10_000_000_000, least_round_trip_s=0.000001)


@case(
    "port_down", "port 2 of tor", Severity.PROBLEM, "port 2 of tor is down, and a worker needs it"
)
def _(it: Situation) -> None:
    for port in (2, 4):  # nobody is at port 4
        it.switch.port_counters[port - 1].down = True
