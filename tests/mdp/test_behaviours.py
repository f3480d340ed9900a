"""Behaviours: counted in every life, whoever plays, and paid as reward heads if asked to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lamarckian.errors import ConfigError, GameError
from lamarckian.mdp import catalogue
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.behaviours import WatchedGame, acting, find_term, watch, with_terms
from lamarckian.mdp.collector import CollectorSettings, Seating, bot_for
from lamarckian.mdp.core import Arrays, Behaviour, Discrete, Input, Observation, Role
from lamarckian.mdp.evaluation import evaluate
from lamarckian.mdp.tick import TickGame
from lamarckian.mdp.vectorised import BatchCollector
from lamarckian.mdp.wave_collector import WaveCollector
from lamarckian.testing.policies import UniformPolicy

JUMPY = Behaviour(acting("leap", 1, 2), "calm", "jumpy")


def far(inputs: Arrays, actions: Arrays) -> NDArray[np.float32]:
    """What was seen counts, not what is done."""
    return np.asarray(inputs["place"][:, 0] >= 2, np.float32)


class Hops(BatchGame):
    """A life of ``length`` ticks in each row; the place is the number of ticks so far."""

    def __init__(self, num_games: int, *, length: int = 4) -> None:
        self.num_games = num_games
        self.length = length
        self.roles: Mapping[str, Role] = {
            "hopper": Role(
                inputs={"place": Input((1,))},
                actions={"leap": Discrete(3)},
                behaviours={"jumpiness": JUMPY, "distance": Behaviour(far, "near", "far")},
            )
        }

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.place = np.zeros((self.num_games, 1), np.float32)

    def observe(self, role: str) -> Observation:
        return Observation({"place": self.place})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self.place += 1
        ended = self.place[:, 0] >= self.length
        self.place[ended] = 0
        rewards = np.full((self.num_games, 1), 0.5, np.float32)
        return {"hopper": RowStep(rewards, ended, np.zeros_like(ended))}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"place": self.place.copy()}

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        self.place[:] = arrays["place"]


class Steps(TickGame):
    """The same, one player, asynchronous."""

    roles = {
        "hopper": Role(
            inputs={"place": Input((1,))},
            actions={"leap": Discrete(3)},
            behaviours={"jumpiness": JUMPY, "distance": Behaviour(far, "near", "far")},
        )
    }

    def begin(self, rng: Any, roles: Any) -> Any:
        self.place = 0
        return [("hopper", "hopper")]

    def view(self, player: str) -> Observation:
        return Observation({"place": np.array([self.place], np.float32)})

    def tick(self, actions: Any) -> None:
        self.place += 1
        self.reward("hopper", 0.5)
        if self.place >= 4:
            self.finish("hopper", score=1.0)


def scripted(leaps: list[int]) -> Any:
    """A bot that plays by the place: the n-th decision of a life is ``leaps[n]``."""

    def bot(inputs: Arrays, legal: Arrays, rng: Any) -> Arrays:
        return {"leap": np.array(leaps)[inputs["place"][:, 0].astype(int)]}

    return bot


def test_a_batch_game_reports_shares_and_terms_pay_each_decision() -> None:
    game = WatchedGame(Hops(2), ("jumpy", "near"))
    assert game.roles["hopper"].rewards == ("reward", "jumpy", "near")
    game.reset(np.zeros(2, np.int64))
    paid = []
    for leaps in ([0, 1], [2, 1], [0, 1], [0, 0]):
        game.observe("hopper")
        step = game.step({"hopper": {"leap": np.array(leaps)}})["hopper"]
        paid.append(step.rewards)
    # Row 0 leaps in 1 of 4 decisions, row 1 in 3; the places were 0, 1, 2, 3, so half were far.
    assert step.outcome(0) == {"jumpiness": 0.25, "distance": 0.5}
    assert step.outcome(1) == {"jumpiness": 0.75, "distance": 0.5}
    np.testing.assert_array_equal(
        np.array(paid)[:, 0], [[0.5, 0, 1], [0.5, 1, 1], [0.5, 0, 0], [0.5, 0, 0]]
    )
    # The next life counts from nothing.
    for _ in range(4):
        step = game.step({"hopper": {"leap": np.array([1, 0])}})["hopper"]
    assert [step.outcome(row)["jumpiness"] for row in range(2)] == [1.0, 0.0]


def test_a_saved_game_goes_on_counting_where_it_was() -> None:
    def play(game: WatchedGame, leaps: list[int]) -> RowStep:
        for leap in leaps:
            step = game.step({"hopper": {"leap": np.array([leap])}})["hopper"]
        return step

    one, other = WatchedGame(Hops(1)), WatchedGame(Hops(1))
    for game in (one, other):
        game.reset(np.zeros(1, np.int64))
    play(one, [1, 1, 0])
    other.load_state(*one.state())
    assert play(other, [1]).outcome(0)["jumpiness"] == 0.75


def test_coroutine_games_report_and_pay_alike() -> None:
    role = with_terms(Steps.roles, ("jumpy", "calm"))["hopper"]
    assert role.rewards == ("reward", "jumpy", "calm")
    policy = UniformPolicy(role)
    collector = WaveCollector(
        lambda: watch([Steps()], ("jumpy", "calm"))[0],  # type: ignore[index,return-value]
        Seating({"hopper": policy}, {"hopper": "hopper"}),
        CollectorSettings(2, 12, lambda role: (1.0,) * role.num_rewards, 0),
    )
    trajectory = collector.collect()["hopper"]
    jumped = np.isin(trajectory.actions["leap"], (1, 2)) & trajectory.valid
    np.testing.assert_allclose(
        trajectory.rewards[..., 1][trajectory.valid], jumped[trajectory.valid]
    )
    np.testing.assert_allclose(trajectory.rewards[trajectory.valid][:, 1:].sum(1), 1.0)
    for life in collector.take_episodes():
        assert life.statistics["jumpiness"] == pytest.approx(life.returns[1] / 4)
        assert life.statistics["distance"] == 0.5
    collector.close()


@pytest.mark.parametrize("made", [lambda: Hops(3), lambda: [Steps(), Steps()]])
def test_evaluation_reports_what_a_policy_did(made: Any) -> None:
    games = watch(made())
    first = games if isinstance(games, BatchGame) else games[0]
    policy = UniformPolicy(first.roles["hopper"])
    result = evaluate(
        games, Seating({"p": policy}, {"hopper": "p"}), num_episodes=6, seed=1, greedy=False
    )
    shares = [life.statistics["jumpiness"] for life in result.episodes]
    assert len(shares) == 6
    assert len(set(shares)) > 1
    assert result.metrics()["statistic/jumpiness"] == pytest.approx(np.mean(shares))
    assert result.to_json()["statistics"]["distance"] == 0.5


def test_a_script_is_counted_by_its_own_actions() -> None:
    game = WatchedGame(Hops(1))
    bot = scripted([1, 0, 0, 2])
    game.reset(np.zeros(1, np.int64))
    for _ in range(4):
        step = game.step({"hopper": bot(game.observe("hopper").inputs, {}, None)})["hopper"]
    assert step.outcome(0)["jumpiness"] == 0.5


def test_pong_counts_the_same_as_the_platform() -> None:
    # Pong and Duel count by themselves; their word stands, and must be the same number.
    class Silent(WatchedGame):
        def _report(self, name: str, watched: Any, step: RowStep, ended: Any) -> None:
            said = step.outcomes.pop("activeness")
            super()._report(name, watched, step, ended)
            np.testing.assert_allclose(step.outcomes["activeness"][ended], said[ended], rtol=1e-6)
            checked.append(int(ended.sum()))

    checked: list[int] = []
    game = Silent(catalogue.make_batch("pong", 3, {"rounds": 2}))
    role = game.roles["left"]
    collector = BatchCollector(
        game,
        Seating(
            {"left": UniformPolicy(role)},
            {"left": "left"},
            {"right": ("random", bot_for("random", {}, role))},
        ),
        CollectorSettings(3, 200, lambda role: (1.0,), 0),
    )
    collector.collect()
    assert sum(checked) >= 6


def test_games_without_behaviours_are_not_wrapped() -> None:
    game = catalogue.make_batch("cartpole", 1)
    assert watch(game) is game
    with pytest.raises(ConfigError, match="declares behaviours"):
        watch(game, ("lazy",))


def test_ends_are_found_by_name() -> None:
    role = Hops(1).roles["hopper"]
    assert find_term(role, "calm").of(0.25) == 0.75
    assert find_term(role, "jumpy").of(0.25) == 0.25
    assert find_term(role, "jumpiness").of(0.25) == 0.25
    with pytest.raises(ConfigError, match=r"'clam'.*calm"):
        find_term(role, "clam")
    with pytest.raises(ConfigError, match="already"):
        with_terms(Hops(1).roles, ("calm", "calm"))


def test_a_measure_of_the_wrong_shape_is_named() -> None:
    game = Hops(2)
    wrong = Behaviour(lambda inputs, actions: np.zeros(3), "a", "b")
    role = game.roles["hopper"]
    game.roles = {
        "hopper": Role(inputs=role.inputs, actions=role.actions, behaviours={"odd": wrong})
    }
    watched = WatchedGame(game)
    watched.reset(np.zeros(2, np.int64))
    with pytest.raises(GameError, match=r"'odd'.*\(2,\).*\(3,\)"):
        watched.step({"hopper": {"leap": np.zeros(2, np.int64)}})


@pytest.mark.parametrize("observe", ["ram", "image"])
def test_atari_players_are_active_when_they_push_the_stick(observe: str) -> None:
    pytest.importorskip("ale_py")
    game = watch(catalogue.make_batch(f"ale:Pong?obs={observe}&max_frames=40", 1))
    assert isinstance(game, WatchedGame)
    game.reset(np.zeros(1, np.int64))
    # NOOP, FIRE, RIGHT, LEFT, RIGHTFIRE, LEFTFIRE: the last four push.
    outcome: dict[str, float] = {}
    actions = []
    while "activeness" not in outcome:
        actions.append(len(actions) % 6)
        step = game.step({"player": {"action": np.array([actions[-1]])}})["player"]
        if step.truncated[0] or step.terminated[0]:
            outcome = step.outcome(0)
    assert outcome["activeness"] == pytest.approx(np.mean([each >= 2 for each in actions]))
    game.close()
