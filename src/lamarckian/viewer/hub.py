"""The runs that are followed, and who is told about them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lamarckian.errors import LamarckianError, RunError
from lamarckian.runs import is_run
from lamarckian.viewer.following import Following
from lamarckian.viewer.live import listing

LOOK_SECONDS = 0.4
"""How often journals are looked at."""


def find_runs(places: Sequence[Path]) -> dict[str, Path]:
    """Return the runs at ``places`` (run folders, or folders of runs) by name, sorted.

    Two of the same name get their folders' names in front. Raises RunError for a place that is not there.
    """
    found: list[Path] = []
    for place in places:
        path = place.expanduser()
        if is_run(path):
            found.append(path)
        elif path.is_dir():
            found += sorted(each for each in path.iterdir() if is_run(each))
        else:
            raise RunError(f"{path}: there is no such run folder")
    unique = list({path.resolve(): path for path in found}.values())
    names = [path.resolve().name for path in unique]
    keys = [
        name if names.count(name) == 1 else f"{path.resolve().parent.name}~{name}"
        for path, name in zip(unique, names)
    ]
    while len(set(keys)) < len(keys):
        keys = [f"{key}~{n}" if keys.count(key) > 1 else key for n, key in enumerate(keys)]
    return dict(zip(keys, unique))


class Hub:
    """Follows runs and answers for them. All methods belong to one event loop.

    Journals are read in a thread, one piece at a time; ``lock`` is held meanwhile, and by whoever reads off
    what they said.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = list(places)
        self.runs: dict[str, Following] = {}
        self.lock = asyncio.Lock()
        self.changed = asyncio.Event()
        self.version = 0
        self.watched: dict[object, str] = {}

    def add_new(self) -> None:
        """Take in runs that have appeared."""
        with contextlib.suppress(RunError):
            known = {each.run.path.resolve() for each in self.runs.values()}
            for key, path in find_runs(self.places).items():
                if path.resolve() not in known and key not in self.runs:
                    with contextlib.suppress(LamarckianError):
                        self.runs[key] = Following(path)
                        self.version += 1

    async def follow(self) -> None:
        """Read what is new, for ever; runs that somebody watches come first."""
        next_search = 0.0
        while True:
            if time.monotonic() >= next_search:
                async with self.lock:
                    await asyncio.to_thread(self.add_new)
                next_search = time.monotonic() + 5 * LOOK_SECONDS
            busy = False
            watched = set(self.watched.values())
            for key in sorted(self.runs, key=lambda key: key not in watched):
                busy = await self._poll(self.runs[key]) or busy
                if key in watched or not set(self.watched.values()) <= watched:
                    # Whoever waits for a page gets it before other journals are read.
                    await asyncio.sleep(0)
            await asyncio.sleep(0 if busy else LOOK_SECONDS)

    async def _poll(self, following: Following) -> bool:
        """Read one piece; True if there is more to read."""
        async with self.lock:
            try:
                changed = await asyncio.to_thread(following.poll)
            except LamarckianError:
                return False  # the folder went away; it is shown as it was
        if changed:
            self.version += 1
            self.changed.set()
            self.changed = asyncio.Event()
        return not following.is_read

    async def ask(self, question: Callable[[], Any]) -> Any:
        """Answer ``question`` in a thread, while no journal is read."""
        async with self.lock:
            return await asyncio.to_thread(question)

    def list_runs(self) -> list[dict[str, Any]]:
        """Return the list of runs, the newest first."""
        lines = [{"key": key, **listing(each)} for key, each in self.runs.items()]
        return sorted(lines, key=lambda line: (-(line["began"] or 0.0), line["key"]))
