"""Named random streams: one seed for a run, one independent stream for each thing that draws.

A stream depends on the run's seed and on its own name only, never on the order in which streams are
made or on which process asks. That is what makes results independent of placement.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import numpy as np


def _entropy(part: str | int) -> int:
    return zlib.crc32(part.encode()) if isinstance(part, str) else int(part) & 0xFFFFFFFF


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator of ``name`` under ``seed``, e.g. ``stream(7, "actor", 3)``."""
    return np.random.Generator(np.random.PCG64(sequence(seed, *name)))


def sequence(seed: int, *name: str | int) -> np.random.SeedSequence:
    """Return the seed sequence behind :func:`stream`."""
    return np.random.SeedSequence([int(seed) & 0xFFFFFFFFFFFFFFFF, *map(_entropy, name)])


def restream(rng: np.random.Generator, seed: int, *name: str | int) -> np.random.Generator:
    """Start ``rng`` (PCG64) afresh as the stream of ``name``: a tenth of the cost of :func:`stream`.

    For what begins anew very often, such as a match. The numbers differ from those of :func:`stream`.
    """
    digest = hashlib.blake2b(repr((int(seed), name)).encode(), digest_size=32).digest()
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {
            "state": int.from_bytes(digest[:16]),
            "inc": int.from_bytes(digest[16:]) | 1,
        },
        "has_uint32": 0,
        "uinteger": 0,
    }
    return rng


def derive(seed: int, *name: str | int) -> int:
    """Return a 31-bit integer seed for libraries that take an integer."""
    return int(sequence(seed, *name).generate_state(1)[0] & 0x7FFFFFFF)


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """Return the generator's whole state as JSON-compatible data (big integers as strings)."""
    state = rng.bit_generator.state
    inner = {key: str(value) for key, value in state["state"].items()}
    return {
        "bit_generator": state["bit_generator"],
        "state": inner,
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def restore(state: dict[str, Any]) -> np.random.Generator:
    """Return a generator that continues exactly where :func:`state_of` was taken.

    Raises ValueError for a bit generator other than PCG64.
    """
    if state["bit_generator"] != "PCG64":
        raise ValueError(f"random state: expected PCG64, got {state['bit_generator']!r}")
    bits = np.random.PCG64()
    values: dict[str, Any] = {
        "bit_generator": "PCG64",
        "state": {key: int(value) for key, value in state["state"].items()},
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }
    bits.state = values  # type: ignore[assignment]
    return np.random.Generator(bits)
