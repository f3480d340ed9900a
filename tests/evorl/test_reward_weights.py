"""Weights over reward heads are genes: each member learns under its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lamarckian.errors import ConfigError
from lamarckian.evaluator import Decision
from lamarckian.evorl.evaluating import is_grouped, stream_of
from lamarckian.evorl.rl_evaluator import RLEvaluator, task_from

GENES: dict[str, Any] = {
    "learning_rate": None,
    "value_weight": None,
    "reward_weights": {"left": {"low": 0.0, "high": 2.0}, "right": {"low": 0.0, "high": 2.0}},
}


def evaluator(**genes: Any) -> RLEvaluator:
    torch.set_num_threads(1)
    task = {
        "game": "lamarckian.testing.games:Taste",
        "frames": 4096,
        "episodes": 8,
        "genes": {**GENES, **genes},
        "algorithm": {
            "learning_rate": 0.03,
            "num_games": 16,
            "fragment_length": 16,
            "minibatch_size": 0,
            "network": {"hidden": [8], "critic_hidden": [8]},
        },
    }
    return RLEvaluator(task_from(task, {}))


def test_each_member_learns_under_the_weights_of_its_own() -> None:
    made = evaluator()
    assert is_grouped(made)
    assert {"reward_weights.left", "reward_weights.right"} < set(made.describe().parts)
    start: list[Decision] = []
    for left, right in ((1.0, 0.0), (0.0, 1.0)):
        decision = made.initialize(np.random.default_rng(1))
        decision |= {"reward_weights.left": left, "reward_weights.right": right}
        start.append(decision)
    together = made.evaluate_group(start, [stream_of(3, row) for row in range(2)])
    assert together[0].statistics["return_mean"] == pytest.approx(8.0)
    for outcome, (left, right) in zip(together, ((1.0, 0.0), (0.0, 1.0)), strict=True):
        assert outcome.statistics["in_force/reward_weights.left"] == left
        assert outcome.statistics["in_force/reward_weights.right"] == right
    # A lone member learns the same from the same streams, but for rounding.
    alone = [made.evaluate(decision, stream_of(3, row)) for row, decision in enumerate(start)]
    for one, other in zip(alone, together, strict=True):
        weights, others = one.decision["weights"], other.decision["weights"]  # type: ignore[index]
        for name, array in weights.items():  # type: ignore[union-attr]
            np.testing.assert_allclose(array, others[name], rtol=5e-3, atol=1e-4)  # type: ignore[index,call-overload]
    # Whose left head weighs goes left, and the other way round: bias of the policy's two logits.
    biases = [
        next(
            array
            for name, array in outcome.decision["weights"].items()  # type: ignore[index,union-attr]
            if name.startswith("policy/") and "policy_head.bias" in name
        )
        for outcome in together
    ]
    assert biases[0][0] - biases[0][1] > 0.2
    assert biases[1][1] - biases[1][0] > 0.2


def test_heads_without_a_gene_keep_their_weight() -> None:
    made = evaluator(reward_weights={"right": {"low": 0.0, "high": 2.0}})
    decision = made.initialize(np.random.default_rng(1)) | {"reward_weights.right": 0.25}
    assert made.algorithm_of(decision).reward_weights == (1.0, 0.25)


def test_a_strange_head_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"no reward head 'rihgt'.*right"):
        evaluator(reward_weights={"rihgt": {"low": 0.0, "high": 2.0}})
