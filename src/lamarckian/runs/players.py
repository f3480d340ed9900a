"""Individuals of an evolution as players: found by number or place, seated with their trained networks."""

from __future__ import annotations

from lamarckian.errors import ConfigError, RunError, UnknownName
from lamarckian.evorl.problems import make_evaluator
from lamarckian.evorl.rl_evaluator import RLEvaluator
from lamarckian.rl.assembly import Assembly
from lamarckian.runs import individuals
from lamarckian.runs.evolution import load_settings
from lamarckian.runs.folder import Run


def identifier_of(run: Run, text: str) -> int:
    """Return the number of the individual ``text`` means: a number, or ``front:N``.

    ``N`` is a place on the front of the last selection. Raises UnknownName or ConfigError.
    """
    if text.startswith("front:"):
        front = individuals.latest(run, "front")
        index = text.removeprefix("front:")
        if not index.isdigit() or int(index) >= len(front):
            raise UnknownName(f"{text}: the front has the places 0 to {len(front) - 1}")
        return front[int(index)]
    if not text.isdigit():
        raise ConfigError(f"expected the number of an individual or front:N, got '{text}'")
    return int(text)


def load_player(run: Run, identifier: int) -> Assembly:
    """Return game, seating and policies of a run with the trained network of an individual.

    Raises RunError if the run's individuals are no players, or if its network is gone; UnknownName if
    there is no such individual.
    """
    return load_players(run, [identifier])[0]


def load_players(run: Run, identifiers: list[int]) -> list[Assembly]:
    """Return the assemblies of several individuals; see :func:`load_player`."""
    settings = load_settings(run)
    evaluator = make_evaluator(settings.problem, settings.options, settings.training_data())
    if not isinstance(evaluator, RLEvaluator):
        raise RunError(
            f"{run.path}: the individuals of {settings.problem} are no players of a game"
        )
    everyone = individuals.read_all(run)
    players = []
    for identifier in identifiers:
        if identifier not in everyone:
            raise UnknownName(
                f"{run.path}: there is no individual {identifier}; ids go from 0 to "
                f"{max(everyone, default=0)}"
            )
        stored = everyone[identifier]
        if not stored.weights:
            raise RunError(
                f"{run.path}: the network of individual {identifier} is not kept; those of the last "
                "population are, all of them with --keep-weights all"
            )
        players.append(evaluator.player(individuals.load_weights(run, stored)["weights"]))
    return players
