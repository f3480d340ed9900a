from __future__ import annotations

import numpy as np
import pytest

from lamarckian.mdp.games import RockPaperScissors


@pytest.mark.parametrize(
    ("first", "second", "reward"),
    [(0, 0, 0), (0, 1, -1), (0, 2, 1), (1, 0, 1), (1, 2, -1), (2, 0, -1), (2, 1, 1), (2, 2, 0)],
)
def test_who_beats_whom(first: int, second: int, reward: int) -> None:
    game = RockPaperScissors(1)
    game.reset(np.array([0]))
    steps = game.step(
        {"first": {"throw": np.array([first])}, "second": {"throw": np.array([second])}}
    )
    assert steps["first"].rewards.item() == reward
    assert steps["second"].rewards.item() == -reward
    assert steps["first"].terminated.item()
    assert steps["second"].terminated.item()
    assert steps["first"].outcomes["result"].item() == reward
    assert steps["first"].outcomes["score"].item() == (reward + 1) / 2


def test_rounds_show_the_last_throws_own_first() -> None:
    game = RockPaperScissors(1, rounds=3)
    game.reset(np.array([0]))
    assert game.observe("first").inputs["last"].tolist() == [[3, 3]]
    for n, (first, second) in enumerate([(0, 1), (2, 2), (2, 1)]):
        steps = game.step(
            {"first": {"throw": np.array([first])}, "second": {"throw": np.array([second])}}
        )
        if n < 2:
            assert not steps["first"].terminated.item()
            assert game.observe("first").inputs["last"].tolist() == [[first, second]]
            assert game.observe("second").inputs["last"].tolist() == [[second, first]]
    # lost, drawn, won: level; throws of the first: one rock, two scissors
    outcomes = {name: value.item() for name, value in steps["first"].outcomes.items()}
    assert outcomes["score"] == 0.5
    assert outcomes["result"] == 0.0
    np.testing.assert_allclose(outcomes["scissors"], 2 / 3, rtol=1e-6)
    assert game.observe("first").inputs["last"].tolist() == [[3, 3]]


@pytest.mark.parametrize(
    ("first", "second", "mean"),
    [
        ("counter", "always_paper", 18 / 20),
        ("copycat", "always_paper", -1 / 20),
        ("random", "always_rock", 0),
    ],
)
def test_bots(first: str, second: str, mean: float) -> None:
    # counter opens with rock and loses to paper, then beats it 19 times: 18 / 20.
    # copycat opens with rock and loses, then draws: -1 / 20. Random play is worth 0.
    game = RockPaperScissors(400, rounds=20)
    game.reset(np.arange(400))
    rng = np.random.default_rng(0)
    total = 0.0
    for _ in range(20):
        steps = game.step(
            {
                role: game.bots[name](game.observe(role).inputs, {}, rng)
                for role, name in (("first", first), ("second", second))
            }
        )
        total += float(steps["first"].rewards.mean())
    # standard error of 8,000 draws of standard deviation 0.816: 0.009
    assert abs(total / 20 - mean) < (0.04 if first == "random" else 1e-6)
