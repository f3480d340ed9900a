"""A run whose actors play on while the learner learns: what its journal tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamarckian.rl.gathering import ActorReport
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.ppo import PPO
from lamarckian.runs.display import Status, actor_lines
from lamarckian.runs.folder import Run
from lamarckian.runs.training import train
from lamarckian.runs.training_settings import Evaluating, TrainingRun


def test_asynchronous_ppo_tells_why_data_were_stale_and_what_each_actor_did(tmp_path: Path) -> None:
    settings = TrainingRun(
        game="cartpole",
        algorithm=PPO(
            num_games=4,
            fragment_length=16,
            minibatch_size=32,
            num_epochs=1,
            network=NetworkConfig(hidden=(8,), critic_hidden=(8,)),
        ),
        frames=4096,
        placement="processes",
        num_actors=2,
        collection="asynchronous",
        allow_oversubscription=True,
        evaluation=Evaluating(episodes=0),
    )
    result = train(settings, tmp_path / "run")
    assert result.finished
    events = list(Run.open(tmp_path / "run").replay())
    updates = [event.fields["metrics"] for event in events if event.event == "update"]
    assert len(updates) >= 4096 // (2 * 2 * 16)
    for metrics in updates:
        parts = [metrics[f"staleness_{part}"] for part in ("broadcast", "hold", "gather")]
        assert sum(parts) == pytest.approx(metrics["staleness_mean"])
        assert min(parts) >= 0.0
        assert metrics["staleness_max"] <= settings.max_staleness + 1
        assert metrics["cpu_use"] >= 0.0
    assert max(metrics["bytes_per_second"] for metrics in updates) > 0.0
    last = [event.fields["actors"] for event in events if event.event == "actors"][-1]
    assert [actor["actor"] for actor in last] == [0, 1]
    assert set(last[0]) == set(ActorReport.__struct_fields__)
    assert sum(actor["fragments"] for actor in last) * 32 >= result.frames
    assert all(actor["bytes"] > 0 and actor["running"] for actor in last)
    assert all(actor["queue_depth"] <= settings.fragments_in_flight for actor in last)


def test_the_panel_names_actors_in_trouble_first() -> None:
    status = Status(None, 0.0)
    good = {"cpu_use": 0.5, "queue_depth": 1, "bytes": 2_000_000, "running": True}
    actors = [{"actor": i, **good} for i in range(9)]
    actors[8]["dropped_samples"] = 64
    actors[8]["running"] = False
    status.take("actors", {"frames": 1, "actors": actors})
    lines = actor_lines(status)
    assert lines[0] == "8: cpu 50%  queue 1  2.0 MB  dropped samples 64  not running"
    assert lines[-1] == "and 1 more"
    assert len(lines) == 9
