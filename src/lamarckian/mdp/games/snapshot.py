"""Saving and restoring the arrays a batch game is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian.errors import CheckpointError
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.games.row_streams import RowStreams


def take(game: Any, names: tuple[str, ...]) -> Arrays:
    """Copy the attributes ``names`` of ``game``, and its ``streams`` if it draws."""
    arrays: Arrays = {name.lstrip("_"): getattr(game, name).copy() for name in names}
    if hasattr(game, "streams"):
        arrays["stream_keys"] = game.streams.keys.copy()
        arrays["stream_counters"] = game.streams.counters.copy()
    return arrays


def put(game: Any, names: tuple[str, ...], arrays: Arrays) -> None:
    """Copy ``arrays`` back into ``game``.

    Raises CheckpointError if one is missing or was saved with other options (another shape or dtype).
    """
    for name in names:
        target = getattr(game, name)
        target[...] = checked(game, name.lstrip("_"), arrays, target)
    if not hasattr(game, "streams"):
        return
    streams = RowStreams(np.zeros(0, np.int64))
    wanted = np.zeros(game.num_games, np.uint64)
    streams.keys = checked(game, "stream_keys", arrays, wanted).copy()
    streams.counters = checked(game, "stream_counters", arrays, wanted).copy()
    game.streams = streams


def checked(game: Any, name: str, arrays: Arrays, like: np.ndarray[Any, Any]) -> Any:
    """Return ``arrays[name]`` if it has the shape and dtype of ``like``."""
    saved = arrays.get(name)
    if saved is None or saved.shape != like.shape or saved.dtype != like.dtype:
        came = "nothing" if saved is None else f"{saved.dtype} {saved.shape}"
        raise CheckpointError(
            f"{type(game).__name__} state {name!r}: expected {like.dtype} {like.shape}, got {came}; "
            "restore with the number of games and the options it was saved with"
        )
    return saved
