"""The commands of evolution, as typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evaluators import Bowl

import lamarckian as lm
from lamarckian.cli.main import main
from lamarckian.errors import ConfigError
from lamarckian.runs.evolution import EvolutionResult


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command with ``--json`` and return its document."""
    code = main([*arguments, "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


@pytest.fixture
def finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    run(
        capsys, "evolve", "zdt1", "--ec", "nsga2", "--ec.population", "20", "--evaluations", "400",
        "--run", str(tmp_path / "run"),
    )  # fmt: skip
    return tmp_path / "run"


def test_evolve_prints_indicators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = run(
        capsys, "evolve", "zdt1", "--ec", "nsga2", "--ec.population", "20", "--evaluations", "400",
        "--run", str(tmp_path / "run"),
    )  # fmt: skip
    assert {"hypervolume", "igd", "seconds", "front_size", "idle_share"} <= set(document)
    assert document["evaluations"] == 400
    assert document["generations"] == 20


def test_the_search_that_fits_is_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for problem, name in (("sphere", "ga"), ("zdt2", "nsga2"), ("evaluators:Trained", "pbt")):
        document = run(
            capsys, "evolve", problem, "--evaluations", "200", "--run", str(tmp_path / name)
        )
        assert document["ec"] == name


def test_generations_are_a_budget_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = run(
        capsys, "evolve", "sphere", "--ec", "cma-es", "--generations", "7", "--run",
        str(tmp_path / "run"),
    )  # fmt: skip
    assert document["generations"] == 7


def test_a_file_of_settings_and_options_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "problem: dtlz2\noptions: {num_objectives: 2}\nec: {name: nsga2, population: 12}\n"
        "evaluations: 60\n"
    )
    document = run(
        capsys, "evolve", "--config", str(file), "--evaluations", "48", "--run",
        str(tmp_path / "run"),
    )  # fmt: skip
    assert (document["problem"], document["evaluations"], document["generations"]) == (
        "dtlz2",
        48,
        4,
    )


def test_front_lists_the_non_dominated(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = run(capsys, "front", str(finished))
    values = [tuple(each["objectives"].values()) for each in document["individuals"]]
    assert values == sorted(values)
    for one in values:
        assert not any(
            other != one and other[0] <= one[0] and other[1] <= one[1] for other in values
        )
    assert len(run(capsys, "front", str(finished), "--population")["individuals"]) == 20
    assert main(["front", str(finished)]) == 0
    assert "sbx+polynomial" in capsys.readouterr().out


def test_lineage_goes_back_to_the_first_generation(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = run(capsys, "front", str(finished))["individuals"][0]["id"]
    line = run(capsys, "lineage", str(finished), str(best))["lineage"]
    assert line[0]["origin"] == ["initialize"]
    assert line[-1]["id"] == best
    for child, parent in zip(line[1:], line[:-1], strict=True):
        assert child["parents"][0] == parent["id"]
    whole = run(capsys, "lineage", str(finished), str(best), "--all")["lineage"]
    assert len(whole) >= len(line)
    first = run(capsys, "lineage", str(finished), "front:0")
    assert first["lineage"][-1]["id"] == first["id"]


def test_search_spaces_say_what_evolves(capsys: pytest.CaptureFixture[str]) -> None:
    document = run(capsys, "search-spaces")
    assert document["problems"]["zdt1"]["searches"] == ["nsga2"]
    assert "permutation" in str(document["problems"]["tour"]["parts"])
    assert "cartpole" in document["games"]
    one = run(capsys, "search-spaces", "evaluators:Trained")["evaluators:Trained"]
    assert one["kinds"] == {"rate": "real", "weights": "blob"}
    assert main(["search-spaces"]) == 0
    assert "minimize f1, minimize f2; searches: nsga2" in capsys.readouterr().out


def test_resume_tells_evolution_from_training(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = run(capsys, "resume", str(finished), "--evaluations", "500")
    assert document["evaluations"] == 500
    assert main(["resume", str(finished), "--frames", "5"]) == 2
    assert "extend it with --evaluations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evolve"], "evolve: what?"),
        (["evolve", "zdt11"], "did you mean 'zdt1'"),
        (["evolve", "zdt1", "--ec", "nsga3"], "did you mean 'nsga2'"),
        (["evolve", "zdt1", "--ec", "cma-es"], "cma-es takes one"),
        (["evolve", "zdt1", "--ec.population", "many"], "ec.population"),
        (["evolve", "zdt1", "--ec.population", "1"], "ec.population"),
        (["evolve", "zdt1", "--ec.populaton", "10"], "did you mean 'ec.population'"),
        (["evolve", "zdt1", "--evaluations", "-5"], "evaluations"),
        (["evolve", "zdt1", "--mode", "lazy"], "mode"),
        (["evolve", "zdt1", "--options.colour", "red"], "colour"),
        (["evolve", "nowhere:Thing"], "no module 'nowhere'"),
        (["evolve", "evaluators:BadDescribe"], "expected an Encoding"),
        (["evolve", "evaluators:AlwaysRaises", "--evaluations", "20"], "not installed"),
        (["front", "nowhere"], "no such run folder"),
        (["lineage", "nowhere", "0"], "no such run folder"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, *(["-q"] if arguments[0] == "evolve" else [])]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("who", ["401", "front:99", "front:x", "best"])
def test_lineage_of_nobody(who: str, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", str(finished), who]) == 2
    assert who.removeprefix("front:") in capsys.readouterr().err


def test_python_does_what_the_command_line_does(tmp_path: Path) -> None:
    first = lm.evolve(Bowl, run=tmp_path / "run", evaluations=100, show=False)
    assert first.ec == "ga"
    second = lm.resume(tmp_path / "run", evaluations=200)
    assert isinstance(second, EvolutionResult)
    assert second.evaluations == 200
    with pytest.raises(ConfigError, match="extend it with evaluations"):
        lm.resume(tmp_path / "run", frames=7)
