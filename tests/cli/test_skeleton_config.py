"""``lamarckian config`` lists what there is, with what was asked for applied."""

import json
import sys
import types
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from lamarckian import config
from lamarckian.cli import main as cli


class Ppo(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name",
    tag="ppo",
):  # fmt: skip
    learning_rate: Annotated[float, Meta(gt=0, description="Step size.")] = 3e-4


class Dqn(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name",
    tag="dqn",
):  # fmt: skip
    target_every: Annotated[int, Meta(ge=1, description="Updates between copies.")] = 1000


class TrainingRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    game: Annotated[str, Meta(description="Game to play.")]
    algorithm: Ppo | Dqn = Ppo()
    learn: tuple[str, ...] = ()


@pytest.fixture(autouse=True)
def small_record(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("lamarckian.runs.training")
    module.TrainingRun = TrainingRun  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lamarckian.runs.training", module)


def test_lists_key_default_range_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config"]) == 0
    text = capsys.readouterr().out
    assert "--game GAME\n" in text
    assert "--algorithm.learning_rate 0.0003\n      a number (> 0)\n      Step size.\n" in text
    assert "--learn []\n" in text
    assert "target_every" not in text


def test_of_another_algorithm_with_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "dqn", "--algorithm.target_every", "7", "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["algorithm.target_every"] == {
        "key": "algorithm.target_every", "type": "an integer", "value": 7, "range": ">= 1",
        "meaning": "Updates between copies.",
    }  # fmt: skip
    assert rows["algorithm"]["value"] == "dqn"


def test_the_yaml_it_prints_can_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["config", "dqn", "--game", "pong", "--yaml"]) == 0
    (tmp_path / "c.yaml").write_text(capsys.readouterr().out)
    assert config.load_yaml(tmp_path / "c.yaml", TrainingRun) == TrainingRun(
        game="pong", algorithm=Dqn()
    )


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "--schema"]) == 0
    assert "TrainingRun" in json.loads(capsys.readouterr().out)["$defs"]


def test_pitfalls_cfg_01_typos_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "dqnn"]) == 2
    assert "unknown algorithm 'dqnn'; did you mean 'dqn'?" in capsys.readouterr().err
    assert cli.main(["config", "--algorithm.learnig_rate", "1"]) == 2
    assert "did you mean 'algorithm.learning_rate'?" in capsys.readouterr().err
    assert cli.main(["config", "dqn", "--algorithm.learning_rate", "1"]) == 2
    assert "unknown setting 'algorithm.learning_rate'" in capsys.readouterr().err
