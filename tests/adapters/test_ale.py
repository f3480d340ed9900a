"""Atari through ALE's native vector environment and its memory."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ale_py")

from lamarckian.errors import ConfigError, UnknownName
from lamarckian.mdp.adapters.ale import AtariGame, ale_game, rom_name
from lamarckian.mdp.catalogue import make_batch


def play(game, ticks, seed):
    rng = np.random.default_rng(seed)
    num = game.roles["player"].actions["action"].num
    out = []
    for _ in range(ticks):
        before = game.observe("player").inputs["observation"].copy()
        step = game.step({"player": {"action": rng.integers(0, num, game.num_games)}})["player"]
        out.append((before, step))
    return out


@pytest.mark.parametrize("obs", ["image", "ram"])
def test_seeds_ends_and_exact_state(obs) -> None:
    options = {"max_frames": 120, "sticky_actions": 0.25}
    if obs == "image":
        options["seed_episodes"] = True
    game = ale_game(3, "Pong-v5", obs=obs, **options)
    game.reset(np.array([5, 6, 5]))
    rows = play(game, 40, 0)  # 120 frames are at most 30 decisions: each row was truncated once
    ends = np.array([step.truncated for _, step in rows])
    assert (ends.sum(0) >= 1).all()
    for before, step in rows:
        if step.truncated.any():
            assert step.final.inputs["observation"].shape == (
                len(step.final_rows),
                *before.shape[1:],
            )
            assert "score" in step.outcomes
    data, arrays = game.state()
    want = play(game, 30, 3)
    other = ale_game(3, "Pong-v5", obs=obs, **options)
    other.reset(np.zeros(3, np.int64))
    other.load_state(data, arrays)
    got = play(other, 30, 3)
    for (a, x), (b, y) in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(x.rewards, y.rewards)
        np.testing.assert_array_equal(x.truncated, y.truncated)


def test_equal_seeds_give_equal_matches() -> None:
    game = AtariGame(2, "pong", sticky_actions=0.25)
    game.reset(np.array([3, 3]))
    for _ in range(30):
        game.step({"player": {"action": np.array([2, 2])}})
        frames = game.observe("player").inputs["observation"]
        np.testing.assert_array_equal(frames[0], frames[1])


def test_raw_score_is_recorded_beside_clipped_rewards() -> None:
    """LOG-01: a Space Invaders hit pays 5 points or more; the head sees 1, the score the points."""
    game = AtariGame(4, "SpaceInvaders", max_frames=500)
    game.reset(np.arange(4))
    total = np.zeros(4)
    rng = np.random.default_rng(0)
    for _ in range(140):
        step = game.step({"player": {"action": rng.integers(0, 6, 4)}})["player"]
        total += step.rewards[:, 0]
        over = step.truncated | step.terminated
        if over.any():
            row = int(np.flatnonzero(over)[0])
            assert np.abs(step.rewards).max() <= 1
            assert step.outcomes["score"][row] >= 5 * total[row] > 0
            return
    pytest.fail("no episode ended")


def test_episodic_life_ends_the_episode_and_not_the_game() -> None:
    for obs in ("image", "ram"):
        game = ale_game(1, "breakout", obs=obs, episodic_life=True, noop_max=0)
        game.reset(np.array([1]))
        lives = 0
        rng = np.random.default_rng(0)
        for _ in range(150):
            step = game.step({"player": {"action": rng.integers(0, 4, 1)}})["player"]
            lives += int(step.terminated[0])
        assert lives >= 1, obs


def test_names_and_options() -> None:
    assert rom_name("ALE/MsPacman-v5") == "ms_pacman"
    assert rom_name("PongNoFrameskip-v4") == "pong"
    with pytest.raises(UnknownName, match="did you mean 'pong'"):
        rom_name("Pnog")
    with pytest.raises(ConfigError, match="sticky_actions"):
        AtariGame(1, "pong", sticky_actions=2)
    with pytest.raises(ConfigError, match="expected image or ram"):
        make_batch("ale:Pong?obs=sound", 1)
    game = make_batch("ale:Pong?frame_skip=2&num_threads=1", 2)
    assert game.frames_per_decision == 2
    assert game.roles["player"].inputs["observation"].shape == (4, 84, 84)
    game = make_batch("ale:Pong?obs=ram", 2)
    assert game.roles["player"].inputs["observation"].shape == (128,)
