"""The admission of browsers: by a certificate, or by a token.

The roles of certificates mean the same as at the controller. Administrators and observers see
everything, and users see their own jobs.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any

import h11
import structlog
from starlette.formparsers import MultiPartException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from innet.errors import NotAuthorized
from innet.rpc import tls
from innet.rpc.revocation import Revocations
from innet.rpc.roles import confined_to
from innet.telemetry.sparse import SparseWarnings

_COOKIE = "innet_token"
_SHOWN = "shown_certificate"
_METHOD = "ListJobs"
_LOOK_EVERY = 1.0
_SPEAKS_WITHIN = 10.0
_POLICY_VIOLATION = 1008  # RFC 6455, section 7.4.1
_GONE: Message = {"type": "websocket.disconnect", "code": _POLICY_VIOLATION}
_FORM = """<!doctype html>
<title>innet</title>
<form method="post" action="/">
<label>Token: <input type="password" name="token" autocomplete="off" autofocus></label>
<button>Show the page</button>
</form>
"""
_log = structlog.get_logger("innet.web")


class SpokenProtocol(H11Protocol):
    """The protocol of a connection, which ends if the client takes too long for a request."""

    _awaited: asyncio.TimerHandle

    def connection_made(self, transport: Any) -> None:
        """Give the client some seconds for its first request."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Take what the client says. Bytes that are no whole request give it no more time."""
        super().data_received(data)
        if not self._awaits_request:
            self._awaited.cancel()

    def on_response_complete(self) -> None:
        """Give the client some seconds for its next request."""
        super().on_response_complete()
        if self._awaits_request:
            self._awaited.cancel()
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._awaited.cancel()
        super().connection_lost(exc)

    @property
    def _awaits_request(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _await_request(self) -> None:
        self._awaited = self.loop.call_later(_SPEAKS_WITHIN, self.transport.abort)


class CertificateProtocol(SpokenProtocol):
    """The protocol of a connection over mutual TLS. The application learns the client's certificate."""

    def connection_made(self, transport: Any) -> None:
        """Put the client's certificate, which OpenSSL has verified, into the state of every request."""
        super().connection_made(transport)
        shown = tls.shown_to(transport.get_extra_info("ssl_object"))
        self.app_state = {**self.app_state, _SHOWN: shown}


def jobs_of(state: Mapping[str, Any]) -> str | None:
    """Return the owner whose jobs alone a request may see, or None for all jobs.

    `state` is the state of the request. A page that asks for no certificate shows everything. Raises
    NotAuthorized.
    """
    return confined_to(state[_SHOWN], _METHOD) if _SHOWN in state else None


class CertificateRequired:
    """A wrapper of an application that checks the role of a certificate, and that it is not revoked.

    A request is checked when it comes, and an open websocket once a second.
    """

    def __init__(self, app: ASGIApp, revocations: Revocations) -> None:
        self._app, self._revocations, self._refusals = app, revocations, SparseWarnings(_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request whose certificate may read the page."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif why := self._refusal(scope["state"]):
            _note(self._refusals, HTTPConnection(scope), why)
            await _refuse(scope, receive, send, why)
        elif scope["type"] == "websocket":
            watched = _WatchedSocket(receive, send, lambda: bool(self._refusal(scope["state"])))
            await self._app(scope, watched.receive, watched.send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, state: Mapping[str, Any]) -> str:
        """Return the reason why a certificate may not read the page, or ""."""
        roles = tls.roles(state[_SHOWN])
        try:
            self._revocations.check(state[_SHOWN])
            if not set(roles).intersection(tls.OPERATORS):
                raise NotAuthorized(
                    "the page needs the certificate of an administrator, a user or an observer, and "
                    f"the one shown is for: {', '.join(roles) or 'no role'}"
                )
            jobs_of(state)
        except NotAuthorized as problem:
            return str(problem)
        return ""


class SameOrigin:
    """A wrapper of an application that refuses requests that pages of other sites make.

    A browser names the page that makes a websocket, or a request to another site, in the header Origin.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._refusals = app, SparseWarnings(_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that has no origin, or that of this page."""
        if scope["type"] != "lifespan" and self._foreign(HTTPConnection(scope)):
            why = "the request comes from a page of another site"
            _note(self._refusals, HTTPConnection(scope), why)
            await _refuse(scope, receive, send, why)
        else:
            await self._app(scope, receive, send)

    @staticmethod
    def _foreign(request: HTTPConnection) -> bool:
        # Without TLS, a proxy in front of the page may add it.
        schemes = ["https"] if request.url.scheme in ("https", "wss") else ["http", "https"]
        own = [f"{scheme}://{request.headers.get('host', '')}".lower() for scheme in schemes]
        return any(each.lower() not in own for each in request.headers.getlist("origin"))


class _WatchedSocket:
    """A websocket that closes soon after its certificate has been `revoked`."""

    def __init__(self, receive: Receive, send: Send, revoked: Callable[[], bool]) -> None:
        self._receive, self._send, self._revoked = receive, send, revoked
        self._next: asyncio.Task[Message] | None = None
        self._closed = False

    async def receive(self) -> Message:
        """Return the next message. After the close, tell the application that the client has gone."""
        while not self._closed:
            # A cancelled call leaves the message to the next one.
            self._next = self._next or asyncio.ensure_future(self._receive())
            if (await asyncio.wait([self._next], timeout=_LOOK_EVERY))[0]:
                message, self._next = self._next.result(), None
                return message
            await self._close_if_revoked()
        return _GONE

    async def send(self, message: Message) -> None:
        """Pass a message on, unless the certificate has been revoked."""
        await self._close_if_revoked()
        if not self._closed:
            await self._send(message)

    async def _close_if_revoked(self) -> None:
        if not self._closed and self._revoked():
            self._closed = True
            await self._send({"type": "websocket.close", "code": _POLICY_VIOLATION})


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
    else:
        await PlainTextResponse(f"{why}\n", 403)(scope, receive, send)


class TokenRequired:
    """A wrapper of an application that checks a token. A form asks for it, and a cookie keeps it."""

    def __init__(self, app: ASGIApp, token: str, *, secure: bool) -> None:
        self._app, self._token, self._secure = app, token, secure
        self._refusals = SparseWarnings(_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that has the token."""
        if scope["type"] == "lifespan" or self._known(HTTPConnection(scope).cookies.get(_COOKIE)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> HTMLResponse | RedirectResponse:
        if request.method != "POST":
            return HTMLResponse(_FORM, 401)
        token = ""
        with contextlib.suppress(MultiPartException):  # it is no form of this page
            async with request.form(max_files=0, max_fields=1) as form:
                token = str(form.get("token", ""))
        if not self._known(token):
            _note(self._refusals, request, "the token for the page is wrong")
            return HTMLResponse(_FORM, 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(_COOKIE, token, httponly=True, samesite="strict", secure=self._secure)
        return answer

    def _known(self, token: str | None) -> bool:
        return hmac.compare_digest((token or "").encode(), self._token.encode())


def _note(refusals: SparseWarnings, request: HTTPConnection, why: str) -> None:
    """Log a refusal, with the name in the certificate if there is one."""
    peer = request.client.host if request.client else ""
    who = tls.name(request.scope.get("state", {}).get(_SHOWN, {}))
    refusals.warn("refused", peer=peer, why=why, **({"who": who} if who else {}))
