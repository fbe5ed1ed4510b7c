"""Ask a switch over P4Runtime, as an administrator may: program_switch.py ADDRESS FOLDER."""

import sys
from pathlib import Path

import grpc

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc
from innet.rpc import tls

address, folder = sys.argv[1:]
with grpc.secure_channel(
    address, tls.load(Path(folder), tls.ADMIN).channel_credentials()
) as channel:
    stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
    stub.Capabilities(p4rt.CapabilitiesRequest(), timeout=100, wait_for_ready=True)
