"""Gathering from actors: processes of this machine, trajectories through shared memory."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import numpy as np

from lamarckian.distributed.group import Group, Received, WorkerOptions
from lamarckian.distributed.placement import placement
from lamarckian.distributed.process import ThreadPlan, available_cores
from lamarckian.errors import ConfigError, WorkerError
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory, concatenate, from_arrays
from lamarckian.rl.actor import weights_of
from lamarckian.rl.assembly import Assembly, Training

PATIENCE = 600.0
"""Seconds the learner waits for actors before it gives up and names them."""

_log = logging.getLogger("lamarckian.actors")


def _report(line: str) -> None:
    """Say what befalls the workers; the plan of their threads only to who wants to know more."""
    _log.log(logging.INFO if line.startswith("threads: ") else logging.WARNING, "%s", line)


class _Tally:
    """A count that actors report as a running total; it never falls when an actor starts again."""

    def __init__(self) -> None:
        self.base = 0.0
        self._latest: dict[int, float] = {}

    def report(self, worker: int, total: float) -> None:
        if total < self._latest.get(worker, 0.0):
            self.base += self._latest[worker]
        self._latest[worker] = total

    @property
    def total(self) -> float:
        return self.base + sum(self._latest.values())


class Processes:
    """Actors play with the newest published weights (see :class:`~.gathering.Gathering`).

    Synchronous: every batch holds one fragment of each actor, all drawn with the present weights.
    Asynchronous: actors never wait for the learner but for credit; a batch is made of whatever came
    first, and fragments more than ``max_staleness`` versions old are dropped and counted.
    """

    def __init__(
        self,
        training: Training,
        assembly: Assembly,
        *,
        num_actors: int,
        synchronous: bool,
        max_staleness: int,
        allow_oversubscription: bool,
    ) -> None:
        ThreadPlan(num_actors, 1, available_cores()).check(allow_oversubscription)
        num_games = training.algorithm.num_games
        if num_games < num_actors:
            raise ConfigError(
                f"algorithm.num_games: expected at least one match per actor ({num_actors}), "
                f"got {num_games}"
            )
        self._training = training
        self._policies = assembly.policies
        self._num_actors = num_actors
        self._synchronous = synchronous
        self._max_staleness = max_staleness
        self._options = WorkerOptions(allow_oversubscription=allow_oversubscription)
        self._group: Group | None = None
        self._episodes: list[EpisodeRecord] = []
        self._longest: dict[int, int] = {}
        self._tallies = {
            name: _Tally()
            for name in ("num_frames", "num_decisions", "cpu_seconds", "game", "policy")
        }
        self._cpu_taken = 0.0
        self._shares = (0.0, 0.0)
        self._num_dropped = 0

    @property
    def num_frames(self) -> int:
        return int(self._tallies["num_frames"].total)

    @property
    def num_decisions(self) -> int:
        return int(self._tallies["num_decisions"].total)

    def start(self) -> None:
        games = self._training.algorithm.num_games
        shares = [len(part) for part in np.array_split(np.arange(games), self._num_actors)]
        settings = {
            name: value
            for name, value in msgspec.to_builtins(self._training).items()
            if name in Training.__struct_fields__
        }
        configs = [
            {"training": settings, "num_games": share, "synchronous": self._synchronous}
            for share in shares
        ]
        self._group = placement("processes", self._options).start(
            "lamarckian.rl.actor:actor", configs, _report
        )
        self.publish()

    def publish(self) -> None:
        assert self._group is not None
        self._group.publish(self._version(), weights_of(self._policies))

    def gather(self) -> dict[str, Trajectory]:
        assert self._group is not None
        parts: dict[str, list[Trajectory]] = {group: [] for group in self._policies}
        if self._synchronous:
            for received in self._group.receive_from_all(PATIENCE):
                self._unpack(received, parts)
        else:
            taken = 0
            while taken < self._num_actors:
                one = self._group.receive(PATIENCE)
                if one is None:
                    raise WorkerError(
                        f"no actor sent anything for {PATIENCE:.0f} s ({self._group.num_running} of "
                        f"{self._num_actors} run); see the worker messages above"
                    )
                taken += self._unpack(one, parts)
        return {group: concatenate(some) for group, some in parts.items() if some}

    def take_episodes(self) -> list[EpisodeRecord]:
        episodes, self._episodes = self._episodes, []
        return episodes

    def longest_running(self) -> int:
        return max(self._longest.values(), default=0)

    def take_actor_cpu_seconds(self) -> float:
        total = self._tallies["cpu_seconds"].total
        spent, self._cpu_taken = total - self._cpu_taken, total
        return spent

    def metrics(self) -> dict[str, float]:
        now = (self._tallies["game"].total, self._tallies["policy"].total)
        game, policy = (after - before for after, before in zip(now, self._shares, strict=True))
        self._shares = now
        total = max(game + policy, 1e-9)
        failures = sum(worker.restarts for worker in self._group.stats()) if self._group else 0
        return {
            "share_environment": game / total,
            "share_inference": policy / total,
            "dropped_samples": float(self._num_dropped),
            "worker_failures": float(failures),
        }

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Only totals: actors begin new episodes when a run is resumed."""
        return {name: tally.total for name, tally in self._tallies.items()}, {}

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        for name, tally in self._tallies.items():
            tally.base = float(data[name])
        self._cpu_taken = self._tallies["cpu_seconds"].total

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    def _version(self) -> int:
        return max(policy.version for policy in self._policies.values())

    def _unpack(self, received: Received, parts: dict[str, list[Trajectory]]) -> bool:
        """Copy a fragment out of shared memory; False if it is too old to be used."""
        header = received.header
        for name in ("num_frames", "num_decisions", "cpu_seconds"):
            self._tallies[name].report(received.worker, float(header[name]))
        for name in ("game", "policy"):
            self._tallies[name].report(received.worker, float(header["seconds"][name]))
        self._longest[received.worker] = int(header["longest_running"])
        self._episodes.extend(msgspec.convert(e, EpisodeRecord) for e in header["episodes"])
        fresh = True
        for group, chunk_header in header["groups"].items():
            prefix = f"{group}/"
            arrays = {
                k[len(prefix) :]: np.array(v)
                for k, v in received.arrays.items()
                if k.startswith(prefix)
            }
            trajectory = from_arrays(chunk_header, arrays)
            oldest = int(trajectory.policy_version.min())
            if not self._synchronous and self._version() - oldest > self._max_staleness:
                self._num_dropped += trajectory.num_decisions
                fresh = False
                continue
            parts[group].append(trajectory)
        received.release()
        return fresh
