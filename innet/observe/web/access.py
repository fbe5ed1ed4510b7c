"""The admission of browsers: by an administrator's certificate, or by a token."""

import hmac
import time
from typing import Any

import structlog
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from innet.rpc import tls

_COOKIE = "innet_token"
_REFUSAL_EVERY = 10.0
_FORM = """<!doctype html>
<title>innet</title>
<form method="post" action="/">
<label>Token: <input type="password" name="token" autocomplete="off" autofocus></label>
<button>Show the page</button>
</form>
"""
_log = structlog.get_logger("innet.web")


class AdministratorsOnly(H11Protocol):
    """The protocol of a connection that must show an administrator's certificate.

    OpenSSL has verified the certificate. Switches and the controller have certificates of the same
    authority, but other roles.
    """

    def connection_made(self, transport: Any) -> None:
        """Close the connection unless the certificate names the role."""
        shown = transport.get_extra_info("peercert") or {}
        uris = [name.encode() for kind, name in shown.get("subjectAltName", ()) if kind == "URI"]
        if tls.ADMIN in tls.roles({"peer_uri": uris}):
            super().connection_made(transport)
        else:
            transport.abort()


class TokenRequired:
    """The check of a token in front of an application. A form asks for it, and a cookie keeps it."""

    def __init__(self, app: ASGIApp, token: str, *, secure: bool) -> None:
        self._app, self._token, self._secure = app, token, secure
        self._logged_at = -_REFUSAL_EVERY

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
        async with request.form(max_files=0, max_fields=1) as form:
            token = str(form.get("token", ""))
        if not self._known(token):
            self._note(request)
            return HTMLResponse(_FORM, 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(_COOKIE, token, httponly=True, samesite="strict", secure=self._secure)
        return answer

    def _known(self, token: str | None) -> bool:
        return hmac.compare_digest((token or "").encode(), self._token.encode())

    def _note(self, request: Request) -> None:
        """Log a wrong token, at most once in ten seconds."""
        now = time.monotonic()
        if now - self._logged_at >= _REFUSAL_EVERY:
            self._logged_at = now
            peer = request.client.host if request.client else ""
            _log.warning("refused", peer=peer, why="the token for the page is wrong")
