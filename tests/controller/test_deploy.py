"""A deployment sends the requests of its dry run, and refuses wrong arguments."""

import contextlib
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from chip_files import make, make_for_both
from chip_server import Chip, serving, without_election
from commands import refuse, run, run_into_full_file
from commands import serving as started
from switches import running_switch

from innet.controller.deploy import deploy
from innet.controller.jobs.records import SwitchRecord
from innet.controller.state.store import Store
from innet.controller.switches import rehearsal as rehearsals
from innet.controller.switches.targets import pipeline_pb2
from innet.controller.switches.targets.choice import TARGETS, find
from innet.errors import UsageError
from innet.p4 import tofino
from innet.p4.artifacts import artifact
from innet.rpc import innet_pb2 as pb
from innet.switch.p4runtime.arbitration import Arbitration
from innet.switch.p4runtime.device import Device
from innet.switch.p4runtime.service import P4RuntimeService, bound
from innet.wire.frames import Address

SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")
CHIPS = ["tofino", "tofino2"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_for_both(tmp_path / "built")


def command(address: str, *more: str) -> Any:
    done = run("innet", "deploy", address, *more)
    assert done.returncode == 0, done.stderr
    *requests, last = done.stdout.splitlines()
    return requests, last


# -- the dry run and the real one ------------------------------------------------------------------


def test_a_dry_run_shows_what_the_embedded_switch_is_sent():
    with running_switch(3) as switch:
        options = ("--ports", "1-3", "--service-ip", "10.0.0.254")
        shown, last = command(switch.address, *options, "--dry-run")
        assert last == f"{switch.address}: nothing was sent"
        sent, last = command(switch.address, *options)
        assert last == f"{switch.address} runs the program"
        assert shown == sent
        assert "  INSERT multicast group 1: port 1 as 1, port 2 as 1, port 3 as 1" in sent
        again, _ = command(switch.address, *options)
        assert len(again) < len(sent), "the switch has it already"
        assert not [line for line in again if "INSERT" in line or "Set" in line]


def test_output_that_cannot_be_written_is_not_the_switchs_fault():
    with running_switch(2) as switch:
        full = run_into_full_file("innet", "deploy", switch.address, "--ports", "1-2")
        assert (full.returncode, full.stderr) == (1, "error: [Errno 28] No space left on device\n")
        requests, _ = command(switch.address, "--ports", "1-2")
    assert not [line for line in requests if "INSERT" in line], "the switch has all its entries"


def test_the_requests_of_a_dry_run_are_those_that_arrive(monkeypatch):
    rehearsed: list[Any] = []
    arrived: list[Any] = []
    recording(monkeypatch, rehearsals._Nobody, rehearsed)
    request = pb.AddSwitchRequest(name="x", grpc_address="nowhere:1", ports=[1, 2])
    shown: list[str] = []
    deploy(request, None, shown.append, dry_run=True)
    recording(monkeypatch, P4RuntimeService, arrived)
    with embedded() as address:
        request.grpc_address = address
        sent: list[str] = []
        deploy(request, None, sent.append, dry_run=False)
    assert without_election(rehearsed) == without_election(arrived)
    assert shown == sent
    kinds = [type(each).__name__ for each in arrived]
    asks = ["StreamMessageRequest", "GetForwardingPipelineConfigRequest"]
    assert kinds == [
        *asks,  # the test for another controller
        *asks, "SetForwardingPipelineConfigRequest", "ReadRequest", "WriteRequest",
    ]  # fmt: skip


def recording(monkeypatch, servicer: type, requests: list[Any]) -> None:
    """Record the messages that a server receives, before it handles them."""
    methods = "GetForwardingPipelineConfig SetForwardingPipelineConfig Write Read".split()
    for name in methods:
        method = getattr(servicer, name)

        def heard(self, request, context, method=method):
            requests.append(request)
            return method(self, request, context)

        monkeypatch.setattr(servicer, name, heard)
    stream = servicer.StreamChannel

    def listened(self, messages, context):
        def each():
            for message in messages:
                requests.append(message)
                yield message

        return stream(self, each(), context)

    monkeypatch.setattr(servicer, "StreamChannel", listened)


@contextlib.contextmanager
def embedded():
    """Serve the embedded switch, in this process, without ports. Yields its address."""
    with tempfile.TemporaryDirectory() as folder:
        device = Device([], 510, lambda _: None)
        server, _ = bound(P4RuntimeService(device, Arbitration(0)), f"unix:{folder}/control")
        server.start()
        try:
            yield f"unix:{folder}/control"
        finally:
            server.stop(grace=None).wait()
            device.close()


@pytest.mark.parametrize("chip", CHIPS)
def test_a_tofino_is_sent_what_its_program_takes(chip: str, folder: Path):
    server = Chip()
    with serving(server) as address:
        options = ("--ports", "128,132", "--target", chip, "--artifact", str(folder))
        options += ("--device-id", "1")
        shown, _ = command(address, *options, "--dry-run")
        assert server.requests == []
        sent, _ = command(address, *options)
    assert shown == sent
    assert server.errors == []
    assert len(server.held) == 3
    whole = {"deterministic": True}
    assert server.info.SerializeToString(**whole) == tofino.p4info(chip).SerializeToString(**whole)
    packed = pipeline_pb2.BfPipelineConfig.FromString(server.config.p4_device_config)
    [profile] = packed.profiles
    assert packed.bfruntime_info == (folder / "bfrt.json").read_bytes()
    assert profile.context == (folder / "pipe/context.json").read_bytes()
    assert profile.binary == (folder / f"pipe/{chip}.bin").read_bytes()
    assert (profile.profile_name, [*profile.pipe_scope]) == ("pipe", [0, 1, 2, 3])
    assert any(f"binary, {len(profile.binary)} bytes, sha256" in line for line in sent)


def test_stratums_message_has_the_numbers_that_stratum_gives_its_fields(folder: Path):
    # stratum/hal/lib/barefoot/bf.proto: p4_name 1, bfruntime_info 2, profiles 3.
    config = find("tofino").program(64, str(folder)).device_config
    name = b"innet"
    info = (folder / "bfrt.json").read_bytes()
    assert config.startswith(
        b"\x0a" + bytes([len(name)]) + name + b"\x12" + varint(len(info)) + info
    )
    context = (folder / "pipe/context.json").read_bytes()
    binary = (folder / "pipe/tofino.bin").read_bytes()
    # Of a profile: profile_name 1, context 2, binary 3, pipe_scope 4, packed.
    profile = b"\x0a\x04pipe\x12" + varint(len(context)) + context
    profile += b"\x1a" + varint(len(binary)) + binary + b"\x22\x04\0\1\2\3"
    assert config.endswith(b"\x1a" + varint(len(profile)) + profile)


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def test_the_sdes_server_takes_parts_behind_their_lengths(folder: Path):
    target = find("tofino-sde")
    config = target.program(64, str(folder)).device_config
    binary = (folder / "pipe/tofino.bin").read_bytes()
    context = (folder / "pipe/context.json").read_bytes()
    parts = [b"innet", binary, context]
    assert config == b"".join(struct.pack("<i", len(part)) + part for part in parts)
    assert target.describe(config)[0] == "lengths and parts, p4_name innet"
    with pytest.raises(UsageError, match="each behind its length"):
        target.describe(config[:-1])


# -- wrong arguments ---------------------------------------------------------------------------


def dry(*options: str) -> tuple[str, ...]:
    return ("deploy", "10.0.0.1:9339", "--ports", "128", "--dry-run", "--device-id", "1", *options)


def test_what_a_tofino_lacks_is_said(folder: Path):
    refuse("name the folder with --artifact; .* docs/deploy-tofino.md", "innet",
           *dry("--target", "tofino"))  # fmt: skip
    (folder / "pipe/tofino.bin").unlink()
    (folder / "bfrt.json").unlink()
    chip = ("--target", "tofino", "--artifact", str(folder))
    refuse("has no bfrt.json and no pipe/tofino.bin: .* bfas", "innet", *dry(*chip))


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("bfrt.json", '{"tables": [{"name": "pipe.Other.t"}]}', "has another program"),
        ("bfrt.json", "[]", "not a JSON object"),
        ("bfrt.json", "{", "bfrt.json is not JSON"),
        ("pipe/context.json", "no", "context.json is not JSON"),
        ("pipe/tofino.bin", "", "tofino.bin is empty"),
    ],
)
def test_files_of_something_else_are_refused(file: str, content: str, why: str, folder: Path):
    (folder / file).write_text(content)
    with pytest.raises(UsageError, match=why):
        find("tofino").program(64, str(folder))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"ports": [192]}, "own numbers up to 511 but for 68, 192, 196, 324, 452, each once"),
        ({"ports": [512]}, "own numbers up to 511"),
        ({"lanes": 256}, "256 lanes are not possible: the program for tofino has 64"),
        ({"device_id": 0}, "counts devices from 1; use --device-id 1"),
        ({"target": "trident"}, "there are bmv2, tofino, tofino2, tofino-sde, tofino2-sde"),
        ({"artifact": "a\nb"}, "is not a folder's name"),
        ({"target": "bmv2"}, "leave out --artifact"),
    ],
)
def test_what_a_tofino_cannot_be_is_refused(fields: dict[str, Any], why: str, folder: Path):
    sane = {"name": "x", "grpc_address": "10.0.0.1:1", "ports": [128], "device_id": 1}
    request = pb.AddSwitchRequest(**{**sane, "target": "tofino", "artifact": str(folder), **fields})
    with pytest.raises(UsageError, match=why):
        deploy(request, None, lambda _: None, dry_run=True)


def test_a_controller_whose_chips_binary_is_gone_says_so(tmp_path: Path):
    store = Store(tmp_path / "state")
    store.add_switch(
        SwitchRecord("tor", "10.0.0.9:9339", 1, (128,), SERVICE, 64, (), "tofino", str(tmp_path))
    )
    store.close()
    state = ("--state", str(tmp_path / "state"))
    done = run("innet", "controller", "--address", "127.0.0.1:0", *state)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"error: the switch 'tor': {tmp_path} has no bfrt"
    )


def test_what_seals_and_what_does_not_are_not_in_one_tree(folder: Path):
    with serving(Chip()) as address, running_switch(2) as soft, started() as (_, controller):
        to = ("--controller", controller)
        chip = (address, "--target", "tofino", "--artifact", str(folder), "--device-id", "1")
        chip += ("--ports", "128,132")
        other = (soft.address, "--ports", "1-2")
        why = "one of them adds a check to its packets, and the other cannot"
        for above, below, link, said in (
            (chip, other, "top:2:128", "'leaf' is a bmv2 and its parent 'top' a tofino"),
            (other, chip, "top:128:2", "'leaf' is a tofino and its parent 'top' a bmv2"),
        ):
            added = run("innet", "switch", "add", "top", *above, *to)
            assert added.returncode == 0, added.stderr
            words = ("switch", "add", "leaf", *below, "--uplink", link, *to)
            refuse(f"{said}: {why}", "innet", *words)
            assert run("innet", "switch", "remove", "top", *to).returncode == 0


@pytest.mark.parametrize(("kind", "middle"), [("tofino", (128, 132)), ("tofino2", (8, 12))])
def test_a_job_with_a_quorum_has_no_tofino_1_between_other_switches(
    kind: str, middle: tuple[int, int], tmp_path: Path
):
    folder, (up, down) = make(tmp_path / "built", kind), middle
    with contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(serving(Chip())) for _ in range(3)]
        _, controller = stack.enter_context(started())
        to = ("--controller", controller)
        chip = ("--target", kind, "--artifact", str(folder), "--device-id", "1")
        chip += ("--ports", f"{up},{down}", *to)
        parent = ()
        for name, address in zip(("top", "middle", "leaf"), addresses, strict=True):
            added = run("innet", "switch", "add", name, address, *parent, *chip)
            assert "the switch was added" in added.stderr or not parent  # no cable for the probe
            parent = ("--uplink", f"{name}:{up}:{down}")
        job = ("innet", "job", "create", "train", "--workers", "4", *to, "--switch")
        if kind == "tofino":
            for asked in ("--quorum", "--min-workers"):
                refuse("Tofino 1 'middle' between other switches", *job, "top", asked, "3")
        made = run(*job, "middle" if kind == "tofino" else "top", "--quorum", "3")
        assert made.returncode == 0, made.stderr


def test_every_target_has_a_name_and_tables_of_its_program(folder: Path):
    for name, target in TARGETS.items():
        assert find(name) is target
        info = artifact(64).p4info if name == "bmv2" else target.program(64, str(folder)).p4info
        tables = {each.preamble.alias for each in info.tables if not each.is_const_table}
        assert {*target.tables} == tables
