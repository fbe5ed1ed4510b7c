"""Who may read the web page, and how its process and the controller's live together."""

import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from commands import refuse, run, serving
from waiting import WITHIN, until

from innet.local.processes import announced
from innet.rpc import tls

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
) -> http.client.HTTPResponse:
    """Return the page's answer to a request."""
    where = urlsplit(url)
    kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
    connection = kind(where.netloc, timeout=WITHIN, **({"context": context} if context else {}))
    if body:
        headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    with contextlib.closing(connection):
        connection.request(method, "/", body or None, headers)
        answer = connection.getresponse()
        answer.read()
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
    empty.touch()
    options = ["--web", "127.0.0.1:0", "--web-token-file", str(empty)]
    refuse("holds no token", "innet", "controller", *options)


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


def test_with_certificates_only_an_administrator_reads_the_page(folder: Path):
    with page("--tls", str(folder)) as (controller, url):
        assert ask(url, context=browser_of(folder, tls.ADMIN)).status == 200
        for role in ("", tls.WORKER, tls.SWITCH, tls.CONTROLLER):
            with pytest.raises((OSError, http.client.HTTPException)):
                ask(url, context=browser_of(folder, role))
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), WITHIN) as waiting:
            os.killpg(controller.pid, signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):
                assert not waiting.recv(1)  # the page's process ends with the controller's


def test_a_browser_without_the_token_gets_only_a_form(folder: Path, tmp_path: Path):
    file, context = tmp_path / "token", browser_of(folder, "")
    with page("--tls", str(folder), "--web-token-file", str(file)) as (controller, url):
        token = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert ask(url, context=context).status == 401
        assert ask(url, context=context, **UPGRADE).status == 403
        assert ask(url, context=context, Cookie="innet_token=wrong").status == 401
        assert ask(url, "POST", urlencode({"token": "wrong"}), context).status == 401
        until(lambda: "the token for the page is wrong" in controller.stderr.readline())
        admitted = ask(url, "POST", urlencode({"token": token}), context)
        cookie = admitted.headers["Set-Cookie"]
        assert admitted.status == 303
        assert {"HttpOnly", "SameSite=strict", "Secure"} <= set(cookie.split("; "))
        assert ask(url, context=context, Cookie=cookie.partition(";")[0]).status == 200
