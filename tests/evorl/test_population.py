"""Members trained together learn what each of them would learn alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lamarckian.evaluator import Decision, Outcome
from lamarckian.evorl.evaluating import is_grouped, stream_of
from lamarckian.evorl.population import misfits
from lamarckian.evorl.rl_evaluator import RLEvaluator, task_from
from lamarckian.evorl.stacked import StackedAdam

SMALL: dict[str, Any] = {
    "num_games": 8,
    "fragment_length": 16,
    "minibatch_size": 48,
    "num_epochs": 2,
    "network": {"hidden": [24, 16], "critic_hidden": [12]},
}


def evaluator(game: str, algorithm: dict[str, Any] | None = None, **task: Any) -> RLEvaluator:
    torch.set_num_threads(1)
    settings = {"frames": 256, "episodes": 4, "algorithm": {**SMALL, **(algorithm or {})}, **task}
    return RLEvaluator(task_from({"game": game, **settings}, {}))


def decisions(made: RLEvaluator, num: int) -> list[Decision]:
    return [made.initialize(np.random.default_rng(seed)) for seed in range(num)]


def weights(outcome: Outcome) -> dict[str, Any]:
    assert outcome.failed is None
    assert outcome.decision is not None
    blob = outcome.decision["weights"]
    assert isinstance(blob, dict)
    return blob


@pytest.mark.parametrize(
    ("game", "algorithm"),
    [
        ("cartpole", {}),
        ("pong", {}),
        ("pendulum", {"network": {**SMALL["network"], "layer_norm": True, "activation": "tanh"}}),
        ("cartpole", {"value_clip_range": 0.2, "minibatch_size": 0}),
        ("pong", {"normalise_observations": True, "normalise_values": "running"}),
    ],
)
def test_a_member_learns_what_it_would_learn_alone(game: str, algorithm: dict[str, Any]) -> None:
    made = evaluator(
        game,
        algorithm,
        genes={
            "learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
            "clip_range": {"low": 0.05, "high": 0.3},
            "entropy_weight": {"low": 0.0, "high": 0.1},
            "discount": {"low": 0.9, "high": 0.99},
            "max_gradient_norm": {"low": 0.1, "high": 1.0},
        },
    )
    assert misfits(made.assembly, made.task.algorithm) == []
    assert is_grouped(made)
    start = decisions(made, 3)
    # Twice, so that inherited moments take part.
    for generation in range(2):
        ids = [3 * generation + row for row in range(3)]
        alone = [made.evaluate(d, stream_of(5, i)) for d, i in zip(start, ids, strict=True)]
        together = made.evaluate_group(start, [stream_of(5, i) for i in ids])
        for one, other in zip(alone, together, strict=True):
            assert one.statistics["frames"] == other.statistics["frames"] == 256
            for name, array in weights(one).items():
                np.testing.assert_allclose(array, weights(other)[name], rtol=2e-3, atol=2e-5)
            np.testing.assert_allclose(one.objectives, other.objectives, rtol=1e-3)
            for name in ("in_force/learning_rate", "in_force/clip_range"):
                assert one.statistics[name] == pytest.approx(other.statistics[name])
        start = [{**d, **(o.decision or {})} for d, o in zip(start, alone, strict=True)]


@pytest.mark.parametrize(
    ("game", "algorithm", "reason"),
    [
        ("cartpole", {"network": {**SMALL["network"], "memory": "gru"}}, "memory"),
        ("cartpole", {"normalise_values": "popart"}, "popart"),
        ("cartpole", {"target_kl": 0.01}, "target_kl"),
        ("duel", {}, "not stepped as arrays"),
    ],
)
def test_what_cannot_be_batched_is_trained_one_by_one(
    game: str, algorithm: dict[str, Any], reason: str
) -> None:
    made = evaluator(game, algorithm)
    assert reason in " ".join(misfits(made.assembly, made.task.algorithm))
    assert not is_grouped(made)


def test_pitfalls_num_02_a_step_that_is_not_finite_is_skipped_by_that_member_alone() -> None:
    weights = torch.ones(3, 5)
    moments = (torch.zeros(3, 5), torch.zeros(3, 5), torch.zeros(3, 1))
    adam = StackedAdam(weights, moments, torch.full((3, 1), 0.1), torch.full((3, 1), 1.0), 1e-8)
    gradient = torch.ones(3, 5)
    gradient[1, 2] = torch.nan
    everybody = torch.ones(3, dtype=torch.bool)
    adam.step(gradient, torch.zeros(3), everybody)
    # The first step of Adam is the step size, whatever the gradient: 1 - 0.1.
    np.testing.assert_allclose(weights[[0, 2]], 0.9, rtol=1e-5)
    np.testing.assert_array_equal(weights[1], 1.0)
    np.testing.assert_array_equal(adam.mean[1], 0.0)
    assert adam.num_skipped.tolist() == [0, 1, 0]
    assert adam.steps[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_a_stacked_step_equals_the_steps_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    start, rates = torch.randn(2, 7, generator=generator), [1e-2, 3e-3]
    lone = [torch.nn.Parameter(start[row].clone()) for row in range(2)]
    optimisers = [
        torch.optim.Adam([each], lr=rate, eps=1e-5) for each, rate in zip(lone, rates, strict=True)
    ]
    weights = start.clone()
    moments = (torch.zeros(2, 7), torch.zeros(2, 7), torch.zeros(2, 1))
    norms = torch.tensor([[0.5], [2.0]])
    adam = StackedAdam(weights, moments, torch.tensor(rates)[:, None], norms, 1e-5)
    for _ in range(5):
        gradient = torch.randn(2, 7, generator=generator)
        for row, (each, optimiser) in enumerate(zip(lone, optimisers, strict=True)):
            each.grad = gradient[row].clone()
            torch.nn.utils.clip_grad_norm_([each], float(norms[row]))
            optimiser.step()
        adam.step(gradient, torch.zeros(2), torch.ones(2, dtype=torch.bool))
    for row in range(2):
        np.testing.assert_allclose(weights[row], lone[row].detach(), rtol=1e-5, atol=1e-6)
