"""Every error that innet raises on purpose.

::

    InnetError
    ├── UsageError             the input is wrong; nothing was done           (exit code 2)
    │   ├── NotFound               no switch or job has this name
    │   ├── AlreadyExists          the name, or the seat, is taken
    │   ├── UnsupportedTensor      a dtype or layout that the agent cannot sum
    │   └── UnsupportedProgram     a P4 program that the embedded switch cannot run
    ├── PeerFailed             another worker of a training is gone, or broke down
    ├── SumOverflow            an exact sum is too large for its dtype; the job goes on
    ├── CompilerError          p4c or the C compiler is missing or failed
    ├── ControllerError        the controller refused, or cannot be reached
    │   ├── NotAuthorized          a token or a certificate is missing, or another's
    │   ├── NoCapacity             slots or a quota are used up
    │   ├── ControllerUnreachable                                             (exit code 2)
    │   └── SwitchError            a switch refused what the controller sent
    ├── AllReduceError         an all-reduce did not finish; no tensor was changed
    │   ├── AgentClosed            the agent was closed, here
    │   ├── JobEnded               the controller has ended the job, or the worker's lease
    │   ├── LeftBehind             the quorum went on without this worker
    │   ├── LinkFailed             the worker's own network refused to send or receive
    │   ├── TimedOut               the caller's own timeout is over; the all-reduce goes on
    │   ├── SwitchUnreachable      the switch no longer answers
    │   ├── WorkersMissing         the switch answers, other workers do not contribute
    │   └── WorkersDisagree        the workers called all-reduce with different sizes or quantizers
    └── ParameterServerError   a push or pull did not finish; the client has to be made anew
        ├── ClientClosed           the client was closed, here
        ├── ServerLost             a parameter server cannot be reached, or no longer answers
        └── WorkerLost             another worker has left, or keeps the others waiting

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


class PeerFailed(InnetError):
    """Another worker of a training is gone, or broke down."""


class SumOverflow(InnetError):
    """An exact sum is too large for its dtype. All workers are told, and the job goes on."""


class CompilerError(InnetError):
    """A compiler is missing, or failed."""


class ControllerError(InnetError):
    """The controller refused a request."""


class ControllerUnreachable(ControllerError):
    """Nobody answers at the controller's address."""

    exit_code = 2


class NotAuthorized(ControllerError):
    """A token or a certificate is missing, or belongs to somebody else."""

    exit_code = 2


class NoCapacity(ControllerError):
    """Slots, or what a quota allows, are used up."""


class SwitchError(ControllerError):
    """A switch refused what the controller sent, or cannot be reached."""


class AllReduceError(InnetError):
    """An all-reduce did not finish; no tensor was changed."""


class AgentClosed(AllReduceError):
    """The agent was closed in this process."""


class LinkFailed(AllReduceError):
    """The worker's own network refused to send or to receive."""


class JobEnded(AllReduceError):
    """The controller has ended the job, or the worker's lease has run out."""


class LeftBehind(AllReduceError):
    """The other workers' quorum went on without this worker."""


class TimedOut(AllReduceError):
    """The caller has waited as long as it wanted to; the all-reduce goes on."""


class SwitchUnreachable(AllReduceError):
    """The switch stopped answering."""


class WorkersMissing(AllReduceError):
    """The switch answers, but other workers do not contribute."""


class WorkersDisagree(AllReduceError):
    """The workers called all-reduce with different sizes, dtypes, operations or quantizers."""


class ParameterServerError(InnetError):
    """A push or pull did not finish: some parameters may have arrived. The client is of no more use."""


class ClientClosed(ParameterServerError):
    """The client was closed in this process."""


class ServerLost(ParameterServerError):
    """A parameter server cannot be reached, or no longer answers."""


class WorkerLost(ParameterServerError):
    """Another worker has left the job, or keeps the others waiting for too long."""
