"""Replays and default settings, made from a training run and its checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lamarckian import config, seeding
from lamarckian.errors import LamarckianError
from lamarckian.mdp.batch_game import BatchGame
from lamarckian.mdp.evaluation import record_replay
from lamarckian.runs import Run
from lamarckian.runs.evolution import build_settings, is_evolution, load_settings
from lamarckian.viewer.replay import MAX_TICKS, Replay

if TYPE_CHECKING:
    from lamarckian.rl.assembly import Assembly

_log = logging.getLogger("lamarckian.viewer")


def record_replays(run_path: str | Path) -> tuple[list[Replay], str]:
    """Let the first, the best and the last policy of a run play the same match; ``(replays, reason)``.

    The first policy is made anew from the run's seed, since its checkpoint may be gone. Of an evolution
    of players it is the ends and the middle of the last population, by their first behaviour; of one
    without behaviours, the best.

    A game that cannot be made or that fails costs the replay and not the report: ``reason`` says what
    happened, and is empty if all went well.
    """
    run = Run.open(run_path)
    replays: list[Replay] = []
    reason = ""
    try:
        recorded = _of_individuals(run) if is_evolution(run) else _of_training(run)
        for replay in recorded:
            if not replay.frames:
                return [], f"The game '{replay.game}' has no frames to draw."
            replays.append(replay)
    except LamarckianError as error:
        reason = str(error)
    except Exception as error:  # a user's game may raise anything
        reason = f"{type(error).__name__}: {error}"
    if reason:
        _log.warning("%s: replay not recorded: %s", run.path, reason)
    return replays, reason


def _of_training(run: Run) -> Iterator[Replay]:
    for title, which in _choose(run):
        yield _record(run, title, which)


def _of_individuals(run: Run) -> Iterator[Replay]:
    """Replays of the ends and the middle of the last population, or of the best."""
    from lamarckian.runs import individuals
    from lamarckian.runs.players import load_players

    settings = load_settings(run)
    task = getattr(settings, "training", None)
    if task is None:
        return
    encoding = individuals.encoding_of(run)
    everyone = individuals.read_all(run)
    alive = [
        everyone[each] for each in individuals.latest(run, "population") if everyone[each].weights
    ]
    chosen = [("Best", alive[0])] if alive else []
    if encoding.descriptors:
        alive.sort(key=lambda each: float(each.descriptors[0] or 0.0))
        middle = alive[len(alive) // 2]
        name = encoding.descriptors[0].name
        chosen = [
            (f"{word} {name}", each)
            for word, each in (("Least", alive[0]), ("Middling", middle), ("Most", alive[-1]))
        ]
    players = load_players(run, [each.id for _, each in chosen])
    for (title, each), assembly in zip(chosen, players, strict=True):
        names = [descriptor.name for descriptor in encoding.descriptors]
        info = {
            "individual": each.id,
            **{name: _rounded(value) for name, value in zip(names, each.descriptors, strict=True)},
            "score": _rounded(each.statistics.get("score")),
            "opponent": ", ".join(sorted({n for n, _ in assembly.seating.opponents.values()}))
            or None,
        }
        yield _played(title, assembly, settings.seed, task.greedy, info)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def default_settings(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings of a training of the same algorithm in which nothing was set, or None.

    The game is left out: it has no default.
    """
    from lamarckian.runs.training import TrainingRun  # brings torch

    if "problem" in settings:
        plain: dict[str, Any] = msgspec.to_builtins(
            build_settings(str(settings["problem"]), {}, use_preset=False)
        )
        del plain["problem"]
        return plain
    algorithm = settings.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
    updates = {"game": str(settings.get("game")), **({"algorithm": name} if name else {})}
    try:
        record = config.build(TrainingRun, updates)
    except LamarckianError:
        return None
    plain = msgspec.to_builtins(record)
    del plain["game"]
    return plain


def _choose(run: Run) -> list[tuple[str, int | Literal["last"] | None]]:
    infos = run.checkpoints()
    if not infos:
        return [("First policy", None)]
    last = infos[-1].step
    scored = [info for info in infos if info.score is not None]
    chosen: list[tuple[str, int | Literal["last"] | None]] = [("First policy", None)]
    if scored:
        best = max(scored, key=lambda info: (float(info.score or 0.0), info.step)).step
        if best not in (0, last):
            chosen.append(("Best policy", best))
    if last:
        chosen.append(("Last policy", "last"))
    return chosen


def _record(run: Run, title: str, which: int | Literal["last"] | None) -> Replay:
    from lamarckian.rl.assembly import assemble
    from lamarckian.runs.training import TrainingRun, load_policies

    if which is None:
        assembly = assemble(run.load_config(TrainingRun))
        for policy in assembly.policies.values():
            policy.eval()
    else:
        assembly = load_policies(run, which)
    settings = run.load_config(TrainingRun)
    info = _info(run, assembly, which)
    return _played(title, assembly, settings.seed, settings.evaluation.greedy, info)


def _played(
    title: str, assembly: Assembly, seed: int, greedy: bool, info: dict[str, Any]
) -> Replay:
    games = assembly.make_game(1)
    first = games if isinstance(games, BatchGame) else games[0]
    try:
        frames = record_replay(
            games,
            assembly.seating,
            # One seed for all, so that they are served the same balls.
            seed=seeding.derive(seed, "replay") % 2**31,
            greedy=greedy,
            max_ticks=MAX_TICKS + 1,
        )
    finally:
        for game in [games] if isinstance(games, BatchGame) else games:
            game.close()
    drawing = getattr(first, "drawing", None)
    return Replay(title, assembly.training.game, frames, info, drawing)


def _info(run: Run, assembly: Assembly, which: int | Literal["last"] | None) -> dict[str, Any]:
    infos = run.checkpoints()
    step = 0 if which is None else infos[-1].step if which == "last" else which
    score = next((info.score for info in infos if info.step == step), None)
    frames = 0
    for entry in run.replay():
        if entry.event == "update" and int(entry.fields.get("iteration", 0)) <= step:
            frames = int(entry.fields.get("frames", 0))
    opponents = sorted({name for name, _ in assembly.seating.opponents.values()})
    return {
        "frames trained": frames,
        "opponent": ", ".join(opponents) or None,
        "evaluation": None if score is None else round(score, 4),
    }
