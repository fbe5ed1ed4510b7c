"""A worker whose sums have deadlines. It compares each with the oracle, and prints a line after it.

``python deadline_worker.py STOPPED``: in the middle of a step, the worker of rank STOPPED stops itself.
"""

import os
import signal
import sys

from scripted_lateness import SCRIPT, ScriptedLateness, harmed
from steps import say

import innet
from benchmarks.emulated.stragglers import DEADLINE, Case, checked
from innet.host.deadline_sums import DeadlineSums

FLOATS, STOPPED_AT = 3000, 8


def main(stopped: int) -> None:
    """Join, and sum integers by the script."""
    case = Case("oracle", DEADLINE, len(SCRIPT), FLOATS)
    with innet.join() as agent:
        sums = DeadlineSums(agent)
        sums.late = ScriptedLateness(agent.info.workers, SCRIPT)
        if agent.info.rank == stopped:
            script = harmed(SCRIPT, STOPPED_AT, lambda: os.kill(os.getpid(), signal.SIGSTOP))
            sums.late = ScriptedLateness(agent.info.workers, script)
        checked(case, agent, sums, lambda step: say(step=step, parameters=""))
        say(end=True, parameters="all sums were exact")


if __name__ == "__main__":
    main(int(sys.argv[1]))
