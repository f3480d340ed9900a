"""Staleness: the parts by hand, injected delays found again, and slow actors that hold nobody up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lamarckian.distributed.group import Group, Report, WorkerOptions
from lamarckian.distributed.inprocess import InProcessGroup
from lamarckian.distributed.workers import WorkerGroup
from lamarckian.rl.assembly import Training, assemble, make_learners
from lamarckian.rl.gathering_processes import Processes
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.staleness import Delays

SMALL = NetworkConfig(hidden=(8,))


def test_the_parts_add_up_by_hand() -> None:
    delays = Delays()
    for version in range(11):  # version v is published at second v
        delays.published(float(version), {"player": version})
    # Sent at 7.5, when 7 was the newest; the actor held 5; drawn with 3, 4, 5. Learned at 11.
    delays.arrived("player", 7.5, 5, np.array([3, 4, 5]))
    parts = delays.split({"player": 11})
    assert parts == {"staleness_broadcast": 2.0, "staleness_hold": 1.0, "staleness_gather": 4.0}
    assert sum(parts.values()) == np.mean([11 - 3, 11 - 4, 11 - 5])
    assert sum(delays.split({"player": 11}).values()) == 0.0  # nothing came since


@pytest.mark.parametrize("skew", [-100.0, 100.0])
def test_clocks_that_disagree_move_the_parts_but_not_their_sum(skew: float) -> None:
    delays = Delays()
    for version in range(11):
        delays.published(float(version), {"player": version})
    delays.arrived("player", 7.5 + skew, 5, np.array([3, 5]))
    parts = delays.split({"player": 12})
    assert sum(parts.values()) == pytest.approx(8.0)
    assert min(parts.values()) >= 0.0


class _Late:
    """A group whose weights reach the actors ``late`` publications after they were made."""

    def __init__(self, group: Group, late: int) -> None:
        self._group = group
        self._waiting: deque[Any] = deque()
        self._late = late

    def publish(self, version: int, arrays: Any) -> None:
        self._waiting.append((version, {name: array.copy() for name, array in arrays.items()}))
        if version == 0 or len(self._waiting) > self._late:
            self._group.publish(*(self._waiting[0] if version == 0 else self._waiting.popleft()))
        if version == 0:
            self._waiting.popleft()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


class _LatePlace:
    name = "late"

    def __init__(self, late: int, options: WorkerOptions | None = None) -> None:
        self.late = late
        self.options = options

    def start(self, entry: str, configs: Sequence[Any], report: Report | None = None) -> Any:
        say = report or (lambda line: None)
        if self.options is None:
            return _Late(InProcessGroup(entry, configs, say), self.late)
        return _Late(WorkerGroup(entry, configs, self.options, say), self.late)


def _run(place: _LatePlace, num_updates: int, num_actors: int) -> list[dict[str, float]]:
    algorithm = IMPALA(num_games=num_actors, fragment_length=8, network=SMALL)
    training = Training(game="cartpole", algorithm=algorithm)
    assembly = assemble(training)
    learner = make_learners(assembly)["player"]
    gathering = Processes(
        training,
        assembly,
        num_actors=num_actors,
        synchronous=False,
        max_staleness=100,
        allow_oversubscription=True,
        place=place,
    )
    figures = []
    try:
        gathering.start()
        for _ in range(num_updates):
            stats = learner.update(gathering.gather()["player"])
            gathering.publish()
            figures.append(stats | gathering.metrics())
    finally:
        gathering.close()
    return figures


@pytest.mark.parametrize("late", [0, 3, 10])
def test_an_injected_delay_of_updates_is_reported(late: int) -> None:
    # One actor that plays when it is asked: its decisions are `late` updates old, and the update
    # that learns from them makes one more version. Nothing else delays anything.
    settled = _run(_LatePlace(late), late + 12, 1)[late + 2 :]
    reported = np.mean([each["staleness_mean"] for each in settled])
    assert reported == pytest.approx(late + 1, rel=0.1)
    assert np.mean([each["staleness_broadcast"] for each in settled]) == pytest.approx(
        late, abs=0.1 * late
    )
    for each in settled:
        parts = each["staleness_broadcast"] + each["staleness_hold"] + each["staleness_gather"]
        assert parts == pytest.approx(each["staleness_mean"])


@pytest.mark.slow
def test_an_injected_delay_between_processes_is_reported_beside_what_they_hold() -> None:
    options = WorkerOptions(allow_oversubscription=True)
    plain = _run(_LatePlace(0, options), 400, 2)[100:]
    late = _run(_LatePlace(20, options), 400, 2)[100:]
    known = np.mean([each["staleness_mean"] for each in plain])
    reported = np.mean([each["staleness_mean"] for each in late])
    assert reported == pytest.approx(20 + known, rel=0.1)


def sleeper(config: dict[str, Any], channel: Any) -> Any:
    """Entry point: an actor that plays for 10 ms per fragment; the last one for a second if asked."""
    from lamarckian.rl.actor import actor

    seconds = config.pop("seconds")[channel.worker]
    steps = actor(config, channel)
    yield next(steps)
    for _ in steps:
        time.sleep(seconds)
        yield


class _SleepyPlace:
    name = "sleepy"

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds

    def start(self, entry: str, configs: Sequence[Any], report: Report | None = None) -> Any:
        slowed = [{**config, "seconds": self.seconds} for config in configs]
        options = WorkerOptions(allow_oversubscription=True)
        return WorkerGroup("test_staleness:sleeper", slowed, options, lambda line: None)


def _rate(seconds: list[float]) -> float:
    """Return the fragments per second that the first seven of eight actors deliver."""
    algorithm = IMPALA(num_games=8, fragment_length=4, network=SMALL)
    training = Training(game="cartpole", algorithm=algorithm)
    gathering = Processes(
        training,
        assemble(training),
        num_actors=8,
        synchronous=False,
        max_staleness=4,
        allow_oversubscription=True,
        place=_SleepyPlace(seconds),
    )
    try:
        gathering.start()
        for _ in range(5):
            gathering.gather()
        before = {each.actor: each.fragments for each in gathering.actors()}
        began = time.monotonic()
        while time.monotonic() - began < 5.0:
            gathering.gather()
        after = {each.actor: each.fragments for each in gathering.actors()}
        return sum(after[i] - before[i] for i in range(7)) / (time.monotonic() - began)
    finally:
        gathering.close()


@pytest.mark.slow
def test_pitfalls_dst_04_one_of_eight_actors_a_hundred_times_slower_holds_nobody_up() -> None:
    even = _rate([0.05] * 8)
    uneven = _rate([0.05] * 7 + [5.0])
    assert uneven >= 0.8 * even


def test_a_batch_is_made_of_what_came_first() -> None:
    """Of two actors one sends every hundredth turn: batches of two fragments come from the other."""
    algorithm = IMPALA(num_games=2, fragment_length=4, network=SMALL)
    training = Training(game="cartpole", algorithm=algorithm)

    class Place:
        name = "turns"

        def start(self, entry: str, configs: Sequence[Any], report: Any = None) -> Any:
            return InProcessGroup("test_staleness:rare", configs, lambda line: None)

    gathering = Processes(
        training,
        assemble(training),
        num_actors=2,
        synchronous=False,
        max_staleness=4,
        allow_oversubscription=True,
        place=Place(),
    )
    try:
        gathering.start()
        lanes = [gathering.gather()["player"].valid.shape[1] for _ in range(20)]
        sent = {each.actor: each.fragments for each in gathering.actors()}
    finally:
        gathering.close()
    assert lanes == [2] * 20
    assert sent[0] >= 39
    assert sent[1] <= 1


def rare(config: dict[str, Any], channel: Any) -> Any:
    """Entry point: actor 1 needs a hundred turns for what actor 0 does in one."""
    from lamarckian.rl.actor import actor

    steps = actor(config, channel)
    yield next(steps)
    for _ in steps:
        yield
        for _ in range(99 * channel.worker):
            yield
