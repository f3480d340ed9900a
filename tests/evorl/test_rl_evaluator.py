"""Players as individuals: what is inherited, what is in force, and what is written back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_population import SMALL, decisions, evaluator, weights

from lamarckian import ec
from lamarckian.ec.pbt import PBT
from lamarckian.errors import ConfigError
from lamarckian.evorl import searches
from lamarckian.evorl.evaluating import stream_of
from lamarckian.evorl.rl_evaluator import RLTask
from lamarckian.runs import individuals as storage
from lamarckian.runs.evolution import evolve, resume
from lamarckian.runs.folder import Run
from lamarckian.runs.game_evolution import GameEvolutionRun

GENES = {
    "learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
    "clip_range": {"low": 0.05, "high": 0.3},
}


def settings(**changes: Any) -> GameEvolutionRun:
    import msgspec

    torch.set_num_threads(1)
    task = {"frames": 256, "episodes": 4, "algorithm": SMALL, "genes": GENES}
    plain: dict[str, Any] = {
        "problem": "cartpole",
        "ec": searches.PBT(population=4),
        "evaluations": 16,
        "training": msgspec.convert(task, RLTask),
        **changes,
    }
    return GameEvolutionRun(**plain)


def test_pitfalls_evo_01_the_heirs_genes_are_in_force_after_loading_the_donor() -> None:
    made = evaluator("cartpole", genes=GENES)
    search = ec.make("pbt", made.describe(), 0, made.initialize, population=4, fraction=0.25)
    assert isinstance(search, PBT)
    exploited = 0
    for _ in range(6):
        for individual in search.ask(4):
            individual.outcome = made.evaluate(individual.decision, stream_of(0, individual.id))
            for gene in ("learning_rate", "clip_range"):
                assert individual.outcome.statistics[f"in_force/{gene}"] == pytest.approx(
                    float(np.asarray(individual.decision[gene])), rel=1e-6
                )
            exploited += "exploit" in individual.origin.operators
            search.tell([individual])
    assert exploited


def test_training_begins_at_the_inherited_weights_and_is_written_back() -> None:
    made = evaluator("cartpole", genes=GENES)
    (start,) = decisions(made, 1)
    first = made.evaluate(start, stream_of(0, 0))
    moved = weights(first)
    begun = start["weights"]
    assert isinstance(begun, dict)
    assert any(not np.array_equal(begun[name], moved[name]) for name in begun)
    steps = [array for name, array in moved.items() if "/step/" in name]
    # 256 frames are 2 batches of 128; 2 epochs of 2 minibatches each (48 and the rest): 8 steps.
    assert {float(each) for each in steps} == {8.0}
    second = made.evaluate({**start, "weights": moved}, stream_of(0, 1))
    assert {float(a) for n, a in weights(second).items() if "/step/" in n} == {16.0}
    again = made.evaluate({**start, "weights": moved}, stream_of(0, 1))
    for name, array in weights(second).items():
        np.testing.assert_array_equal(array, weights(again)[name])


def test_pitfalls_evo_02_03_donors_are_complete_and_untouched_members_never_roll_back(
    tmp_path: Path,
) -> None:
    evolve(settings(evaluations=32), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    everyone = storage.read_all(run)
    hashes = {
        int(e.fields["id"]): e.fields["weights"]
        for e in run.replay()
        if e.event == "individual_told"
    }
    told_before: set[int] = set()
    seen: set[str] = set()
    for entry in run.replay():
        if entry.event == "individual_told":
            told_before.add(int(entry.fields["id"]))
            # Training always moves on: nobody's weights are ever an older state again (EVO-03).
            assert entry.fields["weights"] not in seen
            seen.add(entry.fields["weights"])
        if entry.event == "individual_proposed" and entry.fields["parents"]:
            donor = int(entry.fields["parents"][0])
            assert donor in told_before  # EVO-02
            assert hashes[donor]
    goes_on = [each for each in everyone.values() if each.operators == ("continue",)]
    assert goes_on
    for each in goes_on:
        assert everyone[each.parents[0]].decision == each.decision


def test_pitfalls_evo_14_exploit_reads_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("weights were read from disk")

    monkeypatch.setattr(storage, "read_blob", refuse)
    result = evolve(settings(evaluations=24), tmp_path / "run")
    assert result.failures == 0
    origins = [each.operators for each in storage.read_all(Run.open(tmp_path / "run")).values()]
    assert ("exploit", "explore") in origins


def test_a_stopped_run_of_players_goes_on_bit_for_bit(tmp_path: Path) -> None:
    evolve(settings(evaluations=16), tmp_path / "short")
    resume(tmp_path / "short", evaluations=32)
    evolve(settings(evaluations=32), tmp_path / "long")

    def told(path: Path) -> list[Any]:
        return [
            (e.fields["id"], e.fields["objectives"], e.fields["weights"], e.fields["decision"])
            for e in Run.open(path).replay()
            if e.event == "individual_told"
        ]

    assert told(tmp_path / "short") == told(tmp_path / "long")


@pytest.mark.slow
def test_processes_give_the_same_individuals(tmp_path: Path) -> None:
    evolve(settings(evaluations=8), tmp_path / "here")
    evolve(settings(evaluations=8, placement="processes", num_workers=2), tmp_path / "there")
    here = storage.read_all(Run.open(tmp_path / "here"))
    there = storage.read_all(Run.open(tmp_path / "there"))
    assert list(here) == list(there)
    for one, other in zip(here.values(), there.values(), strict=True):
        # Groups of another size: equal but for rounding.
        assert one.objectives == pytest.approx(other.objectives, rel=0.2)
        if one.generation == 0:
            assert one.decision == other.decision


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"genes": {"learning_rate": {"low": 1e-4, "high": 7.0}}}, "learning_rate: 7.0"),
        ({"genes": {"num_games": {"low": 1, "high": 7}}}, "num_games"),
        ({"algorithm": {"learning_rate_schedule": "linear"}}, "has no effect in an evolution"),
    ],
)
def test_genes_that_cannot_evolve_are_refused(task: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluator("cartpole", **task)
