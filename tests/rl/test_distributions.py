"""Distributions: hand-computed values, naive versions, gradients, and the masks of the pitfalls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.mdp.core import (
    Bounds,
    Continuous,
    Discrete,
    Input,
    MultiDiscrete,
    Role,
    to_game_action,
)
from lamarckian.mdp.policy import draw_noise
from lamarckian.rl.distributions import (
    ActionDistribution,
    choice_kl,
    limit_log_std,
    masked_log_softmax,
    unlimited_log_std,
)

INPUTS = {"x": Input((2,))}


def role_of(masked: tuple[str, ...] = (), **actions: Any) -> Role:
    return Role(inputs=INPUTS, actions=actions, masked=masked)


HYBRID = role_of(
    masked=("move", "aim"),
    move=Discrete(3),
    aim=MultiDiscrete((2, 3)),
    push=Continuous(2, (-1.0, 0.0), (1.0, 4.0)),
)


def test_log_prob_and_entropy_of_a_choice_by_hand() -> None:
    distribution = ActionDistribution(role_of(a=Discrete(3)), "clip")
    # logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8
    outputs = torch.log(torch.tensor([[1.0, 2.0, 5.0]]))
    log_prob, entropy, no_legal = distribution.evaluate(outputs, {}, {"a": torch.tensor([2])})
    assert log_prob.item() == pytest.approx(math.log(5 / 8), abs=1e-6)
    expected = -(1 / 8 * math.log(1 / 8) + 2 / 8 * math.log(2 / 8) + 5 / 8 * math.log(5 / 8))
    assert entropy.item() == pytest.approx(expected, abs=1e-6)
    assert not no_legal.any()


def test_mask_renormalises_by_hand() -> None:
    distribution = ActionDistribution(role_of(masked=("a",), a=Discrete(3)), "clip")
    outputs = torch.log(torch.tensor([[1.0, 2.0, 5.0]]))
    legal = {"a": torch.tensor([[True, True, False]])}
    log_prob, entropy, _ = distribution.evaluate(outputs, legal, {"a": torch.tensor([1])})
    assert log_prob.item() == pytest.approx(math.log(2 / 3), abs=1e-6)
    assert entropy.item() == pytest.approx(
        -(1 / 3 * math.log(1 / 3) + 2 / 3 * math.log(2 / 3)), abs=1e-6
    )


def test_gaussian_by_hand() -> None:
    distribution = ActionDistribution(role_of(a=Continuous(1)), "clip")
    # mean 1, std 2, action 4: -0.5 * 1.5^2 - log 2 - 0.5 log 2 pi
    outputs = torch.tensor([[1.0, math.log(2.0)]])
    log_prob, entropy, _ = distribution.evaluate(outputs, {}, {"a": torch.tensor([[4.0]])})
    assert log_prob.item() == pytest.approx(
        -1.125 - math.log(2) - 0.5 * math.log(2 * math.pi), abs=1e-6
    )
    assert entropy.item() == pytest.approx(
        0.5 * math.log(2 * math.pi * math.e) + math.log(2), abs=1e-6
    )


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.4), (-1.5, 0.8)])
def test_tanh_density_integrates_to_one_over_the_box(mean: float, std: float) -> None:
    part = Continuous(1, (300.0,), (500.0,))
    distribution = ActionDistribution(role_of(a=part), "tanh")
    raw = np.linspace(mean - 9 * std, mean + 9 * std, 40_001)
    game = to_game_action(part, raw[:, None].astype(np.float64), "tanh")[:, 0].astype(np.float64)
    game = 300 + (np.tanh(raw) + 1) * 100  # the same map in double precision
    outputs = torch.tensor([[mean, math.log(std)]]).expand(len(raw), 2)
    actions = {"a": torch.from_numpy(raw[:, None]).float()}
    density = distribution.log_prob(outputs, {}, actions).double().exp().numpy()
    assert np.trapezoid(density, game) == pytest.approx(1.0, abs=1e-3)
    entropy = distribution.entropy(outputs[:1], {}).item()
    numeric = np.trapezoid(-density * np.log(density), game)
    assert entropy == pytest.approx(numeric, abs=5e-3)


def test_pitfalls_env_08_stored_log_prob_is_of_the_raw_action() -> None:
    rng = np.random.default_rng(0)
    for bounds in ("clip", "tanh"):
        role = role_of(a=Continuous(1, (300.0,), (500.0,)))
        distribution = ActionDistribution(role, bounds)
        outputs = torch.tensor([[0.3, 0.5]]).expand(2000, 2)
        noise = torch.from_numpy(draw_noise(role, 2000, rng))
        actions, log_prob = distribution.sample(outputs, {}, noise)
        again = distribution.log_prob(outputs, {}, actions)
        assert torch.allclose(log_prob, again, atol=1e-5)
        game = distribution.game_actions({"a": actions["a"].numpy()})["a"]
        assert game.min() >= 300.0
        assert game.max() <= 500.0
        assert actions["a"].abs().max() > 1.5  # raw numbers are stored unclipped


def test_pitfalls_ma_06_no_illegal_action_in_many_draws() -> None:
    rng = np.random.default_rng(1)
    distribution = ActionDistribution(HYBRID, "clip")
    number = 100_000
    outputs = torch.from_numpy(rng.normal(0, 5, (number, distribution.num_outputs))).float()
    legal = {"move": rng.random((number, 3)) < 0.5, "aim": rng.random((number, 5)) < 0.5}
    noise = draw_noise(HYBRID, number, rng)
    noise[:100, :3] = 0.0
    noise[100:200, :3] = np.nextafter(np.float32(1), np.float32(0))
    masks = {name: torch.from_numpy(mask) for name, mask in legal.items()}
    for source in (torch.from_numpy(noise), None):
        actions, log_prob = distribution.sample(outputs, masks, source)
        assert torch.isfinite(log_prob).all()
        for values, mask in (
            (actions["move"], legal["move"]),
            (actions["aim"][:, 0], legal["aim"][:, :2]),
            (actions["aim"][:, 1], legal["aim"][:, 2:]),
        ):
            drawn = mask[np.arange(number), values.numpy()]
            assert drawn[mask.any(axis=1)].all()


def test_a_row_without_a_legal_action_is_uniform_silent_and_counted() -> None:
    distribution = ActionDistribution(role_of(masked=("a",), a=Discrete(4)), "clip")
    outputs = torch.tensor([[5.0, -1.0, 2.0, 0.0], [1.0, 2.0, 3.0, 4.0]], requires_grad=True)
    legal = {"a": torch.tensor([[False] * 4, [True] * 4])}
    log_prob, entropy, no_legal = distribution.evaluate(outputs, legal, {"a": torch.tensor([1, 1])})
    assert log_prob[0].item() == pytest.approx(math.log(1 / 4))
    assert entropy[0].item() == 0.0
    assert no_legal.tolist() == [True, False]
    (log_prob.sum() + entropy.sum()).backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None
    assert outputs.grad[0].tolist() == [0.0] * 4
    assert outputs.grad[1].abs().sum() > 0
    draws, _ = distribution.sample(
        outputs.detach()[:1].expand(4, 4),
        {"a": legal["a"][:1].expand(4, 4)},
        torch.tensor([[0.1], [0.3], [0.6], [0.9]]),
    )
    assert draws["a"].tolist() == [0, 1, 2, 3]


def test_pitfalls_num_05_kl_is_finite_where_a_probability_is_zero() -> None:
    first = masked_log_softmax(torch.tensor([[0.0, 1000.0]]), None)
    second = masked_log_softmax(torch.tensor([[1000.0, 0.0]]), None)
    value = choice_kl(first, second)
    assert torch.isfinite(value).all()
    assert value.item() == pytest.approx(1000.0)  # 1 * (0 - -1000) + 0 * ...
    masked = masked_log_softmax(torch.tensor([[0.0, 3.0]]), torch.tensor([[True, False]]))
    assert choice_kl(masked, masked).item() == 0.0


@pytest.mark.parametrize("extreme", [-50.0, 50.0])
@pytest.mark.parametrize("soft", [True, False])
def test_pitfalls_num_06_log_std_pushed_far_stays_finite(extreme: float, soft: bool) -> None:
    raw = torch.tensor([[extreme]], requires_grad=True)
    spread = limit_log_std(raw, -20.0, 2.0, soft)
    assert -20.0 <= spread.item() <= 2.0
    for bounds in ("clip", "tanh"):
        role = role_of(a=Continuous(1, (-2.0,), (2.0,)))
        distribution = ActionDistribution(role, bounds)
        outputs = torch.cat([torch.zeros(1, 1), spread], dim=1)
        for value in (0.0, 1e-3, 10.0):
            log_prob, entropy, _ = distribution.evaluate(
                outputs, {}, {"a": torch.tensor([[value]])}
            )
            assert torch.isfinite(log_prob).all()
            assert torch.isfinite(entropy).all()
            (gradient,) = torch.autograd.grad(log_prob.sum(), raw, retain_graph=True)
            assert torch.isfinite(gradient).all()


@given(st.floats(-19.0, 1.9), st.booleans())
def test_log_std_limit_inverts(value: float, soft: bool) -> None:
    raw = torch.tensor([unlimited_log_std(value, -20.0, 2.0, soft)], dtype=torch.float64)
    assert limit_log_std(raw, -20.0, 2.0, soft).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("bounds", ["clip", "tanh"])
def test_gradient_of_a_mixed_distribution_matches_finite_differences(bounds: Bounds) -> None:
    rng = np.random.default_rng(3)
    distribution = ActionDistribution(HYBRID, bounds)
    outputs = torch.from_numpy(rng.normal(0, 0.5, (4, distribution.num_outputs)))
    legal = {
        "move": torch.tensor([[True, True, False]] * 3 + [[False] * 3]),
        "aim": torch.tensor([[True, True, False, True, True]] * 4),
    }
    noise = torch.from_numpy(draw_noise(HYBRID, 4, rng)).double()
    actions, _ = distribution.sample(outputs, legal, noise)
    other = torch.from_numpy(rng.normal(0, 0.5, (4, distribution.num_outputs)))

    def objective(values: torch.Tensor) -> torch.Tensor:
        log_prob, entropy, _ = distribution.evaluate(values, legal, actions)
        return log_prob + 0.3 * entropy + 0.2 * distribution.kl(values, other, legal)

    variable = outputs.clone().requires_grad_()
    assert torch.autograd.gradcheck(objective, (variable,), eps=1e-6, atol=1e-5)


def test_joint_log_prob_is_the_sum_of_the_parts() -> None:
    rng = np.random.default_rng(4)
    whole = ActionDistribution(HYBRID, "tanh")
    outputs = torch.from_numpy(rng.normal(size=(6, whole.num_outputs))).float()
    legal = {
        "move": torch.from_numpy(rng.random((6, 3)) < 0.7),
        "aim": torch.from_numpy(rng.random((6, 5)) < 0.7),
    }
    actions, total = whole.sample(outputs, legal, torch.from_numpy(draw_noise(HYBRID, 6, rng)))
    summed = torch.zeros(6)
    columns = {label: outputs[:, start : start + size] for label, start, size in whole.segments()}
    pieces = {
        "move": [columns["move"]],
        "aim": [columns["aim.0"], columns["aim.1"]],
        "push": [columns["push.mean"], columns["push.log_std"]],
    }
    for name, part in HYBRID.actions.items():
        masked = (name,) if name in HYBRID.masked else ()
        alone = ActionDistribution(role_of(masked=masked, **{name: part}), "tanh")
        own = torch.cat(pieces[name], dim=1)
        summed += alone.log_prob(own, legal, {name: actions[name]})
    assert torch.allclose(total, summed, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_masked_choice_against_a_naive_version(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    logits = data.draw(st.lists(st.floats(-30, 30, width=32), min_size=size, max_size=size))
    mask = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    uniform = data.draw(st.floats(0, 1, exclude_max=True, width=32))
    distribution = ActionDistribution(role_of(masked=("a",), a=Discrete(size)), "clip")
    legal = {"a": torch.tensor([mask])}
    outputs = torch.tensor([logits])
    actions, log_prob = distribution.sample(outputs, legal, torch.tensor([[uniform]]))
    if any(mask):
        weights = [math.exp(v - max(logits)) if m else 0.0 for v, m in zip(logits, mask)]
        if sum(weights) < 1e-20:
            return
    else:
        weights = [1.0] * size
    probabilities = [weight / sum(weights) for weight in weights]
    chosen = int(actions["a"].item())
    assert probabilities[chosen] > 0 or not any(mask)
    edge = np.cumsum(probabilities)
    assert edge[chosen] >= uniform - 1e-5
    assert (edge[chosen - 1] if chosen else 0.0) <= uniform + 1e-5
    assert log_prob.item() == pytest.approx(math.log(probabilities[chosen]), abs=1e-3)


def test_sampling_frequencies_match_probabilities() -> None:
    rng = np.random.default_rng(5)
    role = role_of(a=Discrete(3))
    distribution = ActionDistribution(role, "clip")
    outputs = torch.log(torch.tensor([[1.0, 2.0, 5.0]])).expand(40_000, 3)
    actions, _ = distribution.sample(outputs, {}, torch.from_numpy(draw_noise(role, 40_000, rng)))
    shares = np.bincount(actions["a"].numpy(), minlength=3) / 40_000
    assert np.allclose(shares, [0.125, 0.25, 0.625], atol=0.01)  # four standard errors


def test_non_finite_outputs_still_give_actions_that_exist() -> None:
    distribution = ActionDistribution(HYBRID, "clip")
    outputs = torch.full((4, distribution.num_outputs), torch.nan)
    legal = {"move": torch.ones(4, 3, dtype=torch.bool), "aim": torch.ones(4, 5, dtype=torch.bool)}
    for noise in (torch.rand(4, 5), None):
        actions, log_prob = distribution.sample(outputs, legal, noise)
        assert actions["move"].max() < 3
        assert actions["aim"].max() < 3
        assert torch.isnan(log_prob).all()
