"""The messages of ``p4/v1/p4runtime.proto``."""

from innet.p4runtime.definitions import members

globals().update(members("p4/v1/p4runtime.proto"))
