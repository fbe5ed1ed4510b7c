"""The messages of ``google/rpc/code.proto``."""

from innet.p4runtime.definitions import members

globals().update(members("google/rpc/code.proto"))
