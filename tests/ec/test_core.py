"""The ask/tell contract, on a mixed problem with every kind of part."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import numpy as np
import pytest

from lamarckian import ec
from lamarckian.ec.core import EC, Individual
from lamarckian.errors import CheckpointError, ConfigError, UnknownName, UnsupportedSpace
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

MIXED = Encoding(
    parts={
        "x": Real(0.0, 1.0, shape=3),
        "rate": Real(1e-5, 1e-1, scale="log"),
        "count": Integer(1, 9),
        "kind": Categorical(("a", "b", "c")),
        "team": Permutation(6, 3),
        "weights": Blob({"layer.weight": ((2, 2), "float32"), "layer.bias": ((2,), "float32")}),
    },
    objectives=(Objective("first"), Objective("second", "maximize")),
)


def price(decision: Any) -> Outcome:
    x = decision["x"]
    return Outcome(np.array([float(x.sum()), float(decision["rate"]) + float(decision["count"])]))


def evaluate(individuals: list[ec.Individual]) -> list[ec.Individual]:
    for individual in individuals:
        individual.outcome = price(individual.decision)
    return individuals


def nsga2(population: int = 12, **config: Any) -> EC:
    return ec.make("nsga2", MIXED, 3, population=population, **config)


def summary(search: EC) -> list[tuple[int, list[float]]]:
    return [
        (each.id, each.outcome.objectives.tolist()) for each in search.individuals() if each.outcome
    ]


def test_ids_are_unique_and_grow() -> None:
    search = nsga2()
    ids = [each.id for _ in range(5) for each in evaluate(search.ask(4))]
    assert ids == list(range(20))


def test_asking_one_by_one_gives_the_same_proposals_as_asking_together() -> None:
    together, alone = nsga2(), nsga2()
    together.tell(evaluate(together.ask(12)))
    alone.tell(evaluate([alone.ask(1)[0] for _ in range(12)]))
    for left, right in zip(together.ask(8), [alone.ask(1)[0] for _ in range(8)], strict=True):
        one, other = ec.individual_to_record(left), ec.individual_to_record(right)
        assert one[0] == other[0]
        assert all(np.array_equal(one[1][key], other[1][key]) for key in one[1])


def test_order_of_arrival_does_not_matter() -> None:
    forward, backward = nsga2(), nsga2()
    for _ in range(4):
        forward.tell(evaluate(forward.ask(12)))
        for individual in reversed(evaluate(backward.ask(12))):
            backward.tell([individual])
    assert summary(forward) == summary(backward)


def test_state_round_trip_continues_identically_with_some_in_flight() -> None:
    search = nsga2(generation_size=5)
    search.tell(evaluate(search.ask(17)))
    waiting = search.ask(4)
    meta, arrays = search.state()
    meta = msgspec.json.decode(msgspec.json.encode(meta))
    other = nsga2(generation_size=5)
    other.load_state(meta, {name: array.copy() for name, array in arrays.items()})
    assert [each.id for each in other.in_flight()] == [each.id for each in waiting]
    other.tell(evaluate(other.in_flight()))
    search.tell(evaluate(waiting))
    for _ in range(3):
        search.tell(evaluate(search.ask(7)))
        other.tell(evaluate(other.ask(7)))
    assert summary(search) == summary(other)
    assert search.evaluations == other.evaluations == 42


def test_load_state_of_another_seed_is_refused() -> None:
    meta, arrays = nsga2().state()
    with pytest.raises(CheckpointError, match="seed 3, this search has 4"):
        ec.make("nsga2", MIXED, 4, population=12).load_state(meta, arrays)


def test_told_twice_is_ignored_and_counted() -> None:
    search = nsga2()
    asked = evaluate(search.ask(3))
    search.tell(asked[:2])
    search.tell(asked)
    assert (search.evaluations, search.repeats_ignored) == (3, 2)


@pytest.mark.parametrize("how", ["nan", "inf", "-inf", "failed", "wrong length"])
def test_pitfalls_evo_10_failed_outcomes_are_ranked_last_and_counted(how: str) -> None:
    search = nsga2(population=16)
    asked = evaluate(search.ask(16))
    bad = asked[5]
    if how == "failed":
        bad.outcome = Outcome.failure("boom")
    elif how == "wrong length":
        bad.outcome = Outcome(np.zeros(3))
    else:
        bad.outcome = Outcome(np.array([float(how), 0.0]))
    search.tell(asked)
    assert search.failures == 1
    assert len(search.individuals()) == 15
    assert bad.id not in {each.id for each in search.individuals()}
    search.tell(evaluate(search.ask(16)))
    assert len(search.individuals()) == 16
    assert all(np.isfinite(np.array([row for _, row in summary(search)])).ravel())


def test_everything_failing_never_stops_the_search() -> None:
    search = nsga2()
    for _ in range(3):
        asked = search.ask(12)
        for each in asked:
            each.outcome = Outcome.failure("no")
        search.tell(asked)
    assert (search.failures, search.individuals(), search.front()) == (36, [], [])


def test_the_best_is_known_before_selection() -> None:
    search = nsga2(population=12)
    asked = evaluate(search.ask(5))
    search.tell(asked)
    assert search.generation == 0
    lowest = min(asked, key=lambda each: each.outcome.objectives[0] if each.outcome else 0.0)
    assert search.best("first").id == lowest.id
    assert lowest.id in {each.id for each in search.front()}


def test_written_back_weights_belong_to_the_individual_and_are_inherited_as_they_are() -> None:
    search = nsga2(variation={"blob_crossover": "fitter", "blob_deviation": 0.0})
    asked = evaluate(search.ask(12))
    for each in asked:
        trained = {
            "layer.weight": np.full((2, 2), each.id, np.float32),
            "layer.bias": np.full(2, each.id, np.float32),
        }
        assert each.outcome is not None
        each.outcome.decision = {"weights": trained}
    search.tell(asked)
    for child in search.ask(12):
        weights: Any = child.decision["weights"]
        assert float(weights["layer.bias"][0]) in {float(parent) for parent in child.parents}
        assert child.parents[0] == int(weights["layer.bias"][0])


def test_decisions_cannot_be_changed_by_an_evaluator() -> None:
    decision = nsga2().ask(1)[0].decision
    with pytest.raises(ValueError, match="read-only"):
        decision["x"][0] = 1.0  # type: ignore[index]


def test_make_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'nsga2'"):
        ec.make("nsga", MIXED, 0)
    with pytest.raises(ConfigError, match="did you mean 'population'"):
        ec.make("nsga2", MIXED, 0, populaton=3)
    with pytest.raises(ConfigError, match="population"):
        ec.make("nsga2", MIXED, 0, population=1)


def test_what_does_not_fit_is_refused_before_anything_starts() -> None:
    from lamarckian.ec.support import check_support

    with pytest.raises(UnsupportedSpace, match="part 'count' is of kind integer") as caught:
        check_support("cma-es", MIXED)
    assert "nsga2" in str(caught.value).split("Searches that fit")[1]


def test_duplicates_are_not_proposed_while_one_is_in_flight() -> None:
    small = Encoding(parts={"n": Integer(0, 60)}, objectives=(Objective("f"),))
    search = ec.make("nsga2", small, 0, population=8)
    asked = search.ask(8)
    for each in asked:
        each.outcome = Outcome(np.array([float(each.decision["n"])]))  # type: ignore[arg-type]
    search.tell(asked)
    proposals = [int(each.decision["n"]) for each in search.ask(12)]  # type: ignore[arg-type]
    repeated = len(proposals) - len(set(proposals))
    assert repeated <= search.duplicates_accepted
    assert search.duplicates_avoided > 0


def test_individuals_told_as_they_were_asked_or_as_copies_give_the_same_search() -> None:
    asked, copied = nsga2(generation_size=1), nsga2(generation_size=1)
    for _ in range(60):
        (mine,), (theirs,) = evaluate(asked.ask(1)), evaluate(copied.ask(1))
        again = Individual(
            theirs.id, theirs.parents, theirs.origin, copy.deepcopy(theirs.decision), theirs.outcome
        )
        asked.tell([mine])
        copied.tell([again])
    for mine, theirs in zip(asked.individuals(), copied.individuals(), strict=True):
        assert (mine.id, mine.parents, mine.origin) == (theirs.id, theirs.parents, theirs.origin)
        np.testing.assert_array_equal(mine.decision["x"], theirs.decision["x"])


def test_a_decision_exchanged_by_the_caller_is_taken_as_told() -> None:
    search = nsga2(generation_size=1)
    (individual,) = search.ask(1)
    individual.decision = {**individual.decision, "x": np.full_like(individual.decision["x"], 0.25)}
    search.tell(evaluate([individual]))
    (kept,) = search.individuals()
    assert (np.asarray(kept.decision["x"]) == 0.25).all()
