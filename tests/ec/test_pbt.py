"""Population based training: who is copied, what is perturbed, and what is never touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamarckian import ec
from lamarckian.ec.pbt import PBT
from lamarckian.ec.welch import incomplete_beta, welch
from lamarckian.evaluator import Blob, Categorical, Encoding, Integer, Objective, Outcome, Real

ENCODING = Encoding(
    parts={
        "learning_rate": Real(1e-5, 1.0, scale="log"),
        "critic_weight": Real(0.0, 1.0),
        "epochs": Integer(1, 10),
        "kind": Categorical(("a", "b")),
        "weights": Blob({"w": ((1,), "float64")}),
    },
    objectives=(Objective("score", "maximize"),),
)


def pbt(**config: Any) -> PBT:
    search = ec.make("pbt", ENCODING, 5, **config)
    assert isinstance(search, PBT)
    return search


def told(individual: ec.Individual, score: float) -> ec.Individual:
    weights = {"w": np.array([float(individual.id)])}
    individual.outcome = Outcome(np.array([score]), decision={"weights": weights})
    return individual


def test_exploit_inherits_the_donors_weights_by_reference_and_perturbs_within_bounds() -> None:
    search = pbt(population=10, resample_probability=0.0)
    first = search.ask(10)
    search.tell([told(each, float(each.id)) for each in first])
    second = search.ask(10)
    by_operator: dict[str, list[ec.Individual]] = {"exploit": [], "continue": []}
    for each in second:
        by_operator[each.origin.operators[0]].append(each)
    # Truncation at 20 %: members 0 and 1 copy 8 or 9.
    assert [each.parents[1] for each in by_operator["exploit"]] == [0, 1]
    donors = {each.id: each for each in first}
    for child in by_operator["exploit"]:
        donor = donors[child.parents[0]]
        assert donor.id in (8, 9)
        assert donor.outcome is not None
        assert donor.outcome.decision is not None
        assert child.decision["weights"]["w"] is donor.outcome.decision["weights"]["w"]  # type: ignore[index]
        for name in ("learning_rate", "critic_weight"):
            value, origin = float(child.decision[name]), float(donor.decision[name])  # type: ignore[arg-type]
            expected = {min(origin * 0.8, 1.0), min(origin * 1.2, 1.0)}
            assert any(value == pytest.approx(each) for each in expected)
        assert child.decision["epochs"] != donor.decision["epochs"]
        assert child.decision["kind"] == donor.decision["kind"]


def test_pitfalls_evo_01_the_proposal_holds_the_childs_values_after_the_donor_was_loaded() -> None:
    search = pbt(population=4, fraction=0.25, resample_probability=0.0)
    first = search.ask(4)
    search.tell([told(each, float(each.id)) for each in first])
    child = search.ask(1)[0]
    assert child.origin.operators == ("exploit", "explore")
    donor = next(each for each in first if each.id == child.parents[0])
    assert float(child.decision["critic_weight"]) != float(donor.decision["critic_weight"])  # type: ignore[arg-type]


def test_pitfalls_evo_02_never_exploits_a_member_without_a_complete_outcome() -> None:
    search = pbt(population=3, exploit="tournament")
    first = search.ask(3)
    first[0].outcome = Outcome.failure("crashed")
    search.tell(first[:1])
    # Nobody is complete yet: the failed member starts anew and the wish is counted.
    again = search.ask(1)[0]
    assert again.origin.operators == ("initialize",)
    assert search.exploits_without_donor == 1
    search.tell([told(first[1], 1.0)])
    again.outcome = Outcome.failure("crashed again")
    search.tell([again])
    proposals = {each.parents for each in search.ask(2)}
    # Member 2 is still out: only individual 1 can be a donor.
    assert proposals == {(1,)}
    assert search.failures == 2


def test_pitfalls_evo_03_members_that_are_not_replaced_are_never_touched() -> None:
    search = pbt(population=6)
    individuals = search.ask(6)
    for step in range(12):
        search.tell([told(each, each.id + 0.01 * step) for each in individuals])
        held = {each.id: each for each in search.individuals()}
        individuals = search.ask(6)
        for each in individuals:
            if each.origin.operators == ("continue",):
                before = held[each.parents[0]].decision
                for name, value in each.decision.items():
                    if name == "weights":
                        assert value["w"] is before[name]["w"]  # type: ignore[call-overload,index]
                    else:
                        np.testing.assert_array_equal(value, before[name])  # type: ignore[arg-type]
    assert search.exploits > 0


def test_pitfalls_evo_09_a_slow_member_holds_nobody() -> None:
    search = pbt(population=8)
    individuals = {each.id: each for each in search.ask(8)}
    slow = individuals.pop(0)
    for step in range(50):
        search.tell([told(each, each.id + step) for each in individuals.values()])
        individuals = {each.id: each for each in search.ask(8)}
        assert len(individuals) == 7
    # The late result is used: the member goes on from it or copies a better one.
    search.tell([told(slow, 0.0)])
    late = search.ask(8)
    assert len(late) == 1
    assert slow.id in late[0].parents


def test_ask_returns_nothing_while_all_members_are_out() -> None:
    search = pbt(population=2)
    assert len(search.ask(5)) == 2
    assert search.ask(1) == []


def test_asking_one_by_one_serves_all_members_alike() -> None:
    search = pbt(population=4, fraction=0.25)
    for _ in range(20):
        search.tell([told(search.ask(1)[0], 1.0)])
    assert [member.steps for member in search.members] == [5, 5, 5, 5]


@pytest.mark.parametrize("exploit", ["truncation", "tournament", "welch"])
def test_recovers_a_planted_learning_rate_schedule(exploit: str) -> None:
    """A member's quality grows by how close its rate is to 0.1 · 0.93^step, on a log scale."""
    encoding = Encoding(
        parts={
            "rate": Real(1e-4, 1.0, scale="log"),
            "weights": Blob({"progress": ((1,), "float64")}, initial_scale=0.0),
        },
        objectives=(Objective("score", "maximize"),),
    )
    search = ec.make("pbt", encoding, 1, population=24, exploit=exploit, window=3)
    num_steps, planted = 45, []
    for step in range(num_steps):
        wanted = 0.1 * 0.93**step
        asked = search.ask(24)
        for each in asked:
            decision: Any = each.decision
            miss = np.log(float(decision["rate"]) / wanted)
            progress = decision["weights"]["progress"] + np.exp(-(miss**2))
            each.outcome = Outcome(progress, decision={"weights": {"progress": progress}})
        search.tell(asked)
        best: Any = search.best().decision
        planted.append(abs(np.log(float(best["rate"]) / wanted)))
    best_score = search.best().outcome
    assert best_score is not None
    # A fixed rate earns at most the sum of exp(−(0.0726 k)²) around its moment: about 24.3.
    assert best_score.objectives[0] > 27.0
    assert np.mean(planted[15:]) < 0.5


def test_welch_by_hand_and_against_tables() -> None:
    # Means 2 and 5, variances 1 and 1, n = 3: t = −3 / √(2/3) = −3.6742, dof 4.
    t, dof, p = welch([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert t == pytest.approx(-3.6742346)
    assert dof == pytest.approx(4.0)
    # For 4 degrees of freedom P(|T| > t) = 1 − (3/2)·s + s³/2 with s = t / √(t² + 4):
    # s = 0.878310; 1 − 1.317465 + 0.338775 = 0.021310.
    assert p == pytest.approx(0.021312, abs=1e-5)
    assert welch([1.0], [2.0, 3.0])[2] == 1.0
    assert welch([1.0, 1.0], [1.0, 1.0])[2] == 1.0
    assert welch([1.0, 1.0], [2.0, 2.0])[2] == 0.0


def test_incomplete_beta_by_closed_forms() -> None:
    # I_x(1, b) = 1 − (1 − x)^b; I_x(a, 1) = x^a; I_½(a, a) = ½.
    assert incomplete_beta(0.3, 1.0, 4.0) == pytest.approx(1 - 0.7**4, abs=1e-12)
    assert incomplete_beta(0.9, 2.5, 1.0) == pytest.approx(0.9**2.5, abs=1e-12)
    assert incomplete_beta(0.5, 7.3, 7.3) == pytest.approx(0.5, abs=1e-12)
