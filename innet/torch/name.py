"""The name of the backend, as scripts give it to ``init_process_group``."""

NAME = "innet"
