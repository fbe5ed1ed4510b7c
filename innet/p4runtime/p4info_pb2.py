"""The messages of ``p4/config/v1/p4info.proto``."""

from innet.p4runtime.definitions import members

globals().update(members("p4/config/v1/p4info.proto"))
