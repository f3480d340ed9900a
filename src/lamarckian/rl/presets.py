"""Settings found good by measurement, by algorithm and game.

They replace defaults where the user has said nothing; the resolved values are written to the run's
``config.yaml``, so nothing is hidden. Keys are dotted, as on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRESETS: dict[tuple[str, str], Mapping[str, Any]] = {}


def preset(algorithm: str, game: str) -> dict[str, Any]:
    """Return the settings known for this pair, or nothing. Options after ``?`` are ignored."""
    return dict(PRESETS.get((algorithm, game.partition("?")[0]), {}))
