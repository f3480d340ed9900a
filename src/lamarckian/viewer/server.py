"""The live viewer: a page on this machine, fed over one WebSocket from the journals of runs.

What the page may ask for over the WebSocket, as JSON objects:

================================================  ====================================================
``{"do": "look", "run": key, "page": name}``       show this page of this run from now on
``{"do": "control", "run": key, "action": ...,``   pause, continue, stop or note (``runs/control.py``)
``"text": ...}``
================================================  ====================================================

It is told ``runs`` (the list), ``page`` (what it looks at) and ``said`` (the answer to a request). A page is
sent anew when its run has changed, at most once a second and never for more than a tenth of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from lamarckian.errors import LamarckianError, RunError
from lamarckian.runs import control
from lamarckian.viewer.access import App, Guard
from lamarckian.viewer.following import Following
from lamarckian.viewer.hub import Hub
from lamarckian.viewer.live import overview

PAUSE_SECONDS = 1.0
"""The shortest time between two pictures of the same page."""
MAX_MESSAGE = 1 << 16
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES: dict[str, Callable[[Following], Mapping[str, Any]]] = {"overview": overview}


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the page."""

    do: str
    run: str = ""
    page: str = "overview"
    action: str = ""
    text: str = ""


def make_app(places: Sequence[Path], *, token: str, host: str = "127.0.0.1") -> App:
    """Return the ASGI application that shows the runs at ``places`` to holders of ``token``."""
    hub = Hub(places)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(hub.follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def live(socket: WebSocket) -> None:
        await Visitor(hub, socket).serve()

    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/assets/{name}", _asset),
            WebSocketRoute("/live", live),
        ],
        lifespan=lifespan,
    )
    return Guard(app, token=token, host=host)


def static_file(folder: str, name: str) -> bytes | None:
    """Return a built file of the page, or None if there is none of that name."""
    place = resources.files("lamarckian.viewer") / "static" / folder
    # Only what stands in the folder itself: a name is looked up in its listing and never joined.
    found = {each.name: each for each in place.iterdir() if each.is_file()}
    return found[name].read_bytes() if name in found else None


async def _page(request: Request) -> Response:
    return _file(".", "index.html")


async def _asset(request: Request) -> Response:
    return _file("assets", request.path_params["name"])


def _file(folder: str, name: str) -> Response:
    content = static_file(folder, name)
    kind = _KINDS.get(Path(name).suffix)
    if content is None or kind is None:
        return Response("There is no such file.\n", 404, media_type="text/plain")
    return Response(content, media_type=kind)


class Visitor:
    """One open page: what it looks at, and what it was shown."""

    def __init__(self, hub: Hub, socket: WebSocket) -> None:
        self.hub = hub
        self.socket = socket
        self.wish = Wish(do="look")
        self.shown: tuple[Wish, int] | None = None
        self.listed = -1
        self.next_page = 0.0
        self.woken = asyncio.Event()
        self.sending = asyncio.Lock()

    async def serve(self) -> None:
        """Talk until the page goes away."""
        await self.socket.accept()
        showing = asyncio.create_task(self._show())
        try:
            while True:
                text = await self.socket.receive_text()
                await self._hear(text)
        except WebSocketDisconnect:
            pass
        finally:
            self.hub.watched.pop(self, None)
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await showing

    async def _hear(self, text: str) -> None:
        try:
            if len(text) > MAX_MESSAGE:
                raise RunError("the message is too long")
            wish = msgspec.json.decode(text, type=Wish)
            if wish.do == "look":
                self._look(wish)
            elif wish.do == "control":
                await self._control(wish)
            else:
                raise RunError(f"unknown request {wish.do!r}")
        except (LamarckianError, msgspec.DecodeError) as error:
            await self._send({"type": "said", "ok": False, "text": str(error)})

    def _look(self, wish: Wish) -> None:
        if wish.page not in PAGES:
            raise RunError(f"there is no page {wish.page!r}")
        self.wish = wish
        self.next_page = 0.0
        self.hub.watched[self] = wish.run
        self.woken.set()

    async def _control(self, wish: Wish) -> None:
        following = self._run(wish.run)
        try:
            request = msgspec.convert({"action": wish.action, "text": wish.text}, control.Request)
        except msgspec.ValidationError as error:
            raise RunError(str(error)) from None
        heard = await self.hub.ask(lambda: control.send(following.run.path, request))
        text = "The run will hear it in a moment." if heard else "Written down."
        await self._send({"type": "said", "ok": True, "text": text})

    def _run(self, key: str) -> Following:
        if key not in self.hub.runs:
            raise RunError(f"there is no run {key!r}")
        return self.hub.runs[key]

    async def _show(self) -> None:
        """Send what is new, for ever."""
        while True:
            changed = self.hub.changed
            self.woken.clear()
            await self._show_runs()
            wait = await self._show_page()
            waiting = [asyncio.create_task(self.woken.wait())]
            if wait is None:
                waiting.append(asyncio.create_task(changed.wait()))
            try:
                await asyncio.wait(waiting, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()

    async def _show_runs(self) -> None:
        if self.listed != self.hub.version:
            self.listed = self.hub.version
            runs = await self.hub.ask(self.hub.list_runs)
            await self._send({"type": "runs", "runs": runs})

    async def _show_page(self) -> float | None:
        """Send the page if it has changed; return the seconds to wait before the next, if any."""
        wish = self.wish
        following = self.hub.runs.get(wish.run)
        if following is None:
            return None
        if self.shown == (wish, following.version):
            return None
        ahead = self.next_page - time.monotonic()
        if ahead > 0:
            return ahead
        if not following.version:
            return None  # nothing is read yet; the change will wake us
        version = following.version
        began = time.monotonic()
        content = await self.hub.ask(lambda: PAGES[wish.page](following))
        await self._send({"type": "page", "page": wish.page, "run": wish.run, "data": content})
        self.shown = (wish, version)
        ended = time.monotonic()
        self.next_page = ended + max(PAUSE_SECONDS, 9 * (ended - began))
        return None

    async def _send(self, message: Mapping[str, Any]) -> None:
        text = msgspec.json.encode(message).decode()
        async with self.sending:
            await self.socket.send_text(text)
