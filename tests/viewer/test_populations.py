"""What the report says of an evolution: styles, front, replays of chosen individuals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lamarckian.cli.main import main
from lamarckian.errors import RunError, UnknownName
from lamarckian.runs import individuals
from lamarckian.runs.folder import Run
from lamarckian.runs.players import identifier_of, load_player
from lamarckian.viewer import populations
from lamarckian.viewer.recording import default_settings, record_replays
from lamarckian.viewer.scatter import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Dot, scatter
from lamarckian.viewer.summary import summarise

OPTIONS = [
    "--ec.population", "4", "--evaluations", "8", "--training.frames", "256",
    "--training.episodes", "1", "--training.algorithm.num-games", "2",
    "--training.algorithm.fragment-length", "32", "--training.algorithm.minibatch-size", "0",
    "--training.algorithm.network.hidden", "[8]", "--options.rounds", "1",
]  # fmt: skip


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("styles") / "run"
    assert main(["evolve", "pong-styles", *OPTIONS, "--run", str(run), "--quiet"]) == 0
    return run


def test_dots_stand_where_their_numbers_say() -> None:
    drawn = scatter(
        [Dot(0.0, 0.0, -1), Dot(1.0, 1.0, 2, "<b>", "end")], "x", "y",
        x_range=(0.0, 1.0), y_range=(0.0, 1.0),
    )  # fmt: skip
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)
    assert [(float(x), float(y)) for x, y in circles] == [
        (LEFT, HEIGHT - BOTTOM),
        (WIDTH - RIGHT, TOP),
    ]
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    # One value alone still has a scale.
    assert scatter([Dot(3.0, 3.0)], "x", "y").count("<circle") == 1


def test_styles_are_the_last_population_by_score_and_behaviour(evolved: Path) -> None:
    summary = summarise(evolved)
    text = populations.styles(summary)
    alive = individuals.latest(Run.open(evolved), "population")
    assert text.count("fill:var(--c0)") == len(alive) == 4
    assert text.count("fill:var(--rule)") == 4
    everyone = individuals.read_all(Run.open(evolved))
    for each in alive:
        share = everyone[each].descriptors[0]
        assert f"individual {each}: activeness {share:.2f}" in text
    # The picture of styles stands for the front of a run of styles.
    assert populations.front(summary) == ""


def test_the_front_of_three_objectives_tells_the_third_by_colour(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main([
        "evolve", "dtlz2", "--ec.population", "12", "--evaluations", "120", "--run", str(run),
        "--quiet",
    ]) == 0  # fmt: skip
    summary = summarise(run)
    text = populations.front(summary)
    front = individuals.latest(Run.open(run), "front")
    shown = sum(text.count(f"fill:var(--c{step})") for step in range(3))
    assert shown == len(front)
    assert "f1 (minimized)" in text
    assert "f3 (minimized)" in text
    assert populations.styles(summary) == ""


def test_replays_show_the_ends_and_the_middle(evolved: Path, tmp_path: Path) -> None:
    replays, reason = record_replays(evolved)
    assert reason == ""
    assert [each.title for each in replays] == [
        "Least activeness", "Middling activeness", "Most activeness",
    ]  # fmt: skip
    shares = [each.info["activeness"] for each in replays]
    assert shares == sorted(shares)
    assert all(len(each.frames) > 10 for each in replays)
    page = tmp_path / "report.html"
    assert main(["report", str(evolved), "-o", str(page)]) == 0
    text = page.read_text("utf-8")
    assert 'id="styles"' in text
    assert "NSGA2 on pong-styles" in text
    assert "No evaluation yet" not in text


def test_settings_at_their_defaults_are_those_of_the_problem() -> None:
    plain = default_settings({"problem": "pong-styles", "training": {}})
    assert plain is not None
    assert plain["training"]["term"]["scale"] == "log"


def test_an_individual_plays_as_it_was_trained(
    evolved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.open(evolved)
    chosen = identifier_of(run, "front:0")
    weights = individuals.load_weights(run, individuals.read_all(run)[chosen])["weights"]
    policy = next(iter(load_player(run, chosen).policies.values()))
    for name, array in policy.arrays().items():
        if name != "version":
            assert (weights[f"policy/left/{name}"] == array).all()

    def played(*options: str) -> Any:
        assert main(["play", str(evolved), *options, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["players"]

    assert played() == played("--individual", str(chosen))
    with pytest.raises(UnknownName, match="there is no individual 99; ids go from 0 to 7"):
        load_player(run, 99)
    assert main(["play", str(evolved), "--individual", "front:99"]) == 2
    assert "the front has the places 0 to" in capsys.readouterr().err
    assert main(["play", str(evolved), "--checkpoint", "best"]) == 2
    assert "choose --individual" in capsys.readouterr().err
    assert main(["play", "pong", "--individual", "3"]) == 2
    assert "--individual: has no effect on a game" in capsys.readouterr().err


def test_numbers_are_no_players(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["evolve", "sphere", "--evaluations", "50", "--run", str(run), "--quiet"]) == 0
    with pytest.raises(RunError, match="the individuals of sphere are no players"):
        load_player(Run.open(run), 0)
