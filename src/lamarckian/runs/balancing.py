"""The balancing loop: search for imbalanced lineups, find who is to blame, weaken them, search again.

Every round is a run of evolution of its own (``ROUND-0``, ``ROUND-1``, … below one folder), so that it is
resumed, listed and reported like any other. What came out of all rounds is in ``balance.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.ec.nsga2 import NSGA2Config
from lamarckian.errors import ConfigError, RunError
from lamarckian.problems.balancing import IMBALANCED, Balancing, Finding, census, shares_in
from lamarckian.problems.battles import GROUPS
from lamarckian.runs import individuals
from lamarckian.runs.durable import write_file
from lamarckian.runs.evolution import EvolutionResult, build_settings, evolve, resume
from lamarckian.runs.folder import Run
from lamarckian.runs.recording import MakeRecorders

RESULT = "balance.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is searched, and what is done about it.

    ``changes`` are entries made stronger or weaker from the start (``{"hero:Name": 0.8}``). Each of up to
    ``rounds`` searches is followed by a census of ``lineups`` random ones; entries that stand out beyond
    chance (corrected p-value below ``significance``) are multiplied by ``nerf`` before the next round, and
    the loop ends early when none does.
    """

    data: str | None = None
    simulator: str = ""
    changes: Mapping[str, float] = field(default_factory=dict)
    population: int = NSGA2Config().population
    generations: int = 250
    lineups: int = 4000
    rounds: int = 1
    nerf: float = 0.9
    significance: float = 0.01
    seed: int = 0


@dataclass(slots=True)
class Round:
    """One round: the search, what the designer sees of its front, and what the census says.

    ``exposed``           findings beyond chance, the most exposed first.
    ``front_share``       share of imbalanced lineups of the front whose strongest team has the entry.
    ``most_exposed``      the first ten findings, beyond chance or not.
    """

    run: str
    changes: dict[str, float]
    seconds: float
    evaluations: int
    hypervolume: float | None
    front_size: int
    imbalanced: int
    best: dict[str, float]
    exposed: list[Finding]
    most_exposed: list[Finding]
    front_share: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Plain data; front shares of the exposed and of the ten most frequent entries only."""
        plain = asdict(self)
        frequent = sorted(self.front_share, key=lambda key: -self.front_share[key])[:10]
        shown = dict.fromkeys([*(each.key for each in self.exposed), *frequent])
        plain["front_share"] = {key: round(self.front_share[key], 4) for key in shown}
        return plain


def balance(
    plan: Plan,
    path: Path,
    *,
    recorders: Callable[[Any], MakeRecorders] | None = None,
    command: Sequence[str] = (),
) -> list[Round]:
    """Run the loop in the folder ``path``; rounds that are there already are gone on with, or read.

    ``recorders`` makes the recorders of a round from its settings. Raises ConfigError and its kin before
    anything is searched.
    """
    if plan.rounds < 1 or not 0.0 < plan.nerf < 1.0:
        raise ConfigError(
            f"balance: expected at least one round and a nerf within (0, 1), got {plan.rounds} "
            f"and {plan.nerf}"
        )
    changes = dict(plan.changes)
    done: list[Round] = []
    for number in range(plan.rounds):
        folder = path / f"round-{number}"
        options: dict[str, Any] = {"changes": changes, "seed": plan.seed}
        if plan.data:
            options["data"] = plan.data
        if plan.simulator:
            options["simulator"] = plan.simulator
        balancing = Balancing(**options)
        settings = build_settings(
            "balancing",
            {
                "options": options,
                "ec": "nsga2",
                "ec.population": plan.population,
                "generations": plan.generations,
                "seed": plan.seed,
            },
        )
        made = recorders(settings) if recorders else None
        if folder.exists():
            if Run.open(folder).load_config(type(settings)) != settings:
                raise RunError(
                    f"{folder}: was made with other settings; choose another --run, or remove it"
                )
            result = resume(folder, recorders=made)
        else:
            result = evolve(settings, folder, recorders=made, command=command)
        done.append(examine(balancing, result, folder, plan, dict(changes)))
        write_file(
            path / RESULT,
            (json.dumps({"rounds": [each.to_json() for each in done]}, indent=1) + "\n").encode(),
        )
        if not result.finished or not done[-1].exposed:
            break
        for finding in done[-1].exposed:
            changes[finding.key] = round(changes.get(finding.key, 1.0) * plan.nerf, 4)
    return done


def examine(
    balancing: Balancing,
    result: EvolutionResult,
    folder: Path,
    plan: Plan,
    changes: dict[str, float],
) -> Round:
    """Look at the front of a round and take the census."""
    lineups = front_of(Run.open(folder))
    measured = balancing.measure(lineups)
    objectives = measured.objectives
    off = objectives[:, 1] > IMBALANCED
    findings = census(balancing, plan.lineups, plan.seed)
    names = [objective.name for objective in balancing.describe().objectives]
    shares: dict[str, float] = {}
    if off.any():
        teams = lineups.reshape(len(lineups), -1, *balancing.baselines.shape[1:])
        shares = shares_in(teams[off], measured.strength[off], balancing.data)
    else:
        shares = {
            f"{group}:{name}": 0.0 for group in GROUPS for name in balancing.data.names(group)
        }
    return Round(
        run=str(folder),
        changes=changes,
        seconds=result.seconds,
        evaluations=result.evaluations,
        hypervolume=result.indicators.get("hypervolume"),
        front_size=len(lineups),
        imbalanced=int(off.sum()),
        best={name: float(objectives[:, at].max()) for at, name in enumerate(names)},
        exposed=[each for each in findings if each.p_value < plan.significance],
        most_exposed=findings[:10],
        front_share=shares,
    )


def front_of(run: Run) -> Any:
    """Return the lineups of the last front, int64 ``[L, units, 4]``. Raises RunError if there is none."""
    selections = [entry for entry in run.replay() if entry.event == "generation"]
    if not selections:
        raise RunError(f"{run.path}: no selection has taken place yet")
    everyone = individuals.read_all(run)
    members = [everyone[int(each)] for each in selections[-1].fields["front"]]
    return np.stack(
        [
            np.stack([np.asarray(each.decision[group], np.int64) for group in GROUPS], axis=-1)
            for each in members
        ]
    )
