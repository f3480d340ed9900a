"""Settings: strict keys, YAML that means what it says, overrides whose constraints hold."""

import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian import config
from lamarckian.errors import ConfigError


class Ppo(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="ppo",
):
    learning_rate: Annotated[
        float, msgspec.Meta(gt=0, le=1, description="step size of the optimiser")
    ] = 3e-4
    hidden: tuple[int, ...] = (256, 128)
    max_gradient_norm: Annotated[float, msgspec.Meta(gt=0)] | None = 0.5
    normalise: bool = True


class Dqn(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="dqn",
):
    target_every: int = 1000


class Ec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    population: Annotated[int, msgspec.Meta(ge=2)] = 24
    weights: dict[str, float] = {}

    def __post_init__(self) -> None:
        if self.population % 2:
            raise ValueError("population must be even")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = "run"
    frames: Annotated[int, msgspec.Meta(gt=0, description="when to stop")] = 1000
    device: Literal["auto", "cpu", "cuda"] = "auto"
    algorithm: Ppo | Dqn = Ppo()
    ec: Ec = Ec()
    path: str | None = None


def change(*args: str) -> Settings:
    return config.apply(Settings(), config.overrides(list(args)))


def test_values_from_the_command_line() -> None:
    got = change(
        "--algorithm.learning_rate", "3e-3", "--algorithm.hidden=[64, 32]", "--frames", "2_000_000",
        "--algorithm.normalise", "false", "--ec.population=8", "--device", "cpu",
        "--algorithm.max-gradient-norm", "null",
    )  # fmt: skip
    assert got.algorithm == Ppo(
        learning_rate=0.003, hidden=(64, 32), normalise=False, max_gradient_norm=None
    )
    assert (got.frames, got.ec.population, got.device) == (2_000_000, 8, "cpu")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", "3"),
        ("true", "true"),
        ("yes", "yes"),
        ("a: b: c", "a: b: c"),
        ("#1", "#1"),
        ("ü", "ü"),
    ],
)
def test_a_text_field_takes_what_was_typed(text: str, value: str) -> None:
    assert change("--name", text).name == value


@pytest.mark.parametrize("text", ["2e6", "2_000_000", "2000000.0", "+2000000"])
def test_whole_numbers_may_be_written_as_floats(text: str) -> None:
    assert change("--frames", text).frames == 2_000_000


def test_comma_lists_and_mappings() -> None:
    assert change("--algorithm.hidden", "64,32").algorithm == Ppo(hidden=(64, 32))
    assert change("--ec.weights", "{active: 1, lazy: 2}").ec.weights == {"active": 1, "lazy": 2}
    assert change("--ec.weights.active", "0.5").ec.weights == {"active": 0.5}
    assert change("--ec", "{population: 6}").ec.population == 6


def test_a_variant_is_chosen_by_name_before_its_settings() -> None:
    got = change("--algorithm.target_every", "7", "--algorithm", "dqn")
    assert got.algorithm == Dqn(target_every=7)
    kept = config.apply(Settings(algorithm=Ppo(learning_rate=0.5)), {"algorithm": "ppo"})
    assert kept.algorithm == Ppo(learning_rate=0.5)
    with pytest.raises(
        ConfigError, match=r"algorithm: expected one of ppo, dqn.*did you mean 'dqn'"
    ):
        change("--algorithm", "dqnn")


def test_pitfalls_cfg_01_unknown_key_names_path_and_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        change("--algorithm.learnig_rate", "1e-3")
    text = str(caught.value)
    assert "'algorithm.learnig_rate'" in text
    assert "did you mean 'algorithm.learning_rate'?" in text
    assert "algorithm.max_gradient_norm" in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--frames", "many"], ["frames: expected an integer", "> 0", "'many'"]),
        (["--frames", "0"], ["frames", "> 0", "'0'"]),
        (["--frames", "2.5"], ["frames", "an integer", "'2.5'"]),
        (["--algorithm.learning_rate", "2"], ["algorithm.learning_rate", "<= 1", "'2'"]),
        (["--algorithm.learning_rate", ".nan"], ["learning_rate", "finite", "'.nan'"]),
        (["--algorithm.learning_rate", "true"], ["learning_rate", "a number", "'true'"]),
        (["--algorithm.normalise", "yes"], ["normalise: expected true or false", "'yes'"]),
        (["--device", "gpu"], ["device", "auto, cpu, cuda", "'gpu'"]),
        (["--ec.population", "7"], ["ec", "must be even"]),
        (["--ec", "5"], ["ec: expected a group of settings"]),
        (["--frames.x", "5"], ["frames.x", "one value"]),
        (["--frames"], ["--frames needs a value"]),
        (["--frames", "1", "--frames", "2"], ["--frames is given twice"]),
        (["pong"], ["unexpected argument 'pong'"]),
    ],
)
def test_a_wrong_value_names_key_expected_and_got(args: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        change(*args)
    for part in parts:
        assert part in str(caught.value)


def test_negative_numbers_are_values() -> None:
    assert config.overrides(["--x", "-3", "--y", "-1e-3"]) == {"x": "-3", "y": "-1e-3"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4), ("1E5", 1e5), (".5", 0.5), ("010", 10), ("0x1f", 31), ("1_000", 1000),
        ("yes", "yes"), ("on", "on"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"),
        ("~", None), ("true", True), ("1.2.3", "1.2.3"), ("_1", "_1"), ("-.inf", -math.inf),
    ],
)  # fmt: skip
def test_yaml_scalars_follow_version_1_2(text: str, value: object) -> None:
    got = config.parse_yaml(text)
    assert got == value
    assert type(got) is type(value)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abcxyz019._-", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_what_is_dumped_reads_back_equal(data: object) -> None:
    back = config.parse_yaml(config.dump_yaml(data))
    assert back == data
    assert repr(back) == repr(data)  # 1 is not 1.0, and "3e-4" stays a text


def test_yaml_file_round_trip_at_an_odd_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "ü"
    folder.mkdir(parents=True)
    record = Settings(name="3e-4", algorithm=Dqn(target_every=3), ec=Ec(weights={"löwe": 1e-5}))
    (folder / "c.yaml").write_text(config.dump_yaml(record), encoding="utf-8")
    assert config.load_yaml(folder / "c.yaml", Settings) == record


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("frames: 1\nframes: 2\n", "line 2: key 'frames' stands twice"),
        ("algorithm:\n  name: ppo\n  lr: 1\n", "unknown setting 'algorithm.lr'"),
        ("frames: '3'\n", "frames: expected an integer (> 0), got '3'"),
        ("- 1\n", "expected keys with values"),
        ("a: [1\n", "line 2: not valid YAML"),
        ("1: 2\n", "expected a text as key"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load_yaml(file, Settings)
    assert part in str(caught.value)
    assert str(file) in str(caught.value)


def test_empty_file_gives_the_defaults_and_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("")
    assert config.load_yaml(tmp_path / "c.yaml", Settings) == Settings()
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        config.load_yaml(tmp_path / "none.yaml", Settings)


def test_required_fields_are_asked_for() -> None:
    class Needy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        game: str

    with pytest.raises(ConfigError, match="game: a value is required"):
        config.build(Needy, {})
    assert config.build(Needy, {"game": "pong"}).game == "pong"


def test_describe_lists_key_default_range_and_meaning() -> None:
    rows = {row.key: row for row in config.describe(Settings)}
    rate = rows["algorithm.learning_rate"]
    assert (rate.default, rate.constraint, rate.doc) == (
        3e-4, "> 0, <= 1", "step size of the optimiser",
    )  # fmt: skip
    assert rows["algorithm"].type == "ppo or dqn"
    assert rows["ec.population"].constraint == ">= 2"
    assert rows["device"].type == "one of auto, cpu, cuda"
    assert "ec" not in rows
    # Every key that is described can be set, to its own default.
    for key, row in rows.items():
        assert config.apply(Settings(), {key: row.default}) == Settings()
