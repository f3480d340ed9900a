"""Collecting from asynchronous games: coroutines, waves, fragments."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.errors import LamarckianError
from lamarckian.mdp.batching import Clock, Scheduler
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.core import MDP, Arrays
from lamarckian.mdp.fragments import FragmentStore
from lamarckian.mdp.match import Cast, Match, MatchResult
from lamarckian.mdp.policy import Policy
from lamarckian.mdp.realtime import Lateness, RealTime
from lamarckian.mdp.rollout import BotWave, DecisionWave, PlayerFunction, PolicyWave, spar, train
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory

FAILED_MATCHES_IN_A_ROW = 5
"""If one game object fails so often without completing a match, collection ends with the first error."""

SEEDS_AT_ONCE = 1024
"""Match seeds are drawn in blocks: a seed of its own for each match costs more than a short match."""


class WaveCollector:
    """Keeps ``num_games`` matches going and hands out finished fragments.

    ``make`` builds one game object. ``players`` replaces the coroutine that drives a role (default:
    :func:`~.rollout.train` for training roles, :func:`~.rollout.spar` for the others). A match that fails
    is counted, its unfinished experience is dropped, and a new one starts; see
    ``FAILED_MATCHES_IN_A_ROW``.
    """

    def __init__(
        self,
        make: Callable[[], MDP],
        seating: Seating,
        settings: CollectorSettings,
        *,
        players: Mapping[str, PlayerFunction] | None = None,
        clock: Clock | None = None,
        max_wait: float = 0.005,
        patience: float = 60.0,
    ) -> None:
        self.seating = seating
        self.settings = settings
        self.num_failed = 0
        self.num_offline = 0
        self.num_matches = 0
        self._scheduler = Scheduler(max_wait=max_wait, patience=patience, clock=clock)
        self._episodes: list[EpisodeRecord] = []
        self._seconds = {"game": 0.0, "policy": 0.0}
        self._first_error: LamarckianError | None = None
        self._failed_in_a_row: Counter[int] = Counter()
        self._given_up = False
        self._seeds: list[int] = []
        self._restarts = 0
        self._drawn = np.random.default_rng(0)
        self._games = [make() for _ in range(settings.num_games)]
        roles = self._games[0].roles
        self._waves: dict[str, PolicyWave] = {}
        self._targets: dict[str, int] = {}
        for name, policy in seating.policies.items():
            seats = sum(roles[role].seats for role in seating.roles_of(name))
            self._targets[name] = settings.num_games * seats
            store = FragmentStore(
                policy.role,
                settings.fragment_length,
                settings.discounts(policy.role),
                num_columns=self._targets[name] * 3 + 8,
                memory=policy.memory,
                chunk_length=settings.chunk_length if policy.memory else 0,
            )
            self._waves[name] = PolicyWave(policy, self._stream("wave", name), store=store)
        cast: dict[str, Cast] = {}
        for role, name in seating.learners.items():
            cast[role] = Cast(train, self._waves[name], learns=True)
        self._opponents: dict[str, DecisionWave] = {}
        for role, (name, player) in seating.opponents.items():
            rng = self._stream("opponent", role)
            self._opponents[role] = (
                PolicyWave(player, rng)
                if isinstance(player, Policy)
                else BotWave(player, roles[role], rng)
            )
            cast[role] = Cast(spar, self._opponents[role], name=name)
        for role, player_function in (players or {}).items():
            cast[role].player = player_function
        self._scheduler.waves = [*self._waves.values(), *self._opponents.values()]
        self._matches = [
            Match(game, cast, self._scheduler, name=type(game).__name__, ended=self._match_ended)
            for game in self._games
        ]
        self._scheduler.watched = list(self._matches)
        self._started = False
        self._played = False
        self._closing = False

    @property
    def num_decisions(self) -> int:
        return sum(wave.num_decisions for wave in self._waves.values())

    @property
    def num_frames(self) -> int:
        return self.num_decisions

    @property
    def seconds(self) -> Mapping[str, float]:
        return self._seconds

    def restart(self) -> None:
        """Stop all matches where they are and begin new ones; unfinished experience is dropped."""
        self._restarts += 1
        self._drawn = self._stream("matches")
        self._seeds.clear()
        for match in self._matches:
            match.stop()
        for name, wave in self._waves.items():
            assert wave.store is not None
            wave.store.clear()
            wave.rng = self._stream("wave", name)
        for role, opponent in self._opponents.items():
            opponent.rng = self._stream("opponent", role)
        for match in self._matches:
            self._play(match)
        self._started = True
        self._played = False

    def collect(self, between: Callable[[], None] | None = None) -> dict[str, Trajectory]:
        if not self._started:
            self.restart()
        self._played = True
        mark = time.perf_counter()
        before = self._served_seconds()

        def enough() -> bool:
            if between is not None:
                between()
            return self._enough()

        self._scheduler.run(enough)
        if self._given_up and self._first_error is not None:
            raise self._first_error
        result = {}
        for name, wave in self._waves.items():
            assert wave.store is not None
            if wave.store.finished:
                result[name] = wave.store.take(len(wave.store.finished), wave.policy)
        spent = time.perf_counter() - mark
        served = self._served_seconds() - before
        self._seconds["policy"] += served
        self._seconds["game"] += spent - served
        return result

    def take_episodes(self) -> list[EpisodeRecord]:
        episodes, self._episodes = self._episodes, []
        return episodes

    def longest_running(self) -> int:
        return max(match.longest_running() for match in self._matches)

    def metrics(self) -> dict[str, float]:
        """Return totals so far: players gone, failed matches and, on a clock, lateness."""
        total = Lateness()
        for game in self._games:
            if isinstance(game, RealTime):
                total.merge(game.lateness)
        numbers = {
            "offline_players": float(self.num_offline + total.offline),
            "rejected_data": float(self.num_failed),
        }
        if total.decisions:
            numbers |= {
                "lateness_p99": total.percentile(0.99),
                "late_decisions": float(total.late),
            }
        return numbers

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Coroutines cannot be saved: a resumed run begins new matches, and so does the run that saved.

        Both therefore continue alike, bit for bit. Asking twice without playing changes nothing.
        """
        if self._played or not self._started:
            self.restart()
        return {"restarts": self._restarts, "num_decisions": self.num_decisions}, {}

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        self._restarts = int(data["restarts"]) - 1
        self.restart()
        next(iter(self._waves.values())).num_decisions = int(data["num_decisions"])

    def close(self) -> None:
        self._closing = True
        for match in self._matches:
            match.stop()
        self._scheduler.close()
        for game in self._games:
            game.close()

    def _enough(self) -> bool:
        if self._given_up:
            return True
        done = {
            name: len(wave.store.finished) / self._targets[name]
            for name, wave in self._waves.items()
            if wave.store is not None
        }
        # Roles decide at different rates: beyond three times its share a group stops waiting for others.
        return min(done.values()) >= 1.0 or max(done.values()) >= 3.0

    def _served_seconds(self) -> float:
        return sum(wave.seconds for wave in (*self._waves.values(), *self._opponents.values()))

    def _play(self, match: Match) -> None:
        if not self._seeds:
            self._seeds = self._drawn.integers(0, 2**31, SEEDS_AT_ONCE)[::-1].tolist()
        match.play(self._seeds.pop())

    def _stream(self, *name: str) -> np.random.Generator:
        return seeding.stream(self.settings.seed, *name, self._restarts)

    def _match_ended(self, match: Match, result: MatchResult) -> None:
        if self._closing:
            return
        self.num_matches += 1
        self.num_offline += result.num_offline
        if result.error is None:
            self._failed_in_a_row[id(match)] = 0
            learners = self.seating.learners
            self._episodes.extend(e for e in result.episodes if e.role in learners)
        else:
            self.num_failed += 1
            self._failed_in_a_row[id(match)] += 1
            self._first_error = self._first_error or result.error
            if self._failed_in_a_row[id(match)] >= FAILED_MATCHES_IN_A_ROW:
                self._given_up = True
                return
        self._play(match)
