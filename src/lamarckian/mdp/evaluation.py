"""Measuring players: a fixed number of whole lives, fixed seeds, no learning.

Batch games are stepped as arrays, other games through waves; the numbers mean the same. Each match slot
contributes a fixed quota of lives, so that short lives are not counted more often than long ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.errors import GameError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.batching import Scheduler, Wave
from lamarckian.mdp.collector import Seating
from lamarckian.mdp.core import MDP, Arrays
from lamarckian.mdp.match import Cast, Match, MatchResult
from lamarckian.mdp.policy import Policy, draw_noise
from lamarckian.mdp.rollout import BotWave, PolicyWave, spar
from lamarckian.mdp.rollout import evaluate as play
from lamarckian.mdp.trajectory import EpisodeRecord

MAX_DECISIONS = 200_000
"""A life longer than this ends the measurement with an error that names the game."""


@dataclass(slots=True)
class EvaluationResult:
    """The lives that were played, and what they amount to.

    ``episodes`` are those of the evaluated roles; ``seed`` makes exactly the same ones again.
    """

    episodes: list[EpisodeRecord]
    seed: int
    greedy: bool
    opponent: str = ""
    num_decisions: int = 0
    num_offline: int = 0
    errors: list[str] = field(default_factory=list)

    def main_score(self) -> float:
        """The one number to compare by: the game's score, else the mean return."""
        scores = [e.score for e in self.episodes if e.score is not None]
        if scores:
            return float(np.mean(scores))
        return (
            float(np.mean([sum(e.returns) for e in self.episodes])) if self.episodes else math.nan
        )

    def metrics(self) -> dict[str, float]:
        """Means, under the names of :mod:`lamarckian.metrics`; per role if there are several."""
        out: dict[str, float] = {}
        roles = sorted({e.role for e in self.episodes})
        for role in roles:
            mine = [e for e in self.episodes if e.role == role]
            suffix = f"/{role}" if len(roles) > 1 else ""
            out |= {name + suffix: value for name, value in summarise(mine).items()}
        return out

    def interval(self) -> tuple[float, float]:
        """95 % interval of :meth:`main_score` (normal approximation over lives)."""
        numbers = [sum(e.returns) if e.score is None else e.score for e in self.episodes]
        if len(numbers) < 2:
            return (math.nan, math.nan)
        half = 1.96 * float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers))
        mean = self.main_score()
        return (mean - half, mean + half)

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``--json`` and journals."""
        low, high = self.interval()
        statistics: dict[str, list[float]] = {}
        for episode in self.episodes:
            for name, value in episode.statistics.items():
                statistics.setdefault(name, []).append(value)
        return {
            "episodes": len(self.episodes),
            "score": self.main_score(),
            "score_interval": [low, high],
            "opponent": self.opponent,
            "greedy": self.greedy,
            "seed": self.seed,
            "decisions": self.num_decisions,
            "offline_players": self.num_offline,
            "metrics": self.metrics(),
            "statistics": {name: float(np.mean(values)) for name, values in statistics.items()},
        }


def summarise(episodes: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Means over lives, under the names of :mod:`lamarckian.metrics`. ``episodes`` must not be empty."""
    returns = np.array([sum(e.returns) for e in episodes])
    means = {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "length_mean": float(np.mean([e.length for e in episodes])),
    }
    scores = [e.score for e in episodes if e.score is not None]
    if scores:
        means["score"] = float(np.mean(scores))
        means["score_std"] = float(np.std(scores))
    results = [e.result for e in episodes if e.result is not None]
    if results:
        means["win_rate"] = float(np.mean([(result + 1) / 2 for result in results]))
    statistics: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in episode.statistics.items():
            statistics.setdefault(name, []).append(value)
    return means | {f"statistic/{name}": float(np.mean(v)) for name, v in statistics.items()}


def evaluate(
    games: BatchGame | list[MDP],
    seating: Seating,
    *,
    num_episodes: int,
    seed: int,
    greedy: bool = True,
    max_decisions: int = MAX_DECISIONS,
) -> EvaluationResult:
    """Play ``num_episodes`` matches and return the lives of the evaluated (training) roles.

    A match of several evaluated players yields a life for each of them. Equal ``seed`` gives equal
    lives. Raises GameError if a life does not end within ``max_decisions``, or if every match fails.
    """
    if isinstance(games, BatchGame):
        result = _evaluate_batch(games, seating, num_episodes, seed, greedy, max_decisions)
    else:
        result = _evaluate_matches(games, seating, num_episodes, seed, greedy, max_decisions)
    names = sorted({name for name, _ in seating.opponents.values()})
    result.opponent = ",".join(names) or ("self" if len(seating.learners) > 1 else "")
    return result


class _Rows:
    """One role of a batch game under evaluation: who plays it, and its running lives."""

    def __init__(self, player: Any, width: int, heads: int, quota: NDArray[np.int64]) -> None:
        self.player = player
        self.memory: Arrays = {}
        if isinstance(player, Policy):
            self.memory = {
                k: np.zeros((width, *v.shape), v.dtype) for k, v in player.memory.items()
            }
        self.returns = np.zeros((width, heads))
        self.lengths = np.zeros(width, np.int64)
        self.quota = quota


def _evaluate_batch(
    game: BatchGame,
    seating: Seating,
    num_episodes: int,
    seed: int,
    greedy: bool,
    max_decisions: int,
) -> EvaluationResult:
    num = game.num_games
    seeds = seeding.stream(seed, "evaluation games").integers(0, 2**31, num)
    rng = seeding.stream(seed, "evaluation players")
    game.reset(seeds)
    per_game = np.full(num, num_episodes // num) + (np.arange(num) < num_episodes % num)
    rows: dict[str, _Rows] = {}
    for name, role in game.roles.items():
        evaluated = name in seating.learners
        player = (
            seating.policies[seating.learners[name]] if evaluated else seating.opponents[name][1]
        )
        quota = np.repeat(per_game if evaluated else np.zeros(num, np.int64), role.seats)
        rows[name] = _Rows(player, num * role.seats, role.num_rewards, quota)
    result = EvaluationResult([], seed, greedy)
    while any(row.quota.any() for row in rows.values()):
        actions: dict[str, Arrays] = {}
        for name, row in rows.items():
            seen = game.observe(name)
            if not isinstance(row.player, Policy):
                actions[name] = row.player(seen.inputs, seen.legal, rng)
                continue
            evaluated = name in seating.learners
            noise = (
                None if greedy and evaluated else draw_noise(row.player.role, len(row.lengths), rng)
            )
            decisions = row.player.act(seen.inputs, seen.legal, seen.state, row.memory, noise)
            row.memory = {k: np.array(v) for k, v in decisions.recurrent.items()}
            actions[name] = decisions.game_actions
        alive = {name: game.alive(name) for name in rows}
        steps = game.step(actions)
        for name, row in rows.items():
            _count(game, name, row, alive[name], steps[name], seating, result)
            if row.lengths.max(initial=0) > max_decisions:
                raise GameError(
                    f"{type(game).__name__}: a life of role {name!r} has not ended after "
                    f"{max_decisions} decisions; give the game a time limit (truncated)"
                )
    return result


def _count(
    game: BatchGame,
    name: str,
    row: _Rows,
    alive: NDArray[np.bool_],
    step: RowStep,
    seating: Seating,
    result: EvaluationResult,
) -> None:
    row.returns += step.rewards * alive[:, None]
    row.lengths += alive
    ended = (step.terminated | step.truncated) & alive
    if name in seating.learners:
        result.num_decisions += int((alive & (row.quota > 0)).sum())
        for n in np.flatnonzero(ended & (row.quota > 0)):
            outcome = step.outcome(int(n))
            score, value = outcome.pop("score", None), outcome.pop("result", None)
            length = int(row.lengths[n])
            result.episodes.append(
                EpisodeRecord(
                    role=name,
                    returns=tuple(row.returns[n].tolist()),
                    length=length,
                    frames=length * game.frames_per_decision,
                    score=score,
                    result=None if value is None else round(value),
                    statistics=outcome,
                    opponent=seating.opponent_name(name),
                    seed=result.seed,
                    policy_version=row.player.version,
                )
            )
        row.quota[ended] -= row.quota[ended] > 0
    row.returns[ended] = 0
    row.lengths[ended] = 0
    for array in row.memory.values():
        array[ended | ~alive] = 0


def _evaluate_matches(
    games: list[MDP],
    seating: Seating,
    num_episodes: int,
    seed: int,
    greedy: bool,
    max_decisions: int,
) -> EvaluationResult:
    scheduler = Scheduler()
    cast = _cast(games[0], seating, seed, greedy)
    scheduler.waves = _waves(cast)
    result = EvaluationResult([], seed, greedy)
    finished: dict[int, MatchResult] = {}
    order: list[int] = []

    def next_match(match: Match) -> None:
        if len(order) < num_episodes:
            number = seeding.derive(seed, "match", len(order))
            order.append(number)
            match.play(number)

    def ended(match: Match, outcome: MatchResult) -> None:
        finished[outcome.seed] = outcome
        next_match(match)

    matches = [
        Match(game, cast, scheduler, name=type(game).__name__, ended=ended) for game in games
    ]
    scheduler.watched = list(matches)
    for match in matches:
        next_match(match)

    def done() -> bool:
        if max(match.longest_running() for match in matches) > max_decisions:
            raise GameError(
                f"{type(games[0]).__name__}: a life has not ended after {max_decisions} decisions; "
                "give the game a time limit (truncated)"
            )
        return len(finished) >= num_episodes

    try:
        scheduler.run(done)
    finally:
        for match in matches:
            match.stop()
        scheduler.close()
    for number in order:
        outcome = finished[number]
        result.num_offline += outcome.num_offline
        if outcome.error is not None:
            result.errors.append(str(outcome.error))
        mine = [e for e in outcome.episodes if e.role in seating.learners]
        result.episodes.extend(mine)
        result.num_decisions += sum(e.length for e in mine)
    if not result.episodes and result.errors:
        raise GameError(f"every match of the evaluation failed; the first: {result.errors[0]}")
    return result


def record_replay(
    games: BatchGame | list[MDP],
    seating: Seating,
    *,
    seed: int,
    greedy: bool = True,
    max_ticks: int = 2500,
) -> list[dict[str, Any]]:
    """Play one match and return what a viewer draws, one JSON-compatible record per tick.

    Empty if the game draws nothing. Ends with the match or after ``max_ticks``.
    """
    if not isinstance(games, BatchGame):
        return _record_match(games[0], seating, seed, greedy, max_ticks)
    game = games
    frames: list[dict[str, Any]] = []
    game.reset(np.full(game.num_games, seed, np.int64))
    rng = seeding.stream(seed, "replay")
    players: dict[str, Any] = {
        role: seating.policies[group] for role, group in seating.learners.items()
    } | {role: player for role, (_, player) in seating.opponents.items()}
    memory = {
        role: {
            k: np.zeros((game.num_games * game.roles[role].seats, *v.shape), v.dtype)
            for k, v in player.memory.items()
        }
        for role, player in players.items()
        if isinstance(player, Policy)
    }
    for _ in range(max_ticks):
        frame = game.frame(0)
        if frame is None:
            return []
        frames.append(frame)
        actions: dict[str, Arrays] = {}
        for role, player in players.items():
            seen = game.observe(role)
            if isinstance(player, Policy):
                width = game.num_games * game.roles[role].seats
                noise = None if greedy else draw_noise(player.role, width, rng)
                decisions = player.act(seen.inputs, seen.legal, seen.state, memory[role], noise)
                memory[role] = dict(decisions.recurrent)
                actions[role] = decisions.game_actions
            else:
                actions[role] = player(seen.inputs, seen.legal, rng)
        before = {role: game.alive(role) for role in players}
        steps = game.step(actions)
        over = [
            bool(
                ((step.terminated | step.truncated) | ~before[role])[: game.roles[role].seats].all()
            )
            for role, step in steps.items()
        ]
        if all(over):
            break
    return frames


def _cast(game: MDP, seating: Seating, seed: int, greedy: bool) -> dict[str, Cast]:
    """Seat the evaluated policies and their opponents; nobody's decisions are kept."""
    waves = {
        name: PolicyWave(policy, seeding.stream(seed, "wave", name), greedy=greedy)
        for name, policy in seating.policies.items()
    }
    cast = {role: Cast(play, waves[name]) for role, name in seating.learners.items()}
    for role, (name, player) in seating.opponents.items():
        rng = seeding.stream(seed, "opponent", role)
        wave = (
            PolicyWave(player, rng)
            if isinstance(player, Policy)
            else BotWave(player, game.roles[role], rng)
        )
        cast[role] = Cast(spar, wave, name=name)
    return cast


def _waves(cast: dict[str, Cast]) -> list[Wave]:
    return list({id(part.wave): part.wave for part in cast.values()}.values())


class _Watched:
    """A wave that takes a frame of the game before it is served."""

    def __init__(self, wave: Wave, game: MDP, frames: list[dict[str, Any]], limit: int) -> None:
        self.full: list[Wave] = []
        self._wave = wave
        self._game = game
        self._frames = frames
        self._limit = limit

    @property
    def size(self) -> int:
        return self._wave.size

    def flush(self) -> None:
        frame = self._game.frame()
        # Several waves may be served at one tick: it is drawn once.
        if frame is not None and len(self._frames) < self._limit and frame not in self._frames[-1:]:
            self._frames.append(frame)
        self._wave.flush()


def _record_match(
    game: MDP, seating: Seating, seed: int, greedy: bool, max_ticks: int
) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []

    scheduler = Scheduler()
    cast = _cast(game, seating, seed, greedy)
    for wave in _waves(cast):
        scheduler.waves.append(_Watched(wave, game, frames, max_ticks))
    over: list[MatchResult] = []
    match = Match(
        game, cast, scheduler, name=type(game).__name__, ended=lambda _, result: over.append(result)
    )
    scheduler.watched = [match]
    match.play(seed)
    try:
        scheduler.run(lambda: bool(over) or len(frames) >= max_ticks)
    finally:
        match.stop()
        scheduler.close()
    last = game.frame()
    if last is not None:
        frames.append(last)
    return frames
