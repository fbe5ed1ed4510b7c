"""The names of environment variables that workers read, and that the code that starts them sets."""

CONTROLLER = "INNET_CONTROLLER"
"""The controller's address, ``host:port``."""

JOB = "INNET_JOB"
"""The job's name."""

TOKEN = "INNET_TOKEN"  # noqa: S105 - the name of it
"""The token that admits workers to the job."""

LINK = "INNET_LINK"
"""The link to the switch: ``host``, or cables made of UDP or in shared memory."""

LOCAL_SUM = "INNET_LOCAL_SUM"
"""``0``: the ranks of a node do not sum in shared memory first; ``1``, the default: they do."""

PRIVATE_KEY_FILE = "INNET_PRIVATE_KEY_FILE"
"""The file with the secret of private sums; empty for sums that switches can read."""

TLS = "INNET_TLS"
"""The folder with the worker's certificate; empty for none."""
