"""Conformance suites that users run on their own evaluator and on their own search.

    from lamarckian.testing.evaluators import check_evaluator, check_search

    def test_my_problem():
        check_evaluator(MyProblem())

Each check raises AssertionError with one sentence that says what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from lamarckian import seeding
from lamarckian.ec.core import EC
from lamarckian.ec.individual import Individual
from lamarckian.ec.records import individual_from_record, individual_to_record
from lamarckian.evaluator import (
    BatchEvaluator,
    Decision,
    Encoding,
    Evaluator,
    Outcome,
)


def check_evaluator(
    evaluator: Evaluator, num_decisions: int = 5, is_deterministic: bool = True
) -> None:
    """Check that an evaluator keeps its contract on ``num_decisions`` decisions.

    - ``describe`` gives the same encoding at every call, and the encoding survives JSON;
    - ``initialize`` draws from its rng only (the same seed gives the same decision) and gives
      decisions that fit the encoding;
    - ``evaluate`` gives outcomes that fit the encoding, leaves the decision as it was, and with
      ``is_deterministic`` gives the same numbers for the same decision and seed;
    - ``evaluate_batch``, where there is one, agrees with ``evaluate`` (deterministic evaluators).
    """
    encoding = evaluator.describe()
    assert evaluator.describe() == encoding, "describe: two calls gave different encodings"
    again = msgspec.json.decode(msgspec.json.encode(encoding), type=Encoding)
    assert again == encoding, "describe: the encoding changed on its way through JSON"
    decisions = []
    for index in range(num_decisions):
        first = evaluator.initialize(seeding.stream(0, "check", index))
        second = evaluator.initialize(seeding.stream(0, "check", index))
        decision = encoding.check_decision(first)
        assert _equal(decision, encoding.check_decision(second)), (
            "initialize: the same seed gave two decisions; draw from the rng that is handed in only"
        )
        decisions.append(decision)
    outcomes = []
    for index, decision in enumerate(decisions):
        before = _copy(decision)
        outcome = evaluator.evaluate(decision, seeding.stream(0, "evaluate", index))
        assert _equal(before, decision), (
            "evaluate: the decision was changed in place; work on a copy"
        )
        encoding.check_outcome(outcome)
        assert outcome.failed is not None or outcome.usable, (
            f"evaluate: non-finite objectives {outcome.objectives} without saying why: "
            "return Outcome.failure(reason)"
        )
        if is_deterministic:
            repeated = evaluator.evaluate(decision, seeding.stream(0, "evaluate", index))
            assert np.array_equal(outcome.objectives, repeated.objectives), (
                f"evaluate: the same decision and seed gave {outcome.objectives} and then "
                f"{repeated.objectives}"
            )
        outcomes.append(outcome)
    if isinstance(evaluator, BatchEvaluator) and is_deterministic:
        _check_batch(evaluator, decisions, outcomes)


def _check_batch(
    evaluator: BatchEvaluator, decisions: list[Decision], outcomes: list[Outcome]
) -> None:
    stacked: dict[str, Any] = {}
    for name, value in decisions[0].items():
        if isinstance(value, dict):
            stacked[name] = {
                key: np.stack([each[name][key] for each in decisions]) for key in value
            }
        else:
            stacked[name] = np.stack([np.asarray(each[name]) for each in decisions])
    batch = evaluator.evaluate_batch(stacked, seeding.stream(0, "batch"))
    usable = [row for row, outcome in enumerate(outcomes) if outcome.usable]
    expected = np.array([outcomes[row].objectives for row in usable])
    assert np.allclose(batch.objectives[usable], expected, rtol=1e-9, atol=1e-12), (
        "evaluate_batch: objectives differ from those of evaluate"
    )


def check_search(build: Callable[[Encoding, int], EC], encoding: Encoding) -> None:
    """Check that ``build(encoding, seed)`` gives a search that keeps the rules of ``ec.core``.

    Ids are unique and grow; decisions fit the encoding; the same seed gives the same proposals and
    another seed others; outcomes are taken in any order, late, failed and non-finite; nothing that
    failed is in the population; a state goes through JSON and goes on identically.
    """
    _check_proposals(build, encoding)
    _check_failures(build, encoding)
    _check_state(build, encoding)


def _check_proposals(build: Callable[[Encoding, int], EC], encoding: Encoding) -> None:
    search, same, other = build(encoding, 1), build(encoding, 1), build(encoding, 2)
    ids: list[int] = []
    differs = False
    for _ in range(3):
        asked, again, others = search.ask(6), same.ask(6), other.ask(6)
        assert len(asked) <= 6, f"ask: 6 were asked for, {len(asked)} came"
        for left, right in zip(asked, again, strict=True):
            encoding.check_decision(left.decision)
            assert _equal(left.decision, right.decision), "ask: the same seed, other proposals"
        differs |= any(not _equal(a.decision, b.decision) for a, b in zip(asked, others))
        ids += [each.id for each in asked]
        search.tell(_price(asked, encoding))
        same.tell(_price(again, encoding)[::-1])
        other.tell(_price(others, encoding))
    assert ids == sorted(set(ids)), f"ask: ids must be unique and grow, got {ids}"
    assert differs, "ask: two seeds gave the same proposals"


def _check_failures(build: Callable[[Encoding, int], EC], encoding: Encoding) -> None:
    search = build(encoding, 3)
    bad: set[int] = set()
    for _ in range(4):
        asked = _price(search.ask(6), encoding)
        for position, value in ((0, np.nan), (1, -np.inf)):
            if position < len(asked):
                outcome = asked[position].outcome
                assert outcome is not None
                outcome.objectives = np.full_like(outcome.objectives, value)
                bad.add(asked[position].id)
        if len(asked) > 2:
            asked[2].outcome = Outcome.failure("planted")
            bad.add(asked[2].id)
        search.tell(asked)
    assert search.failures == len(bad), f"tell: {len(bad)} failed, {search.failures} were counted"
    held = {each.id for each in search.individuals()}
    assert not held & bad, f"tell: failed individuals {sorted(held & bad)} are in the population"


def _check_state(build: Callable[[Encoding, int], EC], encoding: Encoding) -> None:
    search, other = build(encoding, 4), build(encoding, 4)
    search.tell(_price(search.ask(6), encoding))
    waiting = search.ask(2)
    meta, arrays = search.state()
    other.load_state(msgspec.json.decode(msgspec.json.encode(meta)), dict(arrays))
    again = other.in_flight()
    assert [each.id for each in again] == [each.id for each in waiting], (
        "state: the individuals in flight were lost"
    )
    for _ in range(3):
        search.tell(_price(waiting, encoding))
        other.tell(_price(again, encoding))
        waiting, again = search.ask(5), other.ask(5)
        for left, right in zip(waiting, again, strict=True):
            assert _equal(left.decision, right.decision), "state: went on with other proposals"
            record, arrays = individual_to_record(left)
            back = individual_from_record(msgspec.json.decode(msgspec.json.encode(record)), arrays)
            assert _equal(back.decision, left.decision), "record: the decision changed"


def _price(individuals: list[Individual], encoding: Encoding) -> list[Individual]:
    """Give every individual an outcome that depends on its id alone."""
    for each in individuals:
        rng = seeding.stream(0, "price", each.id)
        each.outcome = Outcome(
            rng.random(len(encoding.objectives)),
            -rng.random(len(encoding.constraints)),
            np.array([rng.uniform(d.low, d.high) for d in encoding.descriptors], dtype=np.float64),
        )
    return individuals


def _copy(decision: Decision) -> Decision:
    return {
        name: {key: array.copy() for key, array in value.items()}
        if isinstance(value, dict)
        else value.copy()
        for name, value in decision.items()
    }


def _equal(first: Decision, second: Decision) -> bool:
    if list(first) != list(second):
        return False
    for name, value in first.items():
        theirs = second[name]
        if isinstance(value, dict):
            assert isinstance(theirs, dict)
            if not all(np.array_equal(value[key], theirs[key]) for key in value):
                return False
        elif not np.array_equal(value, np.asarray(theirs)):
            return False
    return True
