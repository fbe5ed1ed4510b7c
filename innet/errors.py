"""Every error that innet raises on purpose.

::

    InnetError
    ├── UsageError             the input is wrong; nothing was done               (2)
    │   ├── NotFound               no switch or job has this name
    │   ├── AlreadyExists          the name, or the rank, is taken
    │   ├── UnsupportedTensor      a dtype or layout that the agent cannot sum
    │   └── UnsupportedProgram     a P4 program that the embedded switch cannot run
    ├── PeerFailed             another worker of a training has died or failed
    ├── SumOverflow            an exact sum is too large for its dtype; the job goes on
    ├── CompilerError          p4c or the C compiler is missing or failed
    ├── IncompleteInstallation one of innet's own files is missing
    ├── ControllerError        the controller refused, or cannot be reached       (2)
    │   ├── NotAuthorized          a token or a certificate is missing or wrong
    │   ├── NoCapacity             slots or a quota are used up
    │   │   └── QuotaExceeded          the owner of the job has no room left in its quota
    │   ├── ControllerUnreachable  nothing answers at the controller's address    (3)
    │   └── SwitchError            a switch refused what the controller sent      (2)
    │       └── SwitchOffline          nothing answers at the switch's address    (3)
    ├── AllReduceError         an all-reduce did not finish; do not use a tensor that it summed in place
    │   ├── AgentClosed            this process closed the agent
    │   ├── JobEnded               the controller has ended the job, or removed this worker from it
    │   ├── LeftBehind             the quorum went on without this worker
    │   ├── LinkFailed             the worker's socket is none any more, or its fallback failed
    │   ├── TimedOut               the caller's own timeout has passed; the all-reduce goes on
    │   ├── SwitchUnreachable      the switch no longer answers                   (3)
    │   ├── WorkersMissing         the switch answers, but other workers do not contribute
    │   │   └── NeighbourLost          a worker on the same node has ended or failed
    │   └── WorkersDisagree        the workers called all-reduce with different sizes or quantizers
    └── ParameterServerError   a push or pull did not finish; make a new client
        ├── ClientClosed           this process closed the client
        ├── ServerLost             a parameter server does not answer             (3)
        └── WorkerLost             another worker has left, or keeps the others waiting

A message gives the value seen and the remedy. A number in brackets is the exit code of a command that
ends with this error. With all other errors, the exit code is 1.
"""

_REFUSED, _UNREACHABLE = 2, 3


class InnetError(Exception):
    """Root of all errors that innet raises on purpose."""

    exit_code = 1


class UsageError(InnetError):
    """The input is wrong, and nothing was done."""

    exit_code = _REFUSED


class NotFound(UsageError):
    """No switch or job has this name."""


class AlreadyExists(UsageError):
    """The name, or the worker's rank, is taken."""


class UnsupportedTensor(UsageError):
    """The agent cannot sum a tensor of this dtype or layout."""


class UnsupportedProgram(UsageError):
    """The embedded switch cannot run this P4 program."""


class PeerFailed(InnetError):
    """Another worker of a training has died or failed."""


class SumOverflow(InnetError):
    """An exact sum is too large for its dtype. All workers get this error, and the job goes on."""


class CompilerError(InnetError):
    """A compiler is missing, or failed."""


class IncompleteInstallation(InnetError):
    """One of innet's own files, such as a C source, is missing."""


class ControllerError(InnetError):
    """The controller refused a request."""

    exit_code = _REFUSED


class ControllerUnreachable(ControllerError):
    """Nothing answers at the controller's address."""

    exit_code = _UNREACHABLE


class NotAuthorized(ControllerError):
    """A token or a certificate is missing, or is not valid for the request."""


class NoCapacity(ControllerError):
    """No slots are free, or a quota is used up."""


class QuotaExceeded(NoCapacity):
    """The quota of the job's owner is used up."""


class SwitchError(ControllerError):
    """A switch refused what the controller sent, or cannot be reached."""


class SwitchOffline(SwitchError):
    """Nothing answers at the switch's address."""

    exit_code = _UNREACHABLE


class AllReduceError(InnetError):
    """An all-reduce did not finish. If it was in place, do not use its tensor."""


class AgentClosed(AllReduceError):
    """The agent was closed in this process, or belongs to the parent of this forked process."""


class LinkFailed(AllReduceError):
    """The worker's socket cannot be used any more, or its fallback has failed for no known cause."""


class JobEnded(AllReduceError):
    """The controller has ended the job, or has removed this worker because its machine was silent."""


class LeftBehind(AllReduceError):
    """A quorum of the other workers went on without this one."""


class TimedOut(AllReduceError):
    """The caller's timeout has passed; the all-reduce goes on."""


class SwitchUnreachable(AllReduceError):
    """The switch stopped answering."""

    exit_code = _UNREACHABLE


class WorkersMissing(AllReduceError):
    """The switch answers, but other workers do not contribute."""


class NeighbourLost(WorkersMissing):
    """A worker on the same node has ended or failed, so the sums in shared memory cannot go on."""


class WorkersDisagree(AllReduceError):
    """The workers called all-reduce with different sizes, dtypes, operations or quantizers."""


class ParameterServerError(InnetError):
    """A push or pull did not finish. Some parameters may be new already. Make a new client."""


class ClientClosed(ParameterServerError):
    """The client was closed in this process, or belongs to the parent of this forked process."""


class ServerLost(ParameterServerError):
    """A parameter server cannot be reached, or no longer answers."""

    exit_code = _UNREACHABLE


class WorkerLost(ParameterServerError):
    """Another worker has left the job, or keeps the others waiting for too long."""
