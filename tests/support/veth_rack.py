"""A worker behind a veth, in a network namespace of its own: what doctor says about it. Needs root.

Run by test_offloads.py with ``unshare --net`` and the kind of port, such as ``packet:``. Prints what was
found as JSON, one line each.
"""

import json
import subprocess
import sys
import threading

import numpy as np
from commands import BIN
from waiting import until

from innet.controller.server import ControllerServer
from innet.host.agent import Agent
from innet.host.join import join
from innet.local.ports import free_tcp_port
from innet.observe.checklist import check
from innet.observe.diagnosis import diagnose
from innet.observe.roles import Role
from innet.observe.sample import sample_job, sample_twice
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

SERVICE, WORKER = "10.77.0.254", "10.77.0.1/24"
ELEMENTS = 16_000


def configure(*commands: str) -> None:
    for each in commands:
        subprocess.run(each.split(), check=True, capture_output=True)


def main(way: str) -> None:
    configure("ip link set lo up", "ip link add sw1 type veth peer name h1", "ip link set sw1 up")
    address = f"127.0.0.1:{free_tcp_port()}"
    command = [str(BIN / "innet-switch"), "--no-p4", f"-i1@{way}sw1", "--grpc-server-addr", address]
    server = ControllerServer("127.0.0.1:0")
    controller = f"127.0.0.1:{server.port}"
    channel, stub = connect(controller)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as switch, channel:
        try:
            assert switch.stdout.readline().startswith("P4Runtime")
            service = pb.Address(mac="02:00:00:00:00:fe", ip=SERVICE)
            stub.AddSwitch(
                pb.AddSwitchRequest(
                    name="tor", grpc_address=address, ports=[1], lanes=256, service=service
                )
            )
            created = stub.CreateJob(pb.CreateJobRequest(name="job", switch="tor", workers=1))
            environment = {
                "INNET_CONTROLLER": controller, "INNET_JOB": "job", "INNET_TOKEN": created.token,
                "RANK": "0", "INNET_LINK": "host",
            }  # fmt: skip
            say("route/before", machine(environment, "service address"))
            configure("ip link set h1 up", f"ip address add {WORKER} dev h1")
            say("route", machine(environment, "service address"))
            say("fallback", machine(environment, "fallback"))
            shared = {**environment, "GLOO_SOCKET_IFNAME": "h1"}
            say("fallback/shared", machine(shared, "fallback"))
            for state in ("on", "off"):
                if state == "off":
                    configure("ethtool -K h1 tx off")
                say(f"machine/{state}", machine(environment, "offloads"))
                with join(controller, "job", 0, "host", token=created.token) as agent:
                    say(f"job/{state}", busy(agent, stub))
        finally:
            switch.terminate()
    server.close()


def machine(environment: dict[str, str], name: str) -> list[str]:
    """Return what the check of this machine says about one of its subjects."""
    [found] = [each for each in check(Role.WORKER, environment) if each.subject == name]
    return [found.severity.name, found.statement, found.remedy]


def busy(agent: Agent, stub: object) -> list[list[str]]:
    """Return the findings while the worker sums."""
    stop, correct = threading.Event(), [True]

    def work() -> None:
        while not stop.is_set():
            correct.append(bool((agent.all_reduce(np.ones(ELEMENTS, np.float32)) == 1).all()))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        until(lambda: sample_job(stub, "job").report(0))  # growth counts from there
        found = diagnose(sample_twice(lambda: sample_job(stub, "job"), 2.0))
    finally:
        stop.set()
        worker.join()
    assert all(correct)
    return [[each.rule, each.statement, each.remedy] for each in found]


def say(name: str, what: object) -> None:
    print(json.dumps([name, what]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
