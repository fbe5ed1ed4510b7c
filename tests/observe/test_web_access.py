"""Who may read the web page, and how its process and the controller's live together."""

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import websocket
from commands import refuse, run, serving
from secured import add_switch, secured_rack
from waiting import WITHIN, until

from innet.local.processes import announced
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.rpc.issued import revoke

UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}  # fmt: skip


@contextlib.contextmanager
def page(*options: str) -> Iterator[tuple[Any, str]]:
    """Run a controller with a page. Yield its process, and the page's URL."""
    with serving("--web", "127.0.0.1:0", *options) as (process, _):
        yield process, announced(process, "Page")


def ask(
    url: str,
    method: str = "GET",
    body: str = "",
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> Any:
    """Return the page's answer to a request, with its `text`."""
    where = urlsplit(url)
    kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
    connection = kind(where.netloc, timeout=WITHIN, **({"context": context} if context else {}))
    if body:
        headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    with contextlib.closing(connection):
        connection.request(method, "/", body or None, headers)
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        return answer


@pytest.mark.parametrize("more", [[], ["--insecure"]])
def test_a_page_for_other_machines_needs_certificates_or_a_token(more: list[str]):
    refuse("--web-token-file", "innet", "controller", "--web", "0.0.0.0:0", *more)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:65536", "unix:/tmp/page"])
def test_an_address_that_cannot_be_served_is_refused(address: str):
    refuse("HOST:PORT", "innet", "controller", "--web", address)


def test_an_address_that_is_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        done = run("innet", "controller", "--address", "127.0.0.1:0", "--web", taken)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match("error: cannot serve the page .* in use", done.stderr.splitlines()[-1])


def test_a_file_without_a_token_is_refused(tmp_path: Path):
    empty = tmp_path / "token"
    empty.touch(0o600)
    options = ["--web", "127.0.0.1:0", "--web-token-file", str(empty)]
    refuse("holds no token", "innet", "controller", *options)


def test_a_token_that_others_can_read_is_refused(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("the token\n")
    file.chmod(0o644)
    options = ["--web", "127.0.0.1:0", "--web-token-file", str(file)]
    refuse("is a secret and can be used by other users", "innet", "controller", *options)


@pytest.mark.parametrize(
    "begun",
    [
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HTTP/1.1\r\nX: ",
    ],
    ids=["headers", "body", "second"],
)
def test_a_request_that_never_ends_keeps_no_connection(begun: str):
    with page() as (_, url):
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), WITHIN) as sock:
            sock.sendall(begun.encode())
            sock.settimeout(0.5)

            def ended() -> bool:
                try:
                    sock.sendall(b"a")
                    return not sock.recv(1 << 16)
                except TimeoutError:
                    return False
                except ConnectionError:
                    return True

            until(ended)
        assert ask(url).status == 200


@pytest.mark.parametrize("origin", ["https://attacker.example", "null", "http://127.0.0.1:1"])
def test_pages_of_other_sites_reach_nothing(origin: str):
    with page() as (_, url):
        own = url.rstrip("/")
        assert ask(url, Origin=own).status == 200
        assert ask(url, Origin=origin).status == 403
        assert ask(url, "POST", "token=x", Origin=origin).status == 403
        where = f"ws://{urlsplit(url).netloc}/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
            websocket.create_connection(where, WITHIN, origin=origin)
        opened = websocket.create_connection(where, WITHIN, origin=own)
        assert opened.recv().startswith("0{")
        opened.close()


def test_a_reader_writes_nothing_into_the_log():
    forged = "2026-11-28T14:20:00.000000Z [info     ] DeleteJob                      name=train"
    with page() as (controller, url):
        [client, *_] = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", ask(url).text)
        path = f"_nicegui_ws/socket.io/?EIO=4&transport=websocket&client_id={client}"
        opened = websocket.create_connection(f"ws://{urlsplit(url).netloc}/{path}", WITHIN)
        assert opened.recv().startswith("0{")
        opened.send("40")
        assert opened.recv().startswith("40")
        said = {"client_id": client, "level": "error", "message": f"\n{forged}\n\x1b]0;owned\x07"}
        opened.send("42" + json.dumps(["log", said]))
        opened.send("42" + json.dumps(["log", {"client_id": 7}]))
        opened.send("42" + json.dumps(["handshake", said]))  # a part of it is missing
        opened.send("42" + json.dumps([["owned"], said]))
        opened.send(f"42{forged}")
        opened.send("owned")
        opened.close()
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), WITHIN) as plain:
            plain.sendall(f"owned\n{forged}\r\n\r\n".encode())
            assert plain.recv(100).startswith(b"HTTP/1.1 400")
        assert ask(url).status == 200
        controller.terminate()
        log = ""
        while "the controller stops" not in log:
            log += controller.stderr.readline()
    assert "DeleteJob" not in log
    assert "owned" not in log
    assert "Traceback" not in log
    assert log.count("what a reader of the page has sent is not understood") == 1


def test_on_this_machine_the_page_asks_for_nothing_but_answers_to_names_of_this_machine():
    with page() as (controller, url):
        assert ask(url).status == 200
        assert ask(url, Host="localhost").status == 200
        assert ask(url, Host="attacker.example").status == 400
        [child] = Path(f"/proc/{controller.pid}/task/{controller.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        until(lambda: "the web page has ended" in controller.stderr.readline())
        controller.terminate()  # it has survived its page
        assert controller.wait(WITHIN) == 128 + signal.SIGTERM


def browser_of(folder: Path, role: str) -> ssl.SSLContext:
    """Return the TLS of a browser that shows a role's certificate."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if role:
        context.load_cert_chain(tls.certificate_path(folder, role), tls.key_path(folder, role))
    return context


def test_with_certificates_only_operators_read_the_page(folder: Path):
    with page("--tls", str(folder)) as (controller, url):
        assert ask(url, context=browser_of(folder, tls.ADMIN)).status == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(url, context=browser_of(folder, ""))
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(url, context=browser_of(folder, tls.SWITCH))  # which is no client's
        for role in (tls.WORKER, tls.CONTROLLER):
            assert ask(url, context=browser_of(folder, role)).status == 403
            assert ask(url, context=browser_of(folder, role), **UPGRADE).status == 403
        until(lambda: "needs the certificate of an administrator" in controller.stderr.readline())
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), WITHIN) as waiting:
            os.killpg(controller.pid, signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):
                assert not waiting.recv(1)  # the page's process ends with the controller's


@dataclass(frozen=True)
class People:
    """A controller of people with certificates of their own, and its page."""

    folder: Path
    url: str

    def browser(self, name: str) -> ssl.SSLContext:
        """Return the TLS of somebody's browser."""
        [certificate] = [
            path
            for role in tls.OPERATORS
            if (path := tls.certificate_path(self.folder / name, role)).exists()
        ]
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.load_cert_chain(certificate, tls.key_path(certificate.parent, certificate.stem))
        return context

    def shown(self, name: str) -> str:
        """Return the page that somebody gets. The controller is read as long as a page is open."""
        return str(ask(self.url, context=self.browser(name)).text)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """Run a controller where alice and bob have a job each."""
    with (
        secured_rack(tmp_path_factory.mktemp("people") / "tls") as rack,
        contextlib.ExitStack() as stack,
    ):
        options = ["--tls", str(rack.folder), "--web", "127.0.0.1:0"]
        process, address = stack.enter_context(serving(*options))
        rack.server = SimpleNamespace(port=address.rpartition(":")[2])
        add_switch(rack)
        rack.create("alice", "train-of-alice")
        rack.create("bob", "train-of-bob")
        yield People(rack.folder, announced(process, "Page"))


@pytest.mark.parametrize(
    ("who", "sees", "misses"),
    [
        ("root", ["train-of-alice", "train-of-bob", "CreateJob"], ["left out"]),
        ("olivia", ["train-of-alice", "train-of-bob", "CreateJob"], ["left out"]),
        ("alice", ["train-of-alice", "switch tor", "1 job of another user is left out"],
         ["train-of-bob", "CreateJob", ">Log<"]),
    ],
)  # fmt: skip
def test_a_role_sees_on_the_page_what_it_may_see(people, who, sees, misses):
    until(lambda: sees[0] in people.shown(who))
    page = people.shown(who)
    assert [each for each in sees if each not in page] == []
    assert [each for each in misses if each in page] == []


def test_a_revoked_certificate_is_refused_at_once_and_its_open_page_soon(people: People):
    issue(people.folder, "mallory", [tls.USER])
    context, where = people.browser("mallory"), urlsplit(people.url)
    keeps = http.client.HTTPSConnection(where.netloc, timeout=WITHIN, context=context)
    with (
        contextlib.closing(keeps),
        opened_socket(people.url, context) as opened,
        opened_socket(people.url, people.browser("root")) as other,
    ):
        assert opened.recv().startswith("0{")  # Engine.IO's first packet
        keeps.request("GET", "/")
        answer = keeps.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
        # At once: the server closes a connection that is idle for 5 s.
        revoke(people.folder, "mallory")
        keeps.request("GET", "/")
        answer = keeps.getresponse()
        assert answer.status == 403
        assert b"this certificate has been revoked" in answer.read()
        assert ask(people.url, context=context).status == 403
        refused = pytest.raises(websocket.WebSocketBadStatusException, match="403")
        with refused, opened_socket(people.url, context):
            pass
        assert opened.code_at_the_end() == 1008
        assert other.recv().startswith("0{")
        other.send("40")
        assert other.recv().startswith("4")  # the others' pages go on
    assert ask(people.url, context=people.browser("root")).status == 200


def test_a_renewed_certificate_is_shown_to_the_next_browser(people: People):
    where, context = urlsplit(people.url), people.browser("root")

    def shown() -> bytes | None:
        with (
            socket.create_connection((where.hostname, where.port), WITHIN) as sock,
            context.wrap_socket(sock, server_hostname=where.hostname) as secured,
        ):
            return secured.getpeercert(binary_form=True)

    before = shown()
    make(people.folder, [])
    pem = tls.certificate_path(people.folder, tls.CONTROLLER).read_text()
    assert before != shown() == ssl.PEM_cert_to_DER_cert(pem)
    assert ask(people.url, context=context).status == 200


class Answering:
    """A websocket whose thread answers Engine.IO's pings: the server waits 2 s for each answer."""

    def __init__(self, opened: websocket.WebSocket) -> None:
        self._opened = opened
        self._said: queue.SimpleQueue[str | int] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def recv(self) -> str | int:
        """Return the next message that is no ping, or the code with which the server closes."""
        return self._said.get(timeout=WITHIN)

    def send(self, message: str) -> None:
        self._opened.send(message)

    def code_at_the_end(self) -> int:
        """Return the code with which the server closes the websocket."""
        while isinstance(said := self.recv(), str):
            pass
        return said

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the server was first
            self._opened.abort()
        self._reader.join(WITHIN)

    def _read(self) -> None:
        with contextlib.suppress(OSError, websocket.WebSocketException):
            while True:
                opcode, content = self._opened.recv_data(control_frame=True)
                if opcode == websocket.ABNF.OPCODE_CLOSE:
                    self._said.put(int.from_bytes(content[:2], "big"))
                    return
                if content == b"2":
                    self._opened.send("3")
                elif opcode == websocket.ABNF.OPCODE_TEXT:
                    self._said.put(content.decode())


@contextlib.contextmanager
def opened_socket(url: str, context: ssl.SSLContext) -> Iterator[Answering]:
    """Open the websocket over which the page gets its news."""
    opened = websocket.WebSocket(sslopt={"context": context})
    opened.settimeout(WITHIN)
    path = "_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    try:
        opened.connect(f"wss://{urlsplit(url).netloc}/{path}")
        with contextlib.closing(Answering(opened)) as answering:
            yield answering
    finally:
        opened.shutdown()


def test_a_browser_without_the_token_gets_only_a_form(folder: Path, tmp_path: Path):
    file, context = tmp_path / "token", browser_of(folder, "")
    with page("--tls", str(folder), "--web-token-file", str(file)) as (controller, url):
        token = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert ask(url, context=context).status == 401
        assert ask(url, context=context, **UPGRADE).status == 403
        assert ask(url, context=context, Cookie="innet_token=wrong").status == 401
        assert ask(url, "POST", urlencode({"token": "wrong"}), context).status == 401
        several = urlencode({"token": "wrong", "other": "field"})
        assert ask(url, "POST", several, context).status == 401
        until(lambda: "the token for the page is wrong" in controller.stderr.readline())
        admitted = ask(url, "POST", urlencode({"token": token}), context)
        cookie = admitted.headers["Set-Cookie"]
        assert admitted.status == 303
        assert {"HttpOnly", "SameSite=strict", "Secure"} <= set(cookie.split("; "))
        assert ask(url, context=context, Cookie=cookie.partition(";")[0]).status == 200
