"""Evolution as a run: what is recorded, and that a killed run goes on as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluators import Trained

from lamarckian.errors import ConfigError, EvaluatorError, UnknownName, UnsupportedSpace
from lamarckian.evorl import searches
from lamarckian.runs import individuals as storage
from lamarckian.runs.evolution import EvolutionRun, evolve, resume
from lamarckian.runs.folder import Run


def genealogy(path: Path) -> list[Any]:
    """Everything about every individual but for its wall clock, and the course of selection."""
    run = Run.open(path)
    # Hashes as recorded: which weights are still on disk depends on when checkpoints were written.
    weights = {
        int(e.fields["id"]): e.fields["weights"]
        for e in run.replay()
        if e.event == "individual_told"
    }
    found = []
    for each in storage.read_all(run).values():
        plain = each.to_json() | {"weights": weights.get(each.id, "")}
        plain.pop("seconds")
        found.append(plain)
    selections = [
        (e.fields["generation"], e.fields["population"], e.fields["front"], e.fields["evaluations"])
        for e in run.replay()
        if e.event == "generation"
    ]
    return [found, selections]


def settings(problem: str, **changes: Any) -> EvolutionRun:
    changes = {"evaluations": 60, "ec": searches.GA(population=10), "seed": 3, **changes}
    return EvolutionRun(problem=problem, **changes)


def test_a_numeric_problem_reaches_its_front_and_reports_indicators(tmp_path: Path) -> None:
    result = evolve(
        EvolutionRun(problem="zdt1", ec=searches.NSGA2(population=40), evaluations=4000),
        tmp_path / "run",
    )
    assert result.finished
    assert result.evaluations == 4000
    assert result.generations == 100
    # The best possible hypervolume for (1.1, 1.1) is 0.8737 with infinitely many points.
    assert 0.6 < result.indicators["hypervolume"] < 0.8737
    assert set(result.indicators) == {"hypervolume", "igd", "igd_plus", "spread"}
    everyone = storage.read_all(Run.open(tmp_path / "run"))
    assert list(everyone) == list(range(4000))
    best = result.best[0]
    assert everyone[best["id"]].objectives == list(best["objectives"].values())
    assert everyone[best["id"]].decision == best["decision"]
    assert everyone[3999].parents
    assert everyone[3999].operators == ("sbx", "polynomial")


def test_events_name_ancestry_and_outcomes(tmp_path: Path) -> None:
    evolve(settings("evaluators:Trained", ec=searches.PBT(population=4)), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    everyone = storage.read_all(run)
    assert len(everyone) == 60
    assert {each.status for each in everyone.values()} == {"ok"}
    children = [each for each in everyone.values() if each.operators == ("exploit", "explore")]
    assert children
    for child in children:
        donor = everyone[child.parents[0]]
        assert donor.id < child.id
    blob = storage.load_weights(run, everyone[59])["weights"]["w"]
    assert blob.dtype == np.float32


def test_pitfalls_evo_14_retention_is_bounded(tmp_path: Path) -> None:
    evolve(
        settings(
            "evaluators:Trained",
            ec=searches.PBT(population=4),
            evaluations=80,
            checkpoint_seconds=0.0,
        ),
        tmp_path / "run",
    )
    blobs = list((tmp_path / "run" / "blobs").glob("*"))
    # At most the population and what was told since the last checkpoint, and two checkpoints.
    assert len(blobs) <= 4 + 4 + 4 + 3
    evolve(
        settings("evaluators:Trained", ec=searches.PBT(population=4), keep_weights="all"),
        tmp_path / "all",
    )
    assert all(each.weights for each in storage.read_all(Run.open(tmp_path / "all")).values())


PROGRAM = """
import sys, os
sys.path.insert(0, {tests!r})
from lamarckian.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(tests=here), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=here,
    )


def kill_when(process: subprocess.Popen[bytes], journal: Path, needle: bytes, count: int) -> None:
    """Kill -9 as soon as the journal holds ``needle`` so many times."""
    give_up = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(needle) >= count):
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < give_up
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("evaluators:Trained", ["--ec", "pbt", "--ec.population", "4"]),
        pytest.param(
            "evaluators:Bowl", ["--ec", "ga", "--ec.population", "10"], marks=pytest.mark.slow
        ),
    ],
)
def test_pitfalls_evo_05_a_killed_run_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, problem: str, options: list[str]
) -> None:
    count = tmp_path / "count"
    common = [
        problem, *options, "--evaluations", "60", "--seed", "3", "--checkpoint_seconds", "0.05",
        "--options.delay", "0.005",
    ]  # fmt: skip
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    straight_count = tmp_path / "straight-count"
    process = start(
        "evolve", *common, "--options.log", str(straight_count), "--run", str(straight), "-q"
    )
    assert process.wait(60) == 0
    assert process.stderr is not None
    process.stderr.close()
    process = start("evolve", *common, "--options.log", str(count), "--run", str(killed), "-q")
    kill_when(process, killed / "journal.jsonl", b'"individual_told"', 17)
    # Twice more, at other instants.
    process = start("resume", str(killed), "-q")
    kill_when(process, killed / "journal.jsonl", b'"individual_told"', 38)
    result = resume_here(killed)
    assert result.evaluations == 60
    assert genealogy(killed) == genealogy(straight)
    # Nobody was evaluated twice, but for the one at work at the instant of a kill.
    draws = count.read_text().split()
    assert set(draws) == set(straight_count.read_text().split())
    assert len(draws) <= 60 + 2


def resume_here(path: Path) -> Any:
    """Resume in this process, where the evaluators of the tests can be imported."""
    return resume(path)


@pytest.mark.slow
def test_pitfalls_evo_05_a_killed_run_of_players_goes_on_bit_for_bit(tmp_path: Path) -> None:
    common = [
        "cartpole", "--ec", "pbt", "--ec.population", "4", "--evaluations", "40", "--seed", "3",
        "--checkpoint_seconds", "0.3", "--training.frames", "128", "--training.episodes", "2",
        "--training.algorithm.num_games", "8", "--training.algorithm.fragment_length", "16",
        "--training.algorithm.network.hidden", "[16]",
        "--training.algorithm.network.critic_hidden", "[8]", "-q",
    ]  # fmt: skip
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    process = start("evolve", *common, "--run", str(straight))
    assert process.wait(100) == 0
    assert process.stderr is not None
    process.stderr.close()
    process = start("evolve", *common, "--run", str(killed))
    kill_when(process, killed / "journal.jsonl", b'"group_told"', 3)
    process = start("resume", str(killed), "-q")
    kill_when(process, killed / "journal.jsonl", b'"individual_told"', 26)
    process = start("resume", str(killed), "-q")
    assert process.wait(100) == 0
    assert process.stderr is not None
    process.stderr.close()
    assert genealogy(killed) == genealogy(straight)


def test_a_killed_array_problem_goes_on_bit_for_bit(tmp_path: Path) -> None:
    common = [
        "dtlz2", "--ec", "nsga2", "--ec.population", "52", "--evaluations", "20000",
        "--checkpoint_seconds", "0.1",
    ]  # fmt: skip
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    evolve(
        EvolutionRun(problem="dtlz2", ec=searches.NSGA2(population=52), evaluations=20000),
        straight,
    )
    process = start("evolve", *common, "--run", str(killed), "-q")
    kill_when(process, killed / "journal.jsonl", b'"batch_told"', 150)
    resume_here(killed)
    assert genealogy(killed) == genealogy(straight)


def test_told_but_not_recorded_is_told_from_its_file(tmp_path: Path) -> None:
    """The instant between the file of an individual and its event."""
    count = tmp_path / "count"
    path = tmp_path / "run"
    evolve(
        settings(
            "evaluators:Trained",
            ec=searches.PBT(population=4),
            evaluations=6,
            options={"log": str(count)},
        ),
        path,
    )
    before = genealogy(path)
    # Cut the end of the run out of the journal: the last outcome, and all that followed.
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if b'"individual_told"' in line)
    (path / "journal.jsonl").write_bytes(b"".join(lines[:last]))
    for checkpoint in (path / "checkpoints").glob("[1-9]*.json"):
        checkpoint.unlink()
    resume_here(path)
    assert genealogy(path) == before
    assert len(count.read_text().split()) == 6


def test_an_extended_run_equals_a_longer_one(tmp_path: Path) -> None:
    evolve(settings("evaluators:Bowl", evaluations=30), tmp_path / "run")
    resume(tmp_path / "run", evaluations=60)
    evolve(settings("evaluators:Bowl", evaluations=60), tmp_path / "long")
    assert genealogy(tmp_path / "run") == genealogy(tmp_path / "long")


@pytest.mark.parametrize("mode", ["generational", "first-n", "steady-state"])
def test_the_mode_decides_when_selection_runs(tmp_path: Path, mode: Any) -> None:
    result = evolve(settings("evaluators:Bowl", mode=mode), tmp_path / "run")
    assert result.evaluations == 60
    assert result.generations == (60 if mode == "steady-state" else 6)
    assert result.failures == 0


def test_pitfalls_evo_10_failures_are_recorded_ranked_last_and_counted(tmp_path: Path) -> None:
    for how in ("raise", "nan", "-inf"):
        result = evolve(settings("evaluators:Troubled", options={"how": how}), tmp_path / how)
        everyone = storage.read_all(Run.open(tmp_path / how)).values()
        failed = [each for each in everyone if each.status == "failed"]
        assert result.failures == len(failed) > 0
        assert all(each.reason for each in failed)
        assert np.isfinite(result.best[0]["objectives"]["value"])
        assert result.best[0]["objectives"]["value"] >= 0
        parents = {parent for each in everyone for parent in each.parents}
        assert parents.isdisjoint(each.id for each in failed)


def test_a_batch_that_raises_is_evaluated_row_by_row(tmp_path: Path) -> None:
    result = evolve(settings("evaluators:HalfBatch"), tmp_path / "run")
    assert result.evaluations == 60
    assert 0 < result.failures < 60
    everyone = storage.read_all(Run.open(tmp_path / "run")).values()
    assert sum(each.status == "failed" for each in everyone) == result.failures
    assert all(each.decision["x"][0] <= 0.3 for each in everyone if each.status == "ok")
    with pytest.raises(EvaluatorError, match=r"objectives of shape \(10, 1\), got \(10,\)"):
        evolve(settings("evaluators:WrongBatch"), tmp_path / "wrong")


def test_if_nothing_succeeds_the_reason_is_the_message(tmp_path: Path) -> None:
    with pytest.raises(EvaluatorError, match=r"all 60 evaluations failed.*not installed"):
        evolve(settings("evaluators:AlwaysRaises"), tmp_path / "run")


@pytest.mark.parametrize(
    ("problem", "changes", "error", "message"),
    [
        ("zdt", {}, UnknownName, "did you mean 'zdt"),
        ("nowhere:Thing", {}, UnknownName, "no module 'nowhere'"),
        ("evaluators:Bowls", {}, UnknownName, "did you mean 'Bowl'"),
        ("evaluators:BadDescribe", {}, EvaluatorError, "expected an Encoding"),
        ("evaluators:BadInitialize", {}, EvaluatorError, "initialize.*from -1.0 to 1.0"),
        ("evaluators:NeedsOption", {}, ConfigError, "size"),
        ("zdt1", {}, UnsupportedSpace, "ga takes one"),
        ("zdt1", {"options": {"colour": 3}}, ConfigError, "colour"),
        ("sphere", {"lease_seconds": 3.0}, ConfigError, "placement processes"),
        ("sphere", {"evaluations": 0}, ConfigError, "give --evaluations"),
        (
            "sphere",
            {"ec": searches.CMAES(), "mode": "steady-state"},
            ConfigError,
            "whole generations",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, problem: str, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        evolve(settings(problem, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pbt_recovers_a_planted_learning_rate_schedule(tmp_path: Path) -> None:
    result = evolve(
        settings("evaluators:Trained", ec=searches.PBT(population=12), evaluations=12 * 25, seed=1),
        tmp_path / "run",
    )
    everyone = storage.read_all(Run.open(tmp_path / "run"))
    steps: dict[int, list[float]] = {}
    for each in everyone.values():
        steps.setdefault(each.generation, []).append(each.decision["rate"])
    late = np.exp(np.mean(np.log(steps[max(steps) - 1])))
    first = np.exp(np.mean(np.log(steps[0])))
    # With gradient noise 1 the stationary error is proportional to the rate: the smaller the better
    # once the start is forgotten, and the search must have gone there.
    assert late < 0.02 < first
    best = Trained().describe()
    assert best.objectives[0].direction == "maximize"
    assert result.best[0]["objectives"]["score"] > 1.5
