"""Runs made by hand for the tests of the viewer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lamarckian.runs import Run, events

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"quoted\" 'single' & é ☃ \u2028"
SETTINGS: dict[str, Any] = {
    "game": "pong",
    "algorithm": {"name": "ppo", "learning_rate": 0.001, "discount": 0.99},
    "frames": 1000,
    "seed": 7,
}


def empty_run(folder: Path, game: str = "pong") -> Path:
    """A run that has only just begun."""
    with Run.create(folder, "pong", {**SETTINGS, "game": game}, seed=7):
        pass
    return folder


def small_run(folder: Path, num_updates: int = 20, name: str = "pong") -> Path:
    """A finished run with curves, one gap, two evaluations and a warning."""
    with Run.create(folder, name, SETTINGS, seed=7) as run:
        for number in range(1, num_updates + 1):
            metrics: dict[str, float | None] = {
                "return_mean": float(number),
                "entropy": math.nan if number == 3 else 1.0 / number,
                "clip_fraction": 0.4,
                "collect_seconds": 0.3,
                "update_seconds": 0.1,
                "wall_seconds": 0.5 * number,
                "samples_per_second": 100.0,
            }
            run.journal.append(events.Update(iteration=number, frames=50 * number, metrics=metrics))
        for frames, wins in ((500, 0.5), (1000, 0.75)):
            run.journal.append(
                events.Evaluation(
                    frames=frames,
                    episodes=100,
                    score=wins,
                    opponent="rule",
                    metrics={
                        "score": wins,
                        "win_rate": wins,
                        "return_mean": 3.0,
                        "return_std": 2.0,
                    },
                )
            )
        run.journal.append(events.Warned(message="the disk is slow"))
        run.journal.append(events.Finished(metrics={}))
    return folder


def pong_frames(count: int) -> list[dict[str, Any]]:
    """Frames shaped as those of the built-in Pong."""
    return [
        {
            "tick": tick,
            "points": [tick // 50, tick // 70],
            "score": f"{tick // 50} : {tick // 70}",
            "ball": [[80 + 70 * math.sin(tick / 9), 80 + 70 * math.cos(tick / 7)]],
            "left": [[16, 80 + 40 * math.sin(tick / 20)]],
            "right": [[139, 60.0]],
        }
        for tick in range(count)
    ]
