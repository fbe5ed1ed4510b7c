"""The command ``innet-switch``: its wrong arguments, its needs and its end."""

import inspect
import os
import re
import resource
import signal
import socket
import subprocess

import grpc
import pytest
from commands import refuse
from p4runtime_client import Controller, refusal
from preforked import Process
from switch_commands import run
from switches import COMMAND, STOPS_WITHIN, free_udp_ports, receive, running_switch, udp_socket
from tiny_programs import FOLDER, program
from waiting import WITHIN, until

from innet.errors import UsageError
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.servers.rack.cli import rack_server
from innet.switch.cli import switch as switch_command
from innet.switch.ports import open_port
from innet.switch.serving import Endpoint, p4runtime_endpoint

NEEDS = ("--no-p4", "--grpc-server-addr", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (
            "eth0",
            "port 'eth0' is not NUMBER@INTERFACE, NUMBER@udp:IP:PORT/IP:PORT or NUMBER@shm:PATH",
        ),
        ("1@", "is not NUMBER@INTERFACE"),
        ("512@eth0", "with a number below 512"),
        ("²@eth0", "is not NUMBER@INTERFACE"),
        ("1@no-such-card", "cannot open port '1@no-such-card': no interface with this name"),
        ("1@udp:127.0.0.1:9001", "is not NUMBER@udp:IP:PORT/IP:PORT"),
        ("1@udp:somewhere:1/127.0.0.1:2", "is not NUMBER@udp:IP:PORT/IP:PORT"),
        ("1@udp:127.0.0.1:65536/127.0.0.1:2", "is not NUMBER@udp:IP:PORT/IP:PORT"),
        ("1@udp:192.0.2.1:1/127.0.0.1:2", "Cannot assign requested address"),
    ],
)
def test_a_port_that_cannot_be_is_refused_with_the_reason(port, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        open_port(port)


def test_a_port_number_is_given_once():
    cables = [f"{{number}}@udp:127.0.0.1:{port}/127.0.0.1:1" for port in free_udp_ports(2)]
    for numbers in ((1, 1), (1, 510), (511, 1)):
        options = [cable.format(number=n) for n, cable in zip(numbers, cables, strict=True)]
        code, said = run(*NEEDS, "-i", options[0], "-i", options[1])
        assert code == 2
        assert f"the number {max(numbers)} is in use" in said


def test_a_port_in_use_is_refused():
    with udp_socket() as taken:
        cable = f"1@udp:127.0.0.1:{taken.getsockname()[1]}/127.0.0.1:1"
        code, said = run(*NEEDS, "-i", cable)
    assert code == 2
    assert f"cannot open port '{cable}': Address already in use" in said


def test_a_p4runtime_address_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = run("--no-p4", "--grpc-server-addr", address)
    assert code == 2
    assert f"cannot serve P4Runtime at {address}: is the port in use," in said


def test_a_p4runtime_address_of_another_machine_is_refused():
    code, said = run("--no-p4", "--insecure", "--grpc-server-addr", "192.0.2.1:0")
    assert code == 2
    assert "is it an address of another machine?" in said


def endpoint(address: str, *, insecure: bool = False) -> Endpoint:
    return p4runtime_endpoint(
        address, None, None, None, tls=False, client_auth=False, insecure=insecure
    )


@pytest.mark.parametrize(
    "address", ["foo", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "[::1]:65536"]
)
def test_what_is_no_address_is_called_that(address):
    with pytest.raises(UsageError, match="is not HOST:PORT") as problem:
        endpoint(address, insecure=True)
    assert f"--grpc-server-addr {address!r}" in str(problem.value)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", ":0", "10.0.0.1:0", "example.com:0"])
def test_other_machines_are_not_served_in_plain_text_unless_told_to(address):
    why = "can be reached from other machines: serve P4Runtime over TLS with --grpc-server-ssl, or"
    with pytest.raises(UsageError, match=why):
        endpoint(address)
    assert endpoint(address, insecure=True) == Endpoint(address)


@pytest.mark.parametrize("command", ["innet-switch --no-p4", "innet pbox rack-server -i 1@lo"])
def test_the_commands_refuse_to_serve_other_machines_in_plain_text(command):
    why = r"0\.0\.0\.0:0 can be reached from other machines"
    refuse(why, *command.split(), "--grpc-server-addr", "0.0.0.0:0")


def test_other_machines_are_served_in_plain_text_if_told_to():
    with running_switch(0, "--insecure", "--grpc-server-addr", "0.0.0.0:0") as switch:
        port = switch.address.removeprefix("0.0.0.0:")
        with Controller(f"127.0.0.1:{port}", 1) as controller:
            controller.configure(program("hub"))


def test_a_switch_that_is_told_nothing_serves_this_machine_only():
    served = {
        inspect.signature(command).parameters["grpc_address"].default
        for command in (switch_command, rack_server)
    }
    assert served == {"127.0.0.1:9559"}


def test_a_switch_that_is_told_to_stop_again_and_again_stops_silently():
    with subprocess.Popen(
        [COMMAND, *NEEDS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("P4Runtime ")
        while process.poll() is None:
            process.terminate()
        said = process.stderr.read()
    assert "Traceback" not in said
    assert "Exception" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a program's JSON, or --no-p4"),
        (["--no-p4", "program.json"], "give a program's JSON, or --no-p4"),
        (["--no-p4", "--cpu-port", "0"], "--cpu-port 0: it has to be from 1 to 511"),
        (["--no-p4", "--cpu-port", "511"], "--cpu-port and --drop-port are both 511"),
        (["no/such.json"], "cannot read no/such.json: No such file or directory"),
        (["/"], "cannot read /: Is a directory"),
        ([str(FOLDER / "hub.p4")], "not a BMv2 JSON"),
        ([str(FOLDER / "digests.json")], "was it made by p4c-bm2-ss?"),
    ],
)
def test_other_wrong_input_is_refused(arguments, words):
    code, said = run("--grpc-server-addr", "127.0.0.1:0", *arguments)
    assert code == 2
    assert words in said


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """Hide all C compilers and all earlier compilations."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_c_compiler_the_command_says_what_to_install():
    code, said = run(str(FOLDER / "hub.json"), "--grpc-server-addr", "127.0.0.1:0")
    assert code == 1
    assert "no C compiler found: install gcc or clang, or set CC to yours" in said


@pytest.mark.usefixtures("no_compiler")
def test_without_a_c_compiler_p4runtime_says_so_and_the_switch_lives_on():
    with running_switch(0) as switch, Controller(switch.address, 1) as controller:
        for _ in range(2):
            code, message = refusal(controller.configure, program("hub"))
            assert code == grpc.StatusCode.INTERNAL
            assert "no C compiler found" in message


def test_a_c_compiler_that_fails_is_named(tmp_path, monkeypatch):
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\necho out of registers >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    code, said = run(str(FOLDER / "hub.json"), "--grpc-server-addr", "127.0.0.1:0")
    assert code == 1
    assert f"{compiler} failed on the generated program:\nout of registers" in said


def test_a_program_on_the_command_line_runs_without_a_controller(tmp_path):
    arguments = ("--keep-generated", str(tmp_path))
    with running_switch(1, *arguments, program=FOLDER / "tally.json") as switch:
        frame = bytes(12) + b"\x88\xb5\x01" + bytes(8) + b"\0\0\0\7"
        for total in (7, 14):
            switch.hosts[0].send(frame)
            assert receive(switch.hosts[0]) == frame[:-1] + bytes([total])
    assert "/* p4_TallyIngress_add_saturating */" in (tmp_path / "program.c").read_text()


def test_clients_can_connect_while_the_program_is_compiled(tmp_path, monkeypatch):
    """Scripts for BMv2 give a switch a few seconds until it listens."""
    gate, compiler, address = (tmp_path / name for name in ("gate", "slow-cc", "p4runtime"))
    os.mkfifo(gate)
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) ;; *) read -r _ < {gate} ;; esac\nexec cc "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path / "cache"))
    options = (str(FOLDER / "hub.json"), "--grpc-server-addr", f"unix:{address}")
    with (
        gate.open("r+b", buffering=0) as closed,
        Process("innet-switch", *options, stdout=subprocess.PIPE) as process,
    ):
        try:
            until(address.exists)
            with Controller(f"unix:{address}") as controller:
                request = p4rt.CapabilitiesRequest()
                answer = controller.stub.Capabilities.future(request, wait_for_ready=True)
                assert not answer.done()
                closed.write(b"\n" * 100)
                assert answer.result(WITHIN).p4runtime_api_version
        finally:
            process.kill()


def test_generated_c_that_cannot_be_kept_is_an_error(tmp_path):
    taken = tmp_path / "file"
    taken.touch()
    words = f"the generated C cannot be written to {taken}: File exists"
    options = ("--keep-generated", str(taken))
    code, said = run(str(FOLDER / "hub.json"), "--grpc-server-addr", "127.0.0.1:0", *options)
    assert (code, said.strip()) == (1, f"error: {words}")
    with running_switch(0, *options) as switch, Controller(switch.address, 1) as controller:
        assert refusal(controller.configure, program("hub")) == (grpc.StatusCode.INTERNAL, words)


def test_the_switch_may_open_as_many_files_as_the_system_allows():
    few = ["sh", "-c", 'ulimit -S -n 256; exec "$@"', "sh", COMMAND, *NEEDS]
    with subprocess.Popen(few, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("P4Runtime ")
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        process.terminate()
    assert soft == hard > 256


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_switch_and_all_that_is_its_own(number):
    with running_switch(1) as switch, Controller(switch.address, 1) as controller:
        controller.configure(program("hub"))
        _, port = switch.hosts[0].getpeername()
        switch.process.send_signal(number)
        assert switch.process.wait(STOPS_WITHIN) == 128 + number
        with pytest.raises(ProcessLookupError):
            os.killpg(switch.process.pid, 0)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(("127.0.0.1", port))
