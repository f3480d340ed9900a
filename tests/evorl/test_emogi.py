"""EMOGI: players of different styles and similar strength, priced by hand and as a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lamarckian.cli.main import main
from lamarckian.errors import ConfigError, UnknownName
from lamarckian.evorl.emogi import Emogi, setup_from
from lamarckian.evorl.evaluating import stream_of
from lamarckian.evorl.problems import kind_of, make_evaluator
from lamarckian.mdp.evaluation import EvaluationResult
from lamarckian.mdp.trajectory import EpisodeRecord
from lamarckian.runs.evolution import build_settings, prepare

TINY: dict[str, Any] = {
    "frames": 512,
    "episodes": 2,
    "algorithm": {
        "learning_rate": 0.01,
        "num_games": 4,
        "fragment_length": 32,
        "minibatch_size": 0,
        "num_epochs": 1,
        "network": {"hidden": [8], "critic_hidden": [8]},
    },
}
TINY_OPTIONS = [
    "--training.frames", "512", "--training.episodes", "2", "--training.algorithm.num-games", "4",
    "--training.algorithm.fragment-length", "32", "--training.algorithm.minibatch-size", "0",
    "--training.algorithm.network.hidden", "[8]", "--options.rounds", "2",
]  # fmt: skip


def emogi(**changes: Any) -> Emogi:
    torch.set_num_threads(1)
    return Emogi(setup_from({**TINY, "game": "pong", **changes}, {"rounds": 2}))


def life(score: float, activeness: float, returns: tuple[float, ...] = (0.0,) * 3) -> EpisodeRecord:
    return EpisodeRecord(
        role="left", returns=returns, length=10, frames=10, score=score, result=1,
        statistics={"activeness": activeness},
    )  # fmt: skip


def test_objectives_are_winning_plus_the_share_of_the_style() -> None:
    lives = EvaluationResult([life(0.5, 0.2), life(1.0, 0.6)], seed=0, greedy=False)
    objectives, descriptors = emogi().price(lives)
    assert descriptors == {"activeness": pytest.approx(0.4)}
    assert objectives == {"lazy": pytest.approx(0.75 + 0.6), "active": pytest.approx(0.75 + 0.4)}
    weighed = emogi(styles=["active", "lazy"], style_weights=[0.5, 0.25])
    assert list(weighed.price(lives)[0].items()) == [
        ("active", pytest.approx(0.75 + 0.5 * 0.4)),
        ("lazy", pytest.approx(0.75 + 0.25 * 0.6)),
    ]


def test_without_a_score_matches_won_and_then_own_returns_count() -> None:
    made = emogi()
    lives = [life(0.0, 0.5, (3.0, 100.0, 100.0)), life(0.0, 0.5, (5.0, 100.0, 100.0))]
    for each, result in zip(lives, (1, -1), strict=True):
        each.score, each.result = None, result
    assert made.win(EvaluationResult(lives, 0, False)) == 0.5
    for each in lives:
        each.result = None
    # What the styles paid is no strength: only the game's own head counts.
    assert made.win(EvaluationResult(lives, 0, False)) == 4.0


def test_an_individual_is_a_network_and_the_weights_of_its_rewards() -> None:
    made = emogi()
    encoding = made.describe()
    assert set(encoding.parts) == {"reward_weights.lazy", "reward_weights.active", "weights"}
    assert [each.name for each in encoding.objectives] == ["lazy", "active"]
    decision = made.initialize(np.random.default_rng(0)) | {
        "reward_weights.lazy": 0.05,
        "reward_weights.active": 0.001,
    }
    # The game's own reward keeps its weight of one.
    assert made.algorithm_of(decision).reward_weights == (1.0, 0.05, 0.001)
    outcome = made.evaluate(decision, stream_of(0, 1))
    assert outcome.failed is None
    assert outcome.statistics["in_force/reward_weights.lazy"] == pytest.approx(0.05)
    trained, born = outcome.decision["weights"], decision["weights"]  # type: ignore[index]
    assert any(not np.array_equal(trained[name], born[name]) for name in born)  # type: ignore[index,call-overload]
    share = float(outcome.descriptors[0])
    win = outcome.statistics["score"]
    assert outcome.objectives == pytest.approx([win + 1 - share, win + share])


def test_children_go_on_from_the_trained_network_of_their_fitter_parent() -> None:
    settings = build_settings("pong-styles", {"ec.population": 4, "options.rounds": 2})
    assert settings.ec.population == 4
    parts = prepare(settings)
    search = parts.search
    parents = search.ask(4)
    rng = np.random.default_rng(0)
    for parent in parents:
        share = rng.random()
        written = {name: array + parent.id for name, array in parent.decision["weights"].items()}  # type: ignore[union-attr]
        parent.outcome = parts.encoding.outcome(
            {"lazy": 1 - share, "active": share},
            descriptors={"activeness": share},
            decision={"weights": written},
        )
    trained = {parent.id: parent.outcome.decision["weights"] for parent in parents}  # type: ignore[union-attr,index]
    search.tell(parents)
    order = search.population.ids.tolist()
    ranges = parts.encoding.parts["reward_weights.lazy"]
    for child in search.ask(4):
        first, second = child.parents
        assert order.index(first) < order.index(second)  # the fitter one comes first
        for name, array in trained[first].items():  # type: ignore[union-attr]
            np.testing.assert_array_equal(child.decision["weights"][name], array)  # type: ignore[index,call-overload]
        weight = float(np.asarray(child.decision["reward_weights.lazy"]))
        assert ranges.low <= weight <= ranges.high  # type: ignore[union-attr]


def test_the_command_runs_stops_nowhere_and_says_where_players_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"

    def command(*arguments: str) -> Any:
        code = main([*arguments, "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    start = ["evolve", "pong-styles", "--ec.population", "4", *TINY_OPTIONS]
    document = command(*start, "--evaluations", "8", "--run", str(run))
    assert (document["ec"], document["evaluations"], document["failures"]) == ("nsga2", 8, 0)
    assert 0.0 < document["hypervolume"] <= 4.0
    front = command("front", str(run))["individuals"]
    assert {"lazy", "active"} == set(front[0]["objectives"])
    line = command("lineage", str(run), "front:0")["lineage"]
    assert line[0]["origin"] == ["initialize"]
    # A stopped and resumed evolution is the same evolution.
    resumed = command("resume", str(run), "--evaluations", "12")
    straight = command(*start, "--evaluations", "12", "--run", str(tmp_path / "straight"))
    assert resumed["best"] == straight["best"]


def test_any_game_with_behaviours_has_styles_and_others_say_why_not() -> None:
    assert kind_of("styles:skirmish") == "styles"
    with pytest.raises(ConfigError, match="cartpole: styles are ends of behaviours"):
        make_evaluator("styles:cartpole", {}, None)
    with pytest.raises(UnknownName, match="did you mean 'pong-styles'"):
        kind_of("pong-style")
    with pytest.raises(UnknownName, match=r"expected a game after 'styles:'.*'zdt1' is none"):
        kind_of("styles:zdt1")
    with pytest.raises(ConfigError, match=r"called 'layz'.*lazy"):
        emogi(styles=["layz", "active"])
    with pytest.raises(
        ConfigError, match=r"style_weights: expected 2 numbers for lazy, active, got 1"
    ):
        emogi(style_weights=[0.5])
