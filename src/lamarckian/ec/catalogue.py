"""Searches by name, for command lines and configuration files."""

from __future__ import annotations

from typing import Any

import msgspec

from lamarckian.ec.cma_es import CMAES
from lamarckian.ec.core import EC, Initialize
from lamarckian.ec.es import ES
from lamarckian.ec.ga import GA
from lamarckian.ec.map_elites import MAPElites
from lamarckian.ec.nsga2 import NSGA2
from lamarckian.ec.pbt import PBT
from lamarckian.errors import ConfigError, UnknownName, nearest
from lamarckian.evaluator import Encoding

SEARCHES: dict[str, type[EC]] = {
    search.name: search for search in (GA, NSGA2, ES, CMAES, PBT, MAPElites)
}


def make(
    name: str,
    encoding: Encoding,
    seed: int,
    initialize: Initialize | None = None,
    **config: Any,
) -> EC:
    """Return the search ``name``; ``config`` are the fields of its configuration.

    ``initialize`` makes first decisions (an evaluator's method of that name); without it they are
    drawn uniformly. Nested fields are dicts: ``make("nsga2", encoding, 0, population=24,
    variation={"crossover_eta": 20})``.

    Raises UnknownName, ConfigError (unknown or wrong field) or UnsupportedSpace, before anything
    is evaluated.
    """
    if name not in SEARCHES:
        raise UnknownName(
            f"search: nobody is called '{name}'{nearest(name, SEARCHES)}; known: {list(SEARCHES)}"
        )
    search = SEARCHES[name]
    fields = search.config_type.__struct_fields__
    for field in config:
        if field not in fields:
            raise ConfigError(
                f"{name}: unknown setting '{field}'{nearest(field, fields)}; known: {list(fields)}"
            )
    try:
        resolved = msgspec.convert(config, search.config_type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}") from None
    return search(encoding, seed, resolved, initialize)
