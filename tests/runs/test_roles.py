"""Several roles in one training: different spaces, different scales, one policy or several."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_training import settings

from lamarckian.errors import ConfigError
from lamarckian.rl.assembly import assemble
from lamarckian.runs.training import train


def test_pitfalls_ma_10_roles_with_different_spaces_train_together(tmp_path: Path) -> None:
    result = train(settings("role_games:ThreeRoles", 2 * 4), tmp_path / "run")
    assert result.evaluation is not None
    metrics = result.evaluation["metrics"]
    # Ten ticks: the scout returns 10, the tank 10 per head, each medic 10.
    assert metrics["return_mean/scout"] == 10.0
    assert metrics["return_mean/tank"] == 20.0
    assert metrics["return_mean/medic"] == 10.0


def test_policies_are_shared_where_spaces_are_equal_unless_asked_otherwise() -> None:
    shared = assemble(settings("role_games:Unequal", 1))
    assert shared.seating.learners == {"poor": "poor", "rich": "poor"}
    apart = assemble(settings("role_games:Unequal", 1, share_policies=False))
    assert apart.seating.learners == {"poor": "poor", "rich": "rich"}


def test_pitfalls_ma_12_a_role_with_large_rewards_does_not_drown_the_others(tmp_path: Path) -> None:
    """With a policy each, advantages are scaled per role: both learn the paying action alike."""
    more = {
        "share_policies": False,
        "algorithm.learning_rate": 0.02,
        "algorithm.entropy_weight": 0.0,
    }
    result = train(settings("role_games:Unequal", 40, **more), tmp_path / "run")
    assert result.evaluation is not None
    metrics = result.evaluation["metrics"]
    assert metrics["return_mean/poor"] == pytest.approx(10.0)
    assert metrics["return_mean/rich"] == pytest.approx(10_000.0)


def test_heads_of_different_roles_take_their_own_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.discount: expected one number or 1"):
        train(settings("role_games:ThreeRoles", 1, **{"algorithm.discount": [0.9, 0.99]}))
