"""Recorded play, and how it is packed for a page."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lamarckian.viewer import columns

MAX_TICKS = 2500
_PLAIN_BYTES = 200_000


@dataclass(slots=True)
class Replay:
    """One match as the game's ``frame()`` told it, one mapping a tick.

    ``drawing`` is the game's drawing hints (:mod:`lamarckian.mdp.games.drawing`); without them the page
    draws images and boards it recognises, and lists the numbers otherwise. ``info`` is shown beside the
    picture (``score``, ``opponent``, ``seed``, ``frames`` trained, ...).
    """

    title: str
    game: str
    frames: list[dict[str, Any]]
    info: dict[str, Any] = field(default_factory=dict)
    drawing: Mapping[str, Any] | None = None


def pack(replays: Sequence[Replay], budget: int) -> dict[str, Any] | None:
    """Return all ``replays`` as JSON data that take at most about ``budget`` bytes in the page.

    Matches longer than ``MAX_TICKS`` are cut there; if the whole is still too large, only every second
    tick stays, then every fourth, and so on, which each replay states. None if there is nothing to show.
    """
    shown = [replay for replay in replays if replay.frames]
    if not shown:
        return None
    stride = 1
    while True:
        items = [_item(replay, stride) for replay in shown]
        text = json.dumps(items, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
        if len(text) <= min(_PLAIN_BYTES, budget):
            return {"plain": items}
        packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
        if len(packed) <= budget:
            return {"gzip": packed}
        if all(item["count"] <= 2 for item in items):
            return None
        stride *= 2


def _item(replay: Replay, stride: int) -> dict[str, Any]:
    whole = replay.frames[:MAX_TICKS]
    # The end of a match is what one waits for, so the last tick stays whatever the stride.
    frames = whole[::stride] if (len(whole) - 1) % stride == 0 else [*whole[::stride], whole[-1]]
    return {
        "title": replay.title,
        "game": replay.game,
        "info": columns.plain(replay.info),
        "drawing": columns.plain(replay.drawing),
        "count": len(frames),
        "stride": stride,
        "cut": len(replay.frames) - len(whole),
        "frames": columns.encode(frames),
    }
