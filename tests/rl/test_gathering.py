"""Gathering from actors: what is kept, what is dropped, what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from trajectories import make_trajectory

from lamarckian.distributed.group import Received
from lamarckian.errors import ConfigError
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.assembly import Assembly, Training, assemble
from lamarckian.rl.gathering_processes import Processes
from lamarckian.rl.ppo import PPO

TRAINING = Training(game="cartpole", algorithm=PPO(num_games=4))


def fragment(version: int) -> Trajectory:
    trajectory = make_trajectory(
        rewards=[1.0, 1.0], values=[0.0, 0.0], terminated=[False, True], truncated=[False, False]
    )
    trajectory.policy_version[:] = version
    return trajectory


def received(worker: int, version: int, frames: int, cpu: float = 1.0) -> Received:
    header, arrays = fragment(version).to_arrays()
    return Received(
        worker,
        {
            "groups": {"player": header},
            "episodes": [],
            "num_frames": frames,
            "num_decisions": frames,
            "seconds": {"game": 1.0, "policy": 1.0},
            "cpu_seconds": cpu,
            "longest_running": 7,
            "sent_at": 0.0,
            "held": {"player": version},
        },
        {f"player/{name}": array for name, array in arrays.items()},
    )


class FakeGroup:
    """Hands out prepared fragments."""

    num_running = 2

    def __init__(self, waiting: list[Received]) -> None:
        self.waiting = waiting
        self.published: list[int] = []

    def publish(self, version: int, arrays: Mapping[str, Any]) -> None:
        self.published.append(version)

    def receive(self, timeout: float | None = None) -> Received | None:
        return self.waiting.pop(0) if self.waiting else None

    def stats(self) -> list[Any]:
        return []

    def close(self) -> None:
        self.waiting = []


def gathering(waiting: list[Received], max_staleness: int = 3) -> tuple[Processes, Assembly]:
    assembly = assemble(TRAINING)
    own = Processes(
        TRAINING,
        assembly,
        num_actors=2,
        synchronous=False,
        max_staleness=max_staleness,
        allow_oversubscription=True,
    )
    own._group = FakeGroup(waiting)  # type: ignore[assignment]
    return own, assembly


def test_pitfalls_dst_09_data_older_than_the_bound_are_dropped_and_counted() -> None:
    # The learner is at version 10 and allows 3 behind: versions 6 and 2 go, 7 and 10 stay.
    own, assembly = gathering([received(0, v, 2) for v in (6, 7, 2, 10)])
    assembly.policies["player"].version = 10
    batch = own.gather()["player"]
    assert sorted(set(batch.policy_version.ravel().tolist())) == [7, 10]
    assert 10 - batch.policy_version.min() <= 3
    assert own.metrics()["dropped_samples"] == 4.0  # two fragments of two decisions


def test_totals_never_fall_when_an_actor_starts_again() -> None:
    own, _ = gathering([received(0, 0, 100, 5.0), received(1, 0, 50, 4.0)])
    own.gather()
    assert own.num_frames == 150
    own._group = FakeGroup([received(0, 0, 10, 0.5), received(1, 0, 60, 5.0)])  # type: ignore[assignment]
    own.gather()
    # Actor 0 was restarted and counts from zero again: 100 + 10, and actor 1 goes on to 60.
    assert own.num_frames == 170
    assert own.take_actor_cpu_seconds() == pytest.approx(5.0 + 0.5 + 5.0)
    assert own.take_actor_cpu_seconds() == 0.0


def test_totals_survive_a_resume() -> None:
    own, _ = gathering([received(0, 0, 100), received(1, 0, 50)])
    own.gather()
    data, _ = own.state()
    resumed, _ = gathering([received(0, 0, 8), received(1, 0, 8)])
    resumed.load_state(data, {})
    assert resumed.num_frames == 150
    resumed.gather()
    assert resumed.num_frames == 166


def test_each_actor_needs_a_match() -> None:
    with pytest.raises(ConfigError, match=r"at least one match per actor \(8\), got 4"):
        Processes(
            TRAINING,
            assemble(TRAINING),
            num_actors=8,
            synchronous=True,
            max_staleness=1,
            allow_oversubscription=True,
        )
