"""Every error that innet raises on purpose.

::

    InnetError
    ├── UsageError             the input is wrong; nothing was done           (exit code 2)
    │   ├── NotFound               no switch or job has this name
    │   ├── AlreadyExists          the name, or the seat, is taken
    │   ├── UnsupportedTensor      a dtype or layout that the agent cannot sum
    │   └── UnsupportedProgram     a P4 program that the embedded switch cannot run
    ├── CompilerError          p4c or the C compiler is missing or failed
    ├── ControllerError        the controller refused, or cannot be reached
    │   ├── ControllerUnreachable                                             (exit code 2)
    │   └── SwitchError            a switch refused what the controller sent
    └── AllReduceError         an all-reduce did not finish; no tensor was changed
        ├── AgentClosed            the agent was closed, here
        ├── JobEnded               the controller has ended the job
        ├── LinkFailed             the worker's own network refused to send or receive
        ├── SwitchUnreachable      the switch no longer answers
        ├── WorkersMissing         the switch answers, other workers do not contribute
        └── WorkersDisagree        the workers called all-reduce with different sizes

Messages give the value seen and what to do about it.
"""


class InnetError(Exception):
    """Root of all errors that innet raises on purpose."""

    exit_code = 1


class UsageError(InnetError):
    """The input is wrong, and nothing was done."""

    exit_code = 2


class NotFound(UsageError):
    """No switch or job has this name."""


class AlreadyExists(UsageError):
    """The name, or the worker's seat, is taken."""


class UnsupportedTensor(UsageError):
    """The agent cannot sum a tensor of this dtype or layout."""


class UnsupportedProgram(UsageError):
    """The embedded switch cannot run this P4 program."""


class CompilerError(InnetError):
    """A compiler is missing, or failed."""


class ControllerError(InnetError):
    """The controller refused a request."""


class ControllerUnreachable(ControllerError):
    """Nobody answers at the controller's address."""

    exit_code = 2


class SwitchError(ControllerError):
    """A switch refused what the controller sent, or cannot be reached."""


class AllReduceError(InnetError):
    """An all-reduce did not finish; no tensor was changed."""


class AgentClosed(AllReduceError):
    """The agent was closed in this process."""


class LinkFailed(AllReduceError):
    """The worker's own network refused to send or to receive."""


class JobEnded(AllReduceError):
    """The controller has ended the job."""


class SwitchUnreachable(AllReduceError):
    """The switch stopped answering."""


class WorkersMissing(AllReduceError):
    """The switch answers, but other workers do not contribute."""


class WorkersDisagree(AllReduceError):
    """The workers called all-reduce with different sizes."""
