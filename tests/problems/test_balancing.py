"""Battles worked out by hand, both simulators against each other, and planted culprits found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian import config, seeding
from lamarckian.cli.main import main
from lamarckian.errors import ConfigError, EvaluatorError, UnknownName
from lamarckian.problems.balancing import (
    NUM_TEAMS,
    NUM_UNITS,
    Balancing,
    Measured,
    census,
    exposed,
)
from lamarckian.problems.battles import (
    BattleData,
    Battlefield,
    Entry,
    Rules,
    Skill,
    Soldier,
    load_data,
    luck_of,
    scaled,
)

PLANTED = {"hero:Halth": 1.15, "equipment:Dawn Axe": 3.0, "skill:heal": 1.5}


def small(**rules: Any) -> BattleData:
    """Two heroes without luck: 10 attack on 100 troops, and 20 on 50; skills of known strength."""
    return BattleData(
        heroes=(
            Entry(name="slow", attack=10.0, defence=0.0, speed=1.0, troops=100.0, cost=10.0),
            Entry(name="fierce", attack=20.0, defence=1.0, speed=0.5, troops=50.0, cost=30.0),
        ),
        soldiers=(Soldier(name="foot", beats="horse"), Soldier(name="horse", beats="foot")),
        skills=(
            Skill(name="fury", strength=0.0),
            Skill(name="heal", strength=0.5),
            Skill(name="shield", strength=0.5),
            Skill(name="volley", strength=0.5),
        ),
        equipment=(Entry(name="none"), Entry(name="edge", attack=0.5, cost=2.0)),
        rules=Rules(**{"luck": 0.0, "advantage": 1.0, "max_ticks": 1, **rules}),
    )


def duel(data: BattleData, first: list[list[int]], second: list[list[int]]) -> list[float]:
    field = Battlefield(data)
    found = []
    for compiled in {True, False} & {field.is_compiled, False}:
        field.is_compiled = compiled
        fought = field.fight(field.teams(np.array([first])), field.teams(np.array([second])))
        found.append(fought[0, 0].tolist())
    assert found.count(found[0]) == len(found)
    return found[0]


def test_a_tick_by_hand() -> None:
    # The slow one strikes 10 on defence 1: 5 of 50. The fierce one gathers 0.5 and waits.
    assert duel(small(), [[0, 0, 0, 0]], [[1, 0, 0, 0]]) == [1.0, 0.9, 10.0, 27.0]
    # Second tick: the slow one takes 5 more; the fierce one strikes 20 * (1 + 0.9) / 2 = 19.
    assert duel(small(max_ticks=2), [[0, 0, 0, 0]], [[1, 0, 0, 0]]) == pytest.approx(
        [0.81, 0.8, 8.1, 24.0]
    )
    # Half as strong again with the edge, which costs 2: 7.5 of 50.
    assert duel(small(), [[0, 0, 0, 1]], [[1, 0, 0, 0]]) == [1.0, 0.85, 12.0, 25.5]


def test_soldiers_and_skills_by_hand() -> None:
    assert duel(small(advantage=2.0), [[0, 0, 0, 0]], [[1, 0, 0, 0]])[1] == 0.9  # alike
    assert duel(_foot_beats_horse(), [[0, 0, 0, 0]], [[1, 1, 0, 0]])[1] == 0.8  # twice 5 of 50
    assert duel(small(), [[0, 0, 0, 0]], [[1, 0, 2, 0]])[1] == 0.95  # half under the shield
    both = duel(small(), [[0, 0, 3, 0]], [[0, 0, 0, 0], [0, 0, 0, 0]][:1])
    assert both[1] == 0.95  # a volley is half a strike, but on everybody
    # Two of each: the first in front takes both strikes of 10; healed by half of one of them.
    hurt = duel(small(), [[0, 0, 0, 0], [0, 0, 0, 0]], [[0, 0, 1, 0], [0, 0, 0, 0]])
    assert hurt[:2] == [0.9, 0.925]


def _foot_beats_horse() -> BattleData:
    data = small(advantage=2.0)
    return BattleData(
        heroes=data.heroes,
        soldiers=(Soldier(name="foot", beats="horse"), Soldier(name="horse", beats="horse")),
        skills=data.skills,
        equipment=data.equipment,
        rules=data.rules,
    )


def test_compiled_and_plain_battles_are_bit_for_bit_the_same() -> None:
    balancing = Balancing(seed=3)
    if not balancing.field.is_compiled:
        pytest.skip("needs numba")
    units = balancing.draw(np.random.default_rng(1), 12)
    fast = balancing.measure(units)
    balancing.field.is_compiled = False
    plain = balancing.measure(units)
    np.testing.assert_array_equal(fast.strength, plain.strength)
    np.testing.assert_array_equal(fast.resources, plain.resources)


def test_luck_is_uniform_and_of_its_own_in_every_battle_tick_and_unit() -> None:
    drawn = np.array(
        [luck_of(5, np.arange(50), tick, unit) for tick in range(20) for unit in range(6)]
    ).ravel()
    assert len(np.unique(drawn)) == len(drawn)
    assert abs(drawn.mean() - 0.5) < 0.015
    assert abs(drawn.var() - 1 / 12) < 0.005
    assert not np.array_equal(luck_of(5, np.arange(50), 0, 0), luck_of(6, np.arange(50), 0, 0))


def test_a_lineup_is_priced_alike_alone_and_among_others() -> None:
    balancing = Balancing(baselines=7)
    rng = np.random.default_rng(0)
    decisions = [balancing.initialize(rng) for _ in range(4)]
    stacked = {name: np.stack([each[name] for each in decisions]) for name in decisions[0]}
    together = balancing.evaluate_batch(stacked, rng).objectives
    for row, decision in zip(together, decisions, strict=True):
        np.testing.assert_array_equal(row, balancing.evaluate(decision, rng).objectives)


def test_objectives_by_hand() -> None:
    found = Measured(np.array([[0.1, 0.5, -0.25]]), np.array([[3.0, 9.0, 2.0]])).objectives
    np.testing.assert_allclose(found, [[0.75, 4.5, -0.25]])


def test_the_null_model_by_hand() -> None:
    data = load_data()
    balancing = Balancing(baselines=5)
    units = balancing.draw(np.random.default_rng(0), 600)
    strength = np.random.default_rng(1).random((600, NUM_TEAMS))  # nobody is to blame
    findings = exposed(data, units, strength)
    scores = np.array([each.z for each in findings])
    assert abs(scores.mean()) < 0.3
    assert 0.8 < scores.std() < 1.2
    assert min(each.p_value for each in findings) > 0.01
    one = findings[0]
    assert one.expected == pytest.approx(one.count / NUM_TEAMS)
    units = units.reshape(600, NUM_UNITS, 4)
    index = data.names(one.kind).index(one.name)
    at = ("hero", "soldier", "skill", "equipment").index(one.kind)
    assert one.count == int((units[..., at] == index).sum())


def test_planted_culprits_stand_out_and_the_innocent_do_not() -> None:
    guilty = census(Balancing(changes=PLANTED), 1500, seed=1)
    assert {each.key for each in guilty if each.p_value < 0.01} == set(PLANTED)
    assert guilty[0].lift > 1.2
    undone = dict.fromkeys(PLANTED, 1.0)
    assert not {
        each.key for each in census(Balancing(changes=undone), 1500, seed=1) if each.p_value < 0.01
    } & set(PLANTED)


def test_changes_touch_their_entry_only() -> None:
    data = load_data()
    changed = scaled(data, {"hero:Halth": 0.5})
    for before, after in zip(data.heroes, changed.heroes, strict=True):
        factor = 0.5 if before.name == "Halth" else 1.0
        assert (after.attack, after.troops) == (before.attack * factor, before.troops * factor)
        assert (after.defence, after.speed) == (before.defence, before.speed)
    assert changed.equipment == data.equipment


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--change", "hero:Halht=0.9"], "did you mean 'hero:Halth'"),
        (["--change", "Halth"], "expected KIND:NAME=FACTOR"),
        (["--change", "hero:Halth=-1"], "factor between 0 and 100"),
        (["--data", "missing.yaml"], "cannot read"),
        (["--simulator", "nowhere:fight"], "expected module:function"),
        (["--rounds", "0"], "at least one round"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["balance", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_data_of_a_studio_are_checked(tmp_path: Path) -> None:
    for change, words in (
        ({"heroes": [{"name": "A"}, {"name": "A"}]}, "A twice"),
        ({"heroes": [{"name": "A"}, {"name": "B"}]}, "different entries of kind hero"),
        (
            {"skills": [{"name": "fly", "strength": 1.0}, {"name": "heal", "strength": 1.0}]},
            "'fly'",
        ),
        (
            {"soldiers": [{"name": "a", "beats": "c"}, {"name": "b", "beats": "a"}]},
            "'c', which is none",
        ),
        ({"heros": []}, "heros"),
    ):
        plain = config.parse_yaml(Path(load_data.__globals__["STANDARD"]).read_text("utf-8"))
        file = tmp_path / "own.yaml"
        file.write_text(json.dumps({**plain, **change}), "utf-8")
        with pytest.raises(ConfigError, match=words):
            Balancing(data=str(file))


def test_a_simulator_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_battles.py").write_text(
        "import numpy as np\n"
        "def fight(teams, opponents, seed):\n"
        "    '''Hero 0 wins everything.'''\n"
        "    out = np.full((len(teams), len(opponents), 4), 0.5)\n"
        "    out[(teams[..., 0] == 0).any(axis=1), :, 0] = 1.0\n"
        "    return out\n"
        "def broken(teams, opponents, seed):\n"
        "    return np.zeros(3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    balancing = Balancing(simulator="own_battles:fight")
    first = census(balancing, 500, imbalanced_only=False)[0]
    assert first.key == f"hero:{balancing.data.heroes[0].name}"
    assert first.in_strongest == first.count
    broken = Balancing(simulator="own_battles:broken")
    lineups = broken.draw(seeding.stream(0, "x"))
    with pytest.raises(EvaluatorError, match=r"shape \(3,\), expected \(5, 48, 4\)"):
        broken.measure(lineups)
    sys.modules.pop("own_battles", None)
    with pytest.raises(UnknownName):
        scaled(load_data(), {"hero:": 1.0})


def test_the_loop_weakens_who_stands_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["balance", "--run", str(tmp_path / "b"), "--change", "hero:Halth=1.15", "--json"]
    small = ["--population", "20", "--generations", "6", "--lineups", "1200"]
    assert main([*command, *small, "--rounds", "2", "--nerf", "0.87"]) == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document["rounds"]
    assert [
        each["key"] if "key" in each else f"{each['kind']}:{each['name']}"
        for each in first["exposed"]
    ][:1] == ["hero:Halth"]
    assert second["changes"]["hero:Halth"] == pytest.approx(1.15 * 0.87, abs=1e-3)
    assert "hero:Halth" not in {f"{each['kind']}:{each['name']}" for each in second["exposed"]}
    kept = json.loads((tmp_path / "b" / "balance.json").read_text())
    assert kept["rounds"] == document["rounds"]
    assert main(["front", str(tmp_path / "b" / "round-1"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["individuals"]
    # The same command again reads what is there.
    assert main([*command, *small, "--rounds", "2", "--nerf", "0.87"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rounds"][1]["exposed"] == second["exposed"]
