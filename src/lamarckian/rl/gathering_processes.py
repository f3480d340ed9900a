"""Gathering from actors: processes of this machine, trajectories through shared memory."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

import msgspec
import numpy as np

from lamarckian.distributed.group import Group, Received, WorkerOptions
from lamarckian.distributed.placement import Placement, placement
from lamarckian.distributed.process import ThreadPlan, available_cores
from lamarckian.errors import ConfigError, WorkerError
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory, concatenate, from_arrays
from lamarckian.rl.actor import weights_of
from lamarckian.rl.assembly import Assembly, Training
from lamarckian.rl.gathering import ActorReport
from lamarckian.rl.staleness import Delays

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
    Asynchronous: actors take newer weights between decisions and never wait for the learner but for
    credit, which is ``fragments_in_flight`` unread fragments each; a batch is made of whatever came
    first, and fragments more than ``max_staleness`` versions old are dropped and counted.

    ``place`` starts the actors; None: processes of this machine.
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
        fragments_in_flight: int = 2,
        place: Placement | None = None,
    ) -> None:
        if place is None:
            ThreadPlan(num_actors, 1, available_cores()).check(allow_oversubscription)
            options = WorkerOptions(
                allow_oversubscription=allow_oversubscription,
                fragments_in_flight=fragments_in_flight,
            )
            place = placement("processes", options)
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
        self._place = place
        self._group: Group | None = None
        self._episodes: list[EpisodeRecord] = []
        self._longest: dict[int, int] = {}
        self._tallies = {
            name: _Tally()
            for name in ("num_frames", "num_decisions", "cpu_seconds", "game", "policy")
        }
        self._cpu_taken = 0.0
        self._shares = (0.0, 0.0)
        self._dropped: Counter[int] = Counter()
        self._delays = Delays()
        self._bytes_taken = 0
        self._measured_at = time.monotonic()
        self._reported: dict[int, tuple[float, float]] = {}

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
        self._group = self._place.start("lamarckian.rl.actor:actor", configs, _report)
        self._measured_at = time.monotonic()
        self.publish()

    def publish(self) -> None:
        assert self._group is not None
        self._delays.published(time.time(), self._versions())
        self._group.publish(max(self._versions().values()), weights_of(self._policies))

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
        stats = self._group.stats() if self._group else []
        clock, sent = time.monotonic(), sum(worker.bytes for worker in stats)
        seconds, self._measured_at = clock - self._measured_at, clock
        # A worker that starts again counts its bytes from zero.
        moved, self._bytes_taken = max(0, sent - self._bytes_taken), sent
        return {
            "share_environment": game / total,
            "share_inference": policy / total,
            "dropped_samples": float(self._dropped.total()),
            "lost_fragments": float(sum(worker.lost for worker in stats)),
            "worker_failures": float(sum(worker.restarts for worker in stats)),
            "queue_depth": float(sum(worker.unread for worker in stats)),
            "bytes_per_second": moved / max(seconds, 1e-9),
            **self._delays.split(self._versions()),
        }

    def actors(self) -> list[ActorReport]:
        if self._group is None:
            return []
        reports = []
        now = time.monotonic()
        for worker in self._group.stats():
            before, cpu = self._reported.get(worker.worker, (self._measured_at, 0.0))
            self._reported[worker.worker] = (now, worker.cpu_seconds)
            reports.append(
                ActorReport(
                    actor=worker.worker,
                    running=worker.running,
                    restarts=worker.restarts,
                    fragments=worker.fragments,
                    bytes=worker.bytes,
                    queue_depth=worker.unread,
                    lost_fragments=worker.lost,
                    dropped_samples=self._dropped[worker.worker],
                    cpu_use=max(0.0, worker.cpu_seconds - cpu) / max(now - before, 1e-9),
                    waited_seconds=worker.waited_seconds,
                    node=worker.node,
                )
            )
        return reports

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

    def _versions(self) -> dict[str, int]:
        return {group: policy.version for group, policy in self._policies.items()}

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
            drawn = trajectory.policy_version[trajectory.valid]
            behind = self._policies[group].version - int(drawn.min(initial=1 << 62))
            if not self._synchronous and behind > self._max_staleness:
                self._dropped[received.worker] += trajectory.num_decisions
                fresh = False
                continue
            self._delays.arrived(group, header["sent_at"], header["held"][group], drawn)
            parts[group].append(trajectory)
        received.release()
        return fresh
