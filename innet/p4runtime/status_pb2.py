"""The messages of ``google/rpc/status.proto``."""

from innet.p4runtime.definitions import members

globals().update(members("google/rpc/status.proto"))
