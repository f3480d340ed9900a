"""Who may talk to the viewer: holders of the token, from the viewer's own page.

The token is the first part of every path, so that relative addresses carry it and no cookie does. The Host
header must name this machine (a name that somebody else points here is refused: DNS rebinding), and a
WebSocket must come from a page of the very same host and port.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::", "")


class Guard:
    """Lets only those requests through that may pass; strips the token off their path.

    ``host`` is the address the server listens on.
    """

    def __init__(self, app: App, *, token: str, host: str) -> None:
        self._app = app
        self._token = token.encode()
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        refusal = self._refusal(scope, host, headers.get(b"origin"))
        if refusal:
            await _refuse(scope, send, *refusal)
            return
        token, _, rest = scope["path"].removeprefix("/").partition("/")
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        if scope["type"] == "websocket":
            await self._app(inner, receive, send)
            return
        if not rest and not scope["path"].endswith("/"):
            await _refuse(scope, send, 307, b"", [(b"location", f"/{token}/".encode())])
            return
        await self._app(inner, receive, _with_headers(send, host))

    def _refusal(self, scope: Scope, host: str, origin: str | None) -> tuple[int, bytes] | None:
        if not self._is_ours(host):
            return 421, b"This address is not one of the viewer.\n"
        token = scope["path"].removeprefix("/").partition("/")[0].encode()
        if not hmac.compare_digest(token, self._token):
            return (
                403,
                b"The address lacks the token. Open the one that 'lamarckian view' printed.\n",
            )
        own = {f"http://{host}", f"https://{host}"}
        if origin is not None and origin not in own:
            return 403, b"Requests from other pages are refused.\n"
        if origin is None and scope["type"] == "websocket":
            return 403, b"A WebSocket must come from the viewer's page.\n"
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in _LOOPBACK or (name and name == self._host):
            return True
        if self._host not in _EVERYWHERE:
            return False
        # A server that listens everywhere is reached by its numbers; names could be anybody's.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _with_headers(send: Send, host: str) -> Send:
    extra = [
        (b"content-security-policy", POLICY.format(host=host).encode("latin-1")),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    ]

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *extra]
        await send(message)

    return sending


async def _refuse(
    scope: Scope,
    send: Send,
    status: int,
    text: bytes,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": text.decode().strip()})
        return
    kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": kind + (headers or [])})
    await send({"type": "http.response.body", "body": text})
