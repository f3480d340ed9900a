"""Parts, encodings and outcomes: what is accepted, what is refused, and how it is said."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from lamarckian import ec
from lamarckian.errors import ConfigError, EvaluatorError
from lamarckian.evaluator import (
    Blob,
    Categorical,
    Encoding,
    Integer,
    Objective,
    Outcome,
    Permutation,
    Real,
)

ENCODING = Encoding(
    parts={
        "x": Real((0.0, -1.0), (1.0, 1.0), shape=2),
        "n": Integer(1, 3),
        "c": Categorical(("a", "b")),
        "p": Permutation(4, 2),
        "w": Blob({"l.bias": ((2,), "float32")}),
    },
    objectives=(Objective("cost"), Objective("gain", "maximize")),
    constraints=("budget",),
)


def decision(**changes: Any) -> dict[str, Any]:
    good = {
        "x": np.array([0.5, 0.0]),
        "n": np.int64(2),
        "c": np.int64(0),
        "p": np.array([3, 1]),
        "w": {"l.bias": np.zeros(2)},
    }
    return {**good, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.array([0.5, 2.0])}, "part 'x': expected values from"),
        ({"x": np.array([np.nan, 0.0])}, "part 'x': expected values from"),
        ({"x": np.zeros(3)}, r"part 'x': expected shape \(2,\), got \(3,\)"),
        ({"n": 4}, "part 'n': expected values from 1 to 3, got 4"),
        ({"n": 1.5}, "part 'n': expected whole numbers, got float64"),
        ({"c": 2}, "part 'c': expected values from 0 to 1"),
        ({"p": np.array([1, 1])}, "part 'p': items must not repeat"),
        ({"w": {"bias": np.zeros(2)}}, r"part 'w': expected arrays named \['l.bias'\]"),
        ({"w": {"l.bias": np.array([np.inf, 0.0])}}, "array 'l.bias' must be finite"),
        ({"y": 1}, "unknown part 'y'"),
    ],
)
def test_wrong_decisions_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EvaluatorError, match=message):
        ENCODING.check_decision(decision(**changes))


def test_a_missing_part_is_refused_unless_partial() -> None:
    partial = {"x": np.array([0.5, 0.0])}
    with pytest.raises(EvaluatorError, match="part 'n' is missing"):
        ENCODING.check_decision(partial)
    assert list(ENCODING.check_decision(partial, partial=True)) == ["x"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Real(1.0, 1.0), "finite low < high"),
        (lambda: Real(0.0, 1.0, scale="log"), "needs low > 0"),
        (lambda: Real((0.0, 0.0), 1.0, shape=3), "low has 2 entries, expected 1 or 3"),
        (lambda: Integer(3, 3), "low < high"),
        (lambda: Categorical(("a",)), "two or more choices"),
        (lambda: Permutation(3, 4), "num_chosen <= num_items"),
        (lambda: Blob({"w": ((1,), "int64")}), "must be of a float type"),
        (lambda: Encoding(parts={}, objectives=(Objective("f"),)), "at least one part"),
    ],
)
def test_wrong_declarations_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_directions_are_converted_in_one_place_and_back() -> None:
    values = np.array([[1.0, 5.0], [2.0, -3.0]])
    costs = ENCODING.costs(values)
    assert costs.tolist() == [[1.0, -5.0], [2.0, 3.0]]
    np.testing.assert_array_equal(ENCODING.costs(costs), values)


def test_samples_are_valid_and_log_scales_are_uniform_in_the_logarithm() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        ENCODING.check_decision(ENCODING.sample(rng))
    draws = Real(1e-4, 1.0, shape=20_000, scale="log").sample(rng)
    # Log-uniform over four decades: half of the draws below 1e-2.
    assert (draws < 1e-2).mean() == pytest.approx(0.5, abs=0.02)


def test_outcomes_by_name_and_their_refusals() -> None:
    outcome = ENCODING.outcome({"gain": 2.0, "cost": 1.0}, {"budget": -1.0})
    assert outcome.objectives.tolist() == [1.0, 2.0]
    with pytest.raises(EvaluatorError, match="unknown objective 'gains'; did you mean 'gain'"):
        ENCODING.outcome({"gains": 2.0, "cost": 1.0}, {"budget": 0.0})
    with pytest.raises(EvaluatorError, match="constraint 'budget' is missing"):
        ENCODING.outcome({"gain": 2.0, "cost": 1.0})
    with pytest.raises(EvaluatorError, match="expected 2 objectives"):
        ENCODING.check_outcome(Outcome(np.zeros(1), np.zeros(1)))


def test_records_survive_json_with_non_finite_numbers_and_written_back_parts() -> None:
    checked = ENCODING.check_decision(decision())
    outcome = Outcome(
        np.array([np.nan, -np.inf]),
        np.array([0.1]),
        statistics={"length": np.inf, "loss": 0.1},
        decision={"w": {"l.bias": np.ones(2, np.float32)}},
    )
    origin = ec.Origin(("sbx", "polynomial"), 3)
    individual = ec.Individual(7, (1, 2), origin, checked, outcome)
    meta, arrays = ec.individual_to_record(individual)
    assert set(arrays) == {
        "decision/x",
        "decision/n",
        "decision/c",
        "decision/p",
        "decision/w/l.bias",
        "written/w/l.bias",
    }
    again = ec.individual_from_record(msgspec.json.decode(msgspec.json.encode(meta)), arrays)
    assert (again.id, again.parents, again.origin) == (7, (1, 2), origin)
    assert again.outcome is not None
    np.testing.assert_array_equal(again.outcome.objectives, outcome.objectives)
    assert again.outcome.statistics == {"length": np.inf, "loss": 0.1}
    assert again.outcome.decision is not None
    assert again.outcome.decision["w"]["l.bias"].tolist() == [1.0, 1.0]  # type: ignore[index]
    np.testing.assert_array_equal(again.decision["x"], checked["x"])  # type: ignore[arg-type]


def test_encodings_survive_json() -> None:
    again = msgspec.json.decode(msgspec.json.encode(ENCODING), type=Encoding)
    assert again == ENCODING
