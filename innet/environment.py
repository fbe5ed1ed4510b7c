"""The environment variables that a worker reads, said once: who starts workers sets them."""

CONTROLLER = "INNET_CONTROLLER"
"""Where the controller serves, ``host:port``."""

JOB = "INNET_JOB"
"""The job's name."""

TOKEN = "INNET_TOKEN"  # noqa: S105 - the name of it
"""What the job's workers join with."""

LINK = "INNET_LINK"
"""How to reach the switch: ``host``, or cables made of UDP."""

TLS = "INNET_TLS"
"""The folder with the worker's certificate; empty for none."""
