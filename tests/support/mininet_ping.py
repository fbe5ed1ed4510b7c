"""Two hosts and an InnetSwitch in Mininet: prints the loss of pings in percent, and who answers."""

import sys
from functools import partial
from pathlib import Path

sys.path.append("/usr/lib/python3/dist-packages")  # where Debian puts Mininet

import grpc
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc
from innet.switch.mininet import InnetSwitch

PROGRAM = Path(__file__).parent / "programs" / "wire.json"


def main() -> None:
    net = Mininet(SingleSwitchTopo(2), partial(InnetSwitch, program=PROGRAM), controller=None)
    net.start()
    try:
        loss = net.pingAll()
        switch = net.get("s1")
        with grpc.insecure_channel(switch.grpc_address) as channel:
            stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
            version = stub.Capabilities(p4rt.CapabilitiesRequest()).p4runtime_api_version
        print(f"loss {loss} version {version} device {switch.device_id}")  # noqa: T201
    finally:
        net.stop()


if __name__ == "__main__":
    main()
