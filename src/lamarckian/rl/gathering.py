"""Where experience comes from: this process, or actors in processes of their own.

A :class:`Gathering` hides the placement from the training loop: ``gather`` returns one batch per group of
policies, ``publish`` makes the learner's present weights the ones that play.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from lamarckian import seeding
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory
from lamarckian.rl.assembly import Assembly, Training


class ActorReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One actor as seen from the learner. Counts are since its process began, but for drops and losses.

    ``queue_depth`` fragments sent and not yet read; ``lost_fragments`` sent and never arrived;
    ``dropped_samples`` too old to be learned from; ``cpu_use`` cores in use since the last report;
    ``waited_seconds`` for credit or weights; ``node`` the host it runs on ("": this one).
    """

    actor: int
    running: bool
    restarts: int
    fragments: int
    bytes: int
    queue_depth: int
    lost_fragments: int
    dropped_samples: int
    cpu_use: float
    waited_seconds: float
    node: str = ""


class Gathering(Protocol):
    """A source of experience for one training."""

    @property
    def num_frames(self) -> int: ...

    @property
    def num_decisions(self) -> int: ...

    def start(self) -> None:
        """Start what plays; called once, after a restored state has been loaded."""
        ...

    def gather(self) -> dict[str, Trajectory]:
        """Return one batch per group of policies."""
        ...

    def publish(self) -> None:
        """Let the present weights play from now on."""
        ...

    def take_episodes(self) -> list[EpisodeRecord]: ...

    def longest_running(self) -> int: ...

    def take_actor_cpu_seconds(self) -> float:
        """Processor time of other processes since the last call."""
        ...

    def metrics(self) -> dict[str, float]:
        """Where time goes, failures, staleness: names as in :mod:`lamarckian.metrics`."""
        ...

    def actors(self) -> list[ActorReport]:
        """Return one record per actor in a process of its own."""
        ...

    def state(self) -> tuple[dict[str, Any], Arrays]: ...

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None: ...

    def close(self) -> None: ...


class InProcess:
    """One collector in the learner's process: it plays with the very policies that are trained."""

    def __init__(self, training: Training, assembly: Assembly) -> None:
        self._collector = assembly.make_collector(
            training.algorithm.num_games, seeding.derive(training.seed, "actor", 0)
        )
        self._seconds = dict(self._collector.seconds)

    @property
    def num_frames(self) -> int:
        return self._collector.num_frames

    @property
    def num_decisions(self) -> int:
        return self._collector.num_decisions

    def start(self) -> None:
        """Nothing to start: the collector plays when asked."""

    def gather(self) -> dict[str, Trajectory]:
        return self._collector.collect()

    def publish(self) -> None:
        """Nothing to send: learner and collector share the policies."""

    def take_episodes(self) -> list[EpisodeRecord]:
        return self._collector.take_episodes()

    def longest_running(self) -> int:
        return self._collector.longest_running()

    def take_actor_cpu_seconds(self) -> float:
        return 0.0

    def metrics(self) -> dict[str, float]:
        now = dict(self._collector.seconds)
        game, policy = (now[key] - self._seconds[key] for key in ("game", "policy"))
        self._seconds = now
        total = max(game + policy, 1e-9)
        return {
            "share_environment": game / total,
            "share_inference": policy / total,
            **self._collector.metrics(),
        }

    def actors(self) -> list[ActorReport]:
        return []

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return self._collector.state()

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        self._collector.load_state(data, arrays)

    def close(self) -> None:
        self._collector.close()
