"""The rules for giving workers up, without connections or a clock."""

from innet.controller.state.liveness import LONGEST_OUTAGE_S, Liveness, Sign

LEASE, TICK = 8.0, 0.5
HEARD, LOCAL = Sign(0.2, remote=True), Sign(0.2)


class Watched:
    """Workers that are looked at twice a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.liveness = Liveness(LEASE)
        self.since: dict[int, float] = {}

    def given_up(self, seconds: float, **signs: Sign | str) -> list[int]:
        """Let time pass. ``w1="silent"``: worker 1 is not heard; ``"lost"``: it has no stream."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            looked = {
                int(name[1:]): self._sign(int(name[1:]), sign) for name, sign in signs.items()
            }
            if gone := self.liveness.look(self.now, looked):
                return gone
        return []

    def _sign(self, nonce: int, sign: Sign | str) -> Sign:
        if isinstance(sign, Sign):
            self.since[nonce] = self.now - (sign.silence or 0)
            return sign
        if sign == "lost":
            return Sign(None)
        return Sign(self.now - self.since.get(nonce, self.now), remote=True)


def test_a_machine_that_is_silent_while_others_are_heard_is_given_up_within_ten_seconds():
    watched = Watched()
    assert not watched.given_up(30, w1=HEARD, w2=HEARD)
    began = watched.now
    assert watched.given_up(60, w1=HEARD, w2="silent") == [2]
    assert LEASE <= watched.now - began <= 10


def test_when_all_are_silent_nobody_is_given_up_for_a_long_time():
    watched = Watched()
    watched.given_up(5, w1=HEARD, w2=HEARD)
    assert not watched.given_up(LONGEST_OUTAGE_S - 10, w1="silent", w2="silent")
    assert watched.liveness.outage
    assert sorted(watched.given_up(20, w1="silent", w2="silent")) == [1, 2]


def test_a_single_worker_that_is_silent_is_no_evidence_against_its_machine():
    watched = Watched()
    watched.given_up(5, w1=HEARD)
    assert not watched.given_up(60, w1="silent")
    assert watched.liveness.outage


def test_after_an_outage_everybody_has_a_whole_lease_again():
    watched = Watched()
    watched.given_up(5, w1=HEARD, w2=HEARD, w3=HEARD)
    watched.given_up(60, w1="silent", w2="silent", w3="silent")
    assert not watched.given_up(LEASE - 3, w1=HEARD, w2="silent", w3="lost")
    assert not watched.liveness.outage
    assert not watched.given_up(60, w1=HEARD, w2=HEARD, w3=HEARD)
    assert watched.given_up(60, w1=HEARD, w2=HEARD, w3="lost") == [3]


def test_workers_that_fall_silent_one_after_the_other_fall_silent_together():
    """Kernels are asked once a second, not all at the same moment."""
    watched = Watched()
    watched.given_up(5, w1=HEARD, w2=HEARD)
    watched.given_up(1.5, w1=HEARD, w2="silent")
    assert not watched.given_up(60, w1="silent", w2="silent")


def test_a_worker_on_the_controllers_own_machine_says_nothing_about_the_network():
    watched = Watched()
    watched.given_up(5, w1=LOCAL, w2=HEARD, w3=HEARD)
    assert not watched.given_up(60, w1=LOCAL, w2="silent", w3="silent")
    assert watched.liveness.outage


def test_a_stream_that_ends_after_a_silence_is_not_the_end_of_a_process():
    watched = Watched()
    watched.given_up(5, w1=HEARD, w2=HEARD)
    assert watched.liveness.healthy(2, watched.now)
    watched.given_up(4, w1="silent", w2="silent")
    assert not watched.liveness.healthy(2, watched.now)
    assert watched.liveness.unheard() == {1, 2}


def test_a_controller_that_stood_still_knows_nothing_of_its_workers():
    watched = Watched()
    watched.given_up(1, w1=HEARD, w2="lost")
    watched.now += 60
    assert not watched.liveness.healthy(1, watched.now)
    assert not watched.given_up(LEASE - 3, w1=HEARD, w2="lost")
