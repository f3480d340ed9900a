"""Every algorithm on every kind of space: it learns, or it is refused before anything starts (ENV-07).

The page ``docs/support-matrix.md`` is what these tests find. After a change write it anew with

    LAMARCKIAN_WRITE_DOCS=1 python -m pytest tests/cli/test_train_support_matrix.py
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian import config
from lamarckian.errors import UnsupportedSpace
from lamarckian.runs.folder import Run
from lamarckian.runs.training import TrainingRun, train

PAGE = Path(__file__).parents[2] / "docs" / "support-matrix.md"
ALGORITHMS = dict(sorted(config.variants(TrainingRun, "algorithm").items()))


@dataclass(frozen=True)
class Kind:
    """A row of the matrix: what it is, a game that has it, settings it needs."""

    part: str
    name: str
    game: str
    settings: dict[str, Any] = field(default_factory=dict)


def toy(**options: Any) -> str:
    return "space_games:Spaces?" + "&".join(f"{key}={value}" for key, value in options.items())


TINY_IMAGE = {
    "algorithm.network.image": {"convolutions": [{"channels": 2, "kernel": 3, "stride": 2}]},
}
MEMORY = {"algorithm.network.memory_size": 8, "algorithm.chunk_length": 8}
KINDS = [
    Kind("action", "Discrete", toy(action="discrete")),
    Kind("action", "Discrete with a legal-action mask", toy(masked="true") + "&action_mask=info"),
    Kind("action", "MultiDiscrete", toy(action="multi-discrete")),
    Kind("action", "MultiBinary", toy(action="multi-binary")),
    Kind("action", "Box, bounded", toy(action="box")),
    Kind("action", "Box, bounded, tanh", toy(action="box"), {"algorithm.bounds": "tanh"}),
    Kind("action", "Box, unbounded", toy(action="unbounded")),
    Kind("action", "Box, bounded on one side", toy(action="one-sided")),
    Kind("action", "Tuple(Discrete, Box): hybrid", toy(action="tuple")),
    Kind("action", "Dict, nested twice: hybrid", toy(action="nested")),
    Kind("action", "Box of integers", toy(action="integers")),
    Kind("action", "Text", toy(action="text")),
    Kind(
        "action", "several masked parts, hybrid", "lamarckian.testing.games:Everything", TINY_IMAGE
    ),
    Kind("observation", "Box", toy(seen="box")),
    Kind("observation", "Discrete", toy(seen="discrete")),
    Kind("observation", "image (uint8 Box of three axes)", toy(seen="image"), TINY_IMAGE),
    Kind("observation", "Dict nested twice, with an image", toy(seen="nested-seen"), TINY_IMAGE),
    Kind("observation", "Tuple", toy(seen="tuple")),
    Kind("observation", "Sequence", toy(seen="sequence")),
    Kind("observation", "entities with a padding mask, central state", "skirmish", {"frames": 300}),
    Kind("memory", "LSTM", "cartpole", {"algorithm.network.memory": "lstm", **MEMORY}),
    Kind("memory", "GRU", "cartpole", {"algorithm.network.memory": "gru", **MEMORY}),
    Kind(
        "memory",
        "LSTM, hybrid actions, masks, image, entities",
        "lamarckian.testing.games:Everything",
        {"algorithm.network.memory": "lstm", **MEMORY, **TINY_IMAGE},
    ),
    Kind("rewards", "several heads", "skirmish", {"frames": 300}),
    Kind(
        "roles",
        "two roles, one policy (self-play)",
        "pong",
        {"learn": ["left", "right"], "frames": 200},
    ),
    Kind("roles", "turns, legal-action masks", "connect-four"),
]
SMALL: dict[str, Any] = {
    "algorithm.num_games": 4,
    "algorithm.fragment_length": 16,
    "algorithm.minibatch_size": 0,
    "algorithm.num_epochs": 1,
    "algorithm.learning_starts": 32,
    "algorithm.batch_size": 16,
    "algorithm.network.hidden": [8],
    "algorithm.network.critic_hidden": [8],
    "evaluation.episodes": 0,
    "frames": 2 * 4 * 16,
}
LEARNS = "learns"
CONTINUOUS = {"sac": {"cartpole": "pendulum", "?seen": "?action=box&seen"}}
"""What observations and memories are tried with, for algorithms that want continuous actions."""


def try_out(algorithm: str, kind: Kind, path: Path) -> str:
    """Train two updates; return ``learns``, or why it was refused before anything was made."""
    has = {row.key.partition(".")[0] for row in config.describe(ALGORITHMS[algorithm])}
    wanted = {
        name: value
        for name, value in {**SMALL, **kind.settings}.items()
        if not name.startswith("algorithm.") or name.split(".")[1] in has
    }
    game = kind.game
    if kind.part in ("observation", "memory"):
        for old, new in CONTINUOUS.get(algorithm, {}).items():
            game = game.replace(old, new)
    settings = config.build(TrainingRun, {"game": game, "algorithm": algorithm, **wanted})
    try:
        result = train(settings, path)
    except UnsupportedSpace as error:
        assert not path.exists()
        return f"refused: {error}"
    assert result.iterations >= 2
    run = Run.open(path)
    first, last = run.load(0).arrays, run.load("last").arrays
    weights = [name for name in first if "/policy/" in name and first[name].dtype.kind == "f"]
    assert any((last[name] != first[name]).any() for name in weights)
    assert all(np.isfinite(last[name]).all() for name in weights)
    return LEARNS


@pytest.mark.timeout(400)
def test_pitfalls_env_07_learns_or_is_refused_at_once(tmp_path: Path) -> None:
    """If only the page is stale, run this file with LAMARCKIAN_WRITE_DOCS=1 in the environment."""
    found: dict[tuple[str, str], str] = {}
    for number, (algorithm, kind) in enumerate(itertools.product(ALGORITHMS, KINDS)):
        try:
            found[algorithm, kind.name] = try_out(algorithm, kind, tmp_path / str(number))
        except Exception as error:
            raise AssertionError(f"{algorithm} on {kind.part} {kind.name}: {error!r}") from error
    text = page(found)
    if os.environ.get("LAMARCKIAN_WRITE_DOCS"):
        PAGE.write_text(text, "utf-8")
    assert PAGE.read_text("utf-8") == text


def page(found: dict[tuple[str, str], str]) -> str:
    notes: list[str] = []
    lines = [
        "# What learns on what",
        "",
        "This page is written by `tests/cli/test_train_support_matrix.py`: every cell is a run of two "
        "updates, or a refusal before anything was started (exit code 2).",
        "",
        f"| part | kind | {' | '.join(ALGORITHMS)} |",
        f"|---|---|{'---|' * len(ALGORITHMS)}",
    ]
    for kind in KINDS:
        cells = []
        for algorithm in ALGORITHMS:
            answer = found[algorithm, kind.name]
            if answer == LEARNS:
                cells.append("yes")
                continue
            if answer not in notes:
                notes.append(answer)
            cells.append(f"no [{notes.index(answer) + 1}]")
        lines.append(f"| {kind.part} | {kind.name} | {' | '.join(cells)} |")
    lines += ["", *(f"{n}. `{note}`" for n, note in enumerate(notes, 1))]
    return "\n".join(lines).rstrip() + "\n"
