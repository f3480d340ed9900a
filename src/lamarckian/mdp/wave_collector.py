"""Collecting from asynchronous games: coroutines, waves, fragments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from lamarckian import seeding
from lamarckian.errors import GameError
from lamarckian.mdp.batching import Clock, Scheduler
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.core import MDP, Arrays
from lamarckian.mdp.fragments import FragmentStore
from lamarckian.mdp.policy import Policy
from lamarckian.mdp.rollout import (
    Cast,
    Match,
    MatchResult,
    PlayerFunction,
    PolicyWave,
    spar,
    train,
)
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory

FAILED_MATCHES_IN_A_ROW = 5
"""So many failed matches without a completed one end the collection with the first error."""


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
        self._frames = 0
        self._seconds = {"game": 0.0, "policy": 0.0}
        self._first_error: GameError | None = None
        self._failed_in_a_row = 0
        self._serial = 0
        self._restarts = 0
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
                settings.discounts,
                num_columns=self._targets[name] * 6 + 8,
                memory=policy.memory,
                chunk_length=settings.chunk_length if policy.memory else 0,
            )
            rng = seeding.stream(settings.seed, "wave", name)
            self._waves[name] = _TimedWave(policy, rng, self._seconds, store=store)
        cast: dict[str, Cast] = {}
        for role, name in seating.learners.items():
            cast[role] = Cast(train, wave=self._waves[name], learns=True)
        opponents: list[PolicyWave] = []
        for role, (name, player) in seating.opponents.items():
            if isinstance(player, Policy):
                rng = seeding.stream(settings.seed, "opponent", role)
                wave = _TimedWave(player, rng, self._seconds)
                opponents.append(wave)
                cast[role] = Cast(spar, wave=wave, name=name)
            else:
                cast[role] = Cast(spar, bot=player, name=name)
        for role, player_function in (players or {}).items():
            cast[role].player = player_function
        self._scheduler.waves = [*self._waves.values(), *opponents]
        self._matches = [
            Match(game, cast, self._scheduler, name=type(game).__name__, ended=self._match_ended)
            for game in self._games
        ]
        self._scheduler.watched = list(self._matches)
        self._started = False
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
        self._serial = 0
        for match in self._matches:
            match.stop()
        for wave in self._waves.values():
            assert wave.store is not None
            wave.store.clear()
            wave.rng = seeding.stream(self.settings.seed, "wave", self._restarts)
        for match in self._matches:
            self._play(match)
        self._started = True

    def collect(self) -> dict[str, Trajectory]:
        if not self._started:
            self.restart()
        mark = time.perf_counter()
        before = self._seconds["policy"]
        self._scheduler.run(self._enough)
        if self._failed_in_a_row >= FAILED_MATCHES_IN_A_ROW and self._first_error is not None:
            raise self._first_error
        result = {}
        for name, wave in self._waves.items():
            assert wave.store is not None
            if wave.store.finished:
                result[name] = wave.store.take(len(wave.store.finished), wave.policy)
        spent = time.perf_counter() - mark
        self._seconds["game"] += spent - (self._seconds["policy"] - before)
        return result

    def take_episodes(self) -> list[EpisodeRecord]:
        episodes, self._episodes = self._episodes, []
        return episodes

    def longest_running(self) -> int:
        return max(match.longest_running() for match in self._matches)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Coroutines cannot be saved: a resumed run begins new matches, and so does the run that saved.

        Both therefore continue alike, bit for bit.
        """
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
        if self._failed_in_a_row >= FAILED_MATCHES_IN_A_ROW:
            return True
        done = {
            name: len(wave.store.finished) / self._targets[name]
            for name, wave in self._waves.items()
            if wave.store is not None
        }
        # Roles decide at different rates: beyond three times its share a group stops waiting for others.
        return min(done.values()) >= 1.0 or max(done.values()) >= 3.0

    def _play(self, match: Match) -> None:
        seed = seeding.derive(self.settings.seed, "match", self._restarts, self._serial)
        self._serial += 1
        match.play(seed)

    def _match_ended(self, match: Match, result: MatchResult) -> None:
        if self._closing:
            return
        self.num_matches += 1
        self.num_offline += result.num_offline
        if result.error is not None:
            self.num_failed += 1
            self._failed_in_a_row += 1
            self._first_error = self._first_error or result.error  # type: ignore[assignment]
        else:
            self._failed_in_a_row = 0
            learners = self.seating.learners
            self._episodes.extend(e for e in result.episodes if e.role in learners)
        if self._failed_in_a_row < FAILED_MATCHES_IN_A_ROW:
            self._play(match)


class _TimedWave(PolicyWave):
    """A wave that adds its policy's time to the collector's account."""

    def __init__(self, policy: Policy, rng: Any, account: dict[str, float], **options: Any) -> None:
        super().__init__(policy, rng, **options)
        self._account = account

    def flush(self) -> None:
        mark = time.perf_counter()
        super().flush()
        self._account["policy"] += time.perf_counter() - mark
