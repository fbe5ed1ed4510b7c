"""The process of the page. Its standard input is the controller's log, and it ends with this input."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

os.environ.setdefault("MATPLOTLIB", "false")  # NiceGUI would import it, which takes a second

import uvicorn
from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import core, ui
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp

from innet.machine.descriptors import is_reserved
from innet.machine.private import read_secret
from innet.observe.web.access import (
    CertificateProtocol,
    CertificateRequired,
    SameOrigin,
    SpokenProtocol,
    TokenRequired,
    jobs_of,
)
from innet.observe.web.page import Page
from innet.observe.web.reader_errors import keep_out_of_log
from innet.observe.web.source import Source
from innet.rpc import tls
from innet.rpc.revocation import Revocations
from innet.telemetry import logs
from innet.telemetry.feed import entries
from innet.terminal.options import LogFormat

_log = structlog.get_logger("innet.web")
_LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]", "::1"]


def serve(
    socket_number: Annotated[int, typer.Option("--socket")],
    controller: Annotated[str, typer.Option()],
    address: Annotated[str, typer.Option()],
    tls_folder: Annotated[Path | None, typer.Option("--tls")] = None,
    token_file: Annotated[Path | None, typer.Option()] = None,
    log_format: Annotated[LogFormat, typer.Option()] = LogFormat.TEXT,
) -> None:
    """Serve the page at a socket that listens already."""
    logs.configure(log_format=log_format)
    app = _page_app(controller, tls_folder)
    token = read_secret(token_file, roots_group=True).decode().strip() if token_file else ""
    config = uvicorn.Config(
        _guarded(app, address, token, tls_folder),
        ws="wsproto",
        http=CertificateProtocol if tls_folder and not token else SpokenProtocol,
        log_config=None,  # its lines become entries of our log
        timeout_graceful_shutdown=1,
    )
    config.load()
    if tls_folder:  # uvicorn's own context would take one authority, and keep its certificate
        config.ssl = tls.load(tls_folder, tls.CONTROLLER).server_context(ask=not token)
    uvicorn.Server(config).run([_Listener(fileno=socket_number)])


class _Listener(socket.socket):
    """A listening socket whose connections leave file descriptors for other files."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError if there is none, or no room for it."""
        connection, address = super().accept()
        if is_reserved(connection):
            connection.close()
            raise BlockingIOError
        return connection, address


def _page_app(controller: str, tls_folder: Path | None) -> FastAPI:
    """Return the application, which shows the same source to all browsers."""
    source = Source(controller, tls_folder)
    pages: dict[str, Page] = {}

    @ui.page("/", title=f"innet {controller}", dark=None)
    def page(request: Request) -> None:
        client = ui.context.client
        shown = Page(source, controller, jobs_of(request.scope.get("state", {})))
        shown.update()
        pages[client.id] = shown
        client.on_delete(lambda: pages.pop(client.id, None))
        source.wake()

    async def start() -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_read_log, args=(source, loop), daemon=True).start()
        await source.run(lambda: bool(pages), lambda: _update(pages.values()))

    core.sio.handlers["/"].pop("log", None)  # readers write nothing into our log
    keep_out_of_log()
    nicegui_app.on_startup(start)
    app = FastAPI(openapi_url=None)
    ui.run_with(app, show_welcome_message=False, favicon="🔀")
    return app


def _update(pages: Iterable[Page]) -> None:
    """Show what is new on each page."""
    for each in pages:
        try:
            each.update()
        except Exception:  # noqa: BLE001 - whatever it is
            # One browser must not cost all others their page.
            _log.exception("a page cannot be updated")


def _read_log(source: Source, loop: asyncio.AbstractEventLoop) -> None:
    """Give the controller's log to the source. The log ends when the controller has ended."""
    for entry in entries(sys.stdin.buffer):  # which is UTF-8, whatever the locale is
        loop.call_soon_threadsafe(source.take, entry)
    os._exit(0)  # there is nothing to clean up or to save


def _guarded(app: ASGIApp, address: str, token: str, tls_folder: Path | None) -> ASGIApp:
    """Return the application behind the checks of the origin, and of a token or of certificates.

    A page that asks for nothing answers only to names of this machine. This prevents DNS rebinding, in
    which a foreign page reads this one through a name of its own that resolves to this machine.
    """
    if token:
        return SameOrigin(TokenRequired(app, token, secure=bool(tls_folder)))
    if tls_folder:
        return SameOrigin(CertificateRequired(app, Revocations(tls_folder / tls.REVOKED)))
    app = SameOrigin(app)
    return TrustedHostMiddleware(app, allowed_hosts=[*_LOOPBACK_NAMES, address.rpartition(":")[0]])


if __name__ == "__main__":
    typer.run(serve)
