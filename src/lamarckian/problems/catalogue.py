"""Problems by name, for command lines and configuration files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lamarckian.errors import ConfigError, UnknownName, nearest
from lamarckian.evaluator import Evaluator
from lamarckian.problems import discrete, dtlz, single_objective, zdt
from lamarckian.problems.balancing import Balancing

PROBLEMS: dict[str, Callable[..., Evaluator]] = {
    "zdt1": zdt.ZDT1,
    "zdt2": zdt.ZDT2,
    "zdt3": zdt.ZDT3,
    "zdt4": zdt.ZDT4,
    "zdt5": discrete.ZDT5,
    "zdt6": zdt.ZDT6,
    "dtlz1": dtlz.dtlz1,
    "dtlz2": dtlz.dtlz2,
    "dtlz3": dtlz.dtlz3,
    "dtlz4": dtlz.dtlz4,
    "dtlz5": dtlz.dtlz5,
    "dtlz6": dtlz.dtlz6,
    "dtlz7": dtlz.dtlz7,
    "sphere": single_objective.Sphere,
    "rosenbrock": single_objective.Rosenbrock,
    "rastrigin": single_objective.Rastrigin,
    "ackley": single_objective.Ackley,
    "griewank": single_objective.Griewank,
    "tour": discrete.Tour,
    "workshop": discrete.Workshop,
    "balancing": Balancing,
}


def make(name: str, **options: Any) -> Evaluator:
    """Return the problem ``name``, e.g. ``make("dtlz2", num_objectives=5)``.

    Raises UnknownName, or ConfigError for an option the problem does not take.
    """
    if name not in PROBLEMS:
        raise UnknownName(
            f"problem: nobody is called '{name}'{nearest(name, PROBLEMS)}; known: {list(PROBLEMS)}"
        )
    try:
        return PROBLEMS[name](**options)
    except TypeError as error:
        raise ConfigError(f"problem '{name}': {error}") from None
