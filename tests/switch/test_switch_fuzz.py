"""Nothing that arrives breaks the switch: no packet, and no message of a controller.

``INNET_FUZZ_PACKETS=1000000 INNET_FUZZ_MESSAGES=1000000 INNET_FUZZ_PROGRAMS=all`` is the long mode.
"""

import contextlib
import json
import os
import random
import socket
from collections.abc import Iterator, MutableSequence
from itertools import count
from typing import Any

import damage
import differential
import grpc
import pytest
from aggregation_rack import (
    SERVICE,
    AggregationRack,
    aggregation_rack,
    arp_request,
    station,
)
from contributions import WORKERS, rack_scenario
from p4runtime_client import Controller, group, uint128
from sanitizers import run_sanitized
from scapy.layers.l2 import Ether
from scenarios import scenario
from switch_commands import memory
from switches import ANSWERS_WITHIN, Switch, receive, running_switch
from tiny_programs import program
from waiting import WITHIN

from innet.machine.sockets import enlarge_buffers
from innet.p4runtime import p4runtime_pb2 as p4rt

PACKETS = int(os.environ.get("INNET_FUZZ_PACKETS", "30000"))
MESSAGES = int(os.environ.get("INNET_FUZZ_MESSAGES", "2400"))
PROGRAMS = os.environ.get("INNET_FUZZ_PROGRAMS", "")

GROWTH = 16 << 20
"""The most bytes that the switch's memory may grow by, whatever it is sent."""

LONG = 4 * 3600

PRIMARY = 1 << 40


# -- packets -------------------------------------------------------------------------------------

BATCH = 32
SENDER, TARGET = slice(28, 32), slice(38, 42)
"""The places of the two IP addresses in an ARP frame."""


def throw(rack: AggregationRack, chance: random.Random, good: list[bytes], packets: int) -> None:
    """Send damaged packets in batches, and wait for the answer to a question after each batch."""
    for number in range(packets // BATCH):
        port = chance.randint(1, len(rack.switch.hosts))
        for _ in range(BATCH):
            rack.send(port, damage.frame(chance, good))
        wait(rack, port, 0xE0000000 + number)
        for host in rack.switch.hosts:
            drain(host)


def wait(rack: AggregationRack, port: int, number: int) -> None:
    """Ask a new question. Its answer comes behind everything that came out before."""
    asking = number.to_bytes(4, "big")
    question = bytearray(bytes(arp_request(port, SERVICE.ip)))
    question[SENDER] = asking
    rack.send(port, bytes(question))
    while rack.receive(port)[TARGET] != asking:
        pass


def drain(host: socket.socket) -> None:
    host.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            receive(host)
    host.settimeout(ANSWERS_WITHIN)


@pytest.mark.timeout(LONG)
def test_packets_of_all_kinds_neither_stop_the_switch_nor_fill_its_memory():
    chance = random.Random(31)
    with aggregation_rack(3) as rack:
        for host in rack.switch.hosts:
            enlarge_buffers(host)
        rack.controller.insert(*(group(job, (1, 1), (2, 2), (3, 3)) for job in WORKERS))
        for job, ports in WORKERS.items():
            for port in ports:
                if port <= 3:
                    rack.admit(job, port - 1, quorum=2)
        good = [frame for _, frame in rack_scenario(1, 300).packets]
        good += [frame for _, frame in scenario(differential.load("aggregate-64"), 1, 300).packets]
        throw(rack, chance, good, PACKETS // 4)
        before = memory(rack.switch)
        throw(rack, chance, good, PACKETS)
        assert memory(rack.switch) - before < GROWTH
        frame = (
            bytes(Ether(dst="02:00:00:00:00:99", src=station(1).mac, type=0x1234)) + b"still here"
        )
        rack.send(1, frame)
        assert rack.receive(2) == rack.receive(3) == frame


# -- messages ------------------------------------------------------------------------------------

SERVED = ("router", "mix_vlan", "match_selector", "path_clone_ingress")
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED,
}  # fmt: skip


class Pest:
    """A primary controller that sends nonsense."""

    def __init__(self, switch: Switch, controller: Controller, name: str, seed: int) -> None:
        self._switch, self._controller = switch, controller
        self._chance = random.Random(seed)
        self._program = program(name)
        self._numbers = sorted(set(_ids(self._program.p4info)))
        self._messages = damage.Messages(self._chance, self._numbers)
        self._updates = scenario(self._program, seed, 1).updates
        self._elections = count(1)
        self._stream: Controller | None = None

    def bother(self, messages: int) -> None:
        for _ in range(messages):
            call = self._chance.choices(
                (self.write, self.read, self.configure, self.ask, self.say), (8, 5, 1, 1, 3)
            )[0]
            try:
                call()
            except grpc.RpcError as problem:
                self.check(problem)
        self.hang_up()

    def check(self, problem: Any) -> None:
        """Fail unless a refusal is deliberate: errors of the service itself are UNKNOWN or INTERNAL."""
        if problem.code() == grpc.StatusCode.UNKNOWN:
            assert "grpc-status-details-bin" in dict(problem.trailing_metadata() or ()), problem
        else:
            assert problem.code() in REFUSALS, problem

    def write(self) -> None:
        request = p4rt.WriteRequest(election_id=uint128(PRIMARY))
        for _ in range(self._chance.randint(1, 4)):
            request.updates.add().CopyFrom(self.update())
        if self._chance.random() < 0.2:
            self._messages.spoil(request)
        self._controller.stub.Write(request, timeout=WITHIN)

    def update(self) -> p4rt.Update:
        if self._chance.random() < 0.3:
            return self._messages.fill(p4rt.Update())
        update = p4rt.Update()
        update.CopyFrom(self._chance.choice(self._updates))
        update.type = self._chance.choice((0, 1, 1, 2, 3, 3))
        return self._messages.spoil(update) if self._chance.random() < 0.7 else update

    def read(self) -> None:
        request = p4rt.ReadRequest()
        for _ in range(self._chance.randint(1, 3)):
            request.entities.add().CopyFrom(self.update().entity)
        if self._chance.random() < 0.2:
            self._messages.spoil(request)
        list(self._controller.stub.Read(request, timeout=WITHIN))

    def configure(self) -> None:
        kinds = p4rt.SetForwardingPipelineConfigRequest
        request = kinds(election_id=uint128(PRIMARY), action=kinds.VERIFY)
        request.config.p4info.CopyFrom(self._program.p4info)
        request.config.p4_device_config = self.spoilt_json()
        if self._chance.random() < 0.5:
            self._messages.spoil(request.config.p4info)
        elif self._chance.random() < 0.3:
            request.action = self._chance.randrange(7)
            request.config.p4_device_config = self._chance.randbytes(100)
        self._controller.stub.SetForwardingPipelineConfig(request, timeout=WITHIN)

    def spoilt_json(self) -> bytes:
        """Return the program with a part left out or moved."""
        document = json.loads(self._program.json)
        places = [*_places(document)]
        (holder, key), (other, source) = self._chance.sample(places, 2)
        if self._chance.random() < 0.5:
            holder[key] = json.loads(json.dumps(other[source]))
        else:
            del holder[key]
        return json.dumps(document).encode()

    def ask(self) -> None:
        request = self._messages.fill(p4rt.GetForwardingPipelineConfigRequest())
        self._controller.stub.Capabilities(p4rt.CapabilitiesRequest(), timeout=WITHIN)
        self._controller.stub.GetForwardingPipelineConfig(request, timeout=WITHIN)

    def say(self) -> None:
        """Send nonsense on a new stream, which the switch may end."""
        message = self._messages.fill(p4rt.StreamMessageRequest())
        if message.WhichOneof("update") == "arbitration":
            message.arbitration.election_id.CopyFrom(uint128(next(self._elections)))
        if not self._stream:
            self._stream = Controller(self._switch.address, next(self._elections))
        self._stream.send(message)
        if self._chance.random() < 0.2:
            self.hang_up()

    def hang_up(self) -> None:
        if self._stream:
            self._stream.__exit__()
        self._stream = None


def _ids(info: Any) -> Iterator[int]:
    for field, value in info.ListFields():
        if field.message_type:
            for each in value if isinstance(value, MutableSequence) else [value]:
                yield from _ids(each)
        elif field.name in ("id", "table_ids", "direct_resource_ids", "size"):
            yield from value if isinstance(value, MutableSequence) else [value]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON document: its container and its key."""
    for key in node if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


@pytest.mark.timeout(LONG)
def test_messages_of_all_kinds_neither_stop_the_switch_nor_fill_its_memory():
    with running_switch(2) as switch, Controller(switch.address, PRIMARY) as primary:

        def torment(seed: int, messages: int) -> int:
            for name in SERVED:
                primary.configure(program(name))
                Pest(switch, primary, name, seed).bother(messages // len(SERVED))
            primary.configure(program("router"))
            return memory(switch)

        before = torment(1, MESSAGES // 2)
        assert torment(2, MESSAGES) - before < GROWTH
        primary.configure(program("tally"))
        frame = bytes(12) + bytes.fromhex("88b5 01 00000003 00000000 00000007")
        switch.hosts[0].send(frame)
        assert receive(switch.hosts[0]) == frame
        with pytest.raises(grpc.RpcError, match="no table with id"):
            primary.read(p4rt.Entity(table_entry=p4rt.TableEntry(table_id=77)))


# -- sanitizers ----------------------------------------------------------------------------------

SANITIZED = (
    "aggregate-64",
    "hub",
    "router",
    "mix_tunnel",
    "mix_slices",
    "mix_egress",
    "mix_calculator",
    "mix_outside",
    "parse_union_stack",
    "wide_signed",
    "wide_state",
)


@pytest.mark.timeout(LONG)
def test_no_packet_makes_a_program_do_what_c_leaves_undefined():
    names = differential.names() if PROGRAMS == "all" else SANITIZED
    done = run_sanitized("sanitized.py", 7, max(100, PACKETS // 100), *names)
    assert done.returncode == 0, done.stderr[-5000:]
    assert [line for line in done.stdout.splitlines() if line.endswith(": clean")] == [
        f"{name}: clean" for name in names
    ]
