"""Settings of the searches as one union, so that ``--ec nsga2 --ec.population 100`` can choose."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lamarckian.ec import EC, SEARCHES, Initialize
from lamarckian.ec.cma_es import CMAESConfig
from lamarckian.ec.es import ESConfig
from lamarckian.ec.ga import GAConfig
from lamarckian.ec.map_elites import MAPElitesConfig
from lamarckian.ec.nsga2 import NSGA2Config
from lamarckian.ec.pbt import PBTConfig
from lamarckian.ec.support import misfits
from lamarckian.errors import ConfigError
from lamarckian.evaluator import Blob, Encoding
from lamarckian.evorl.workflow import Mode


class GA(
    GAConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="ga"
):
    """Genetic algorithm for one objective."""


class NSGA2(
    NSGA2Config,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="nsga2",
):
    """Non-dominated sorting genetic algorithm II: several objectives."""


class ES(
    ESConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="es"
):
    """Evolution strategy with mirrored noise and ranks, for real numbers and weights."""


class CMAES(
    CMAESConfig,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="cma-es",
):
    """Covariance matrix adaptation, for real numbers."""


class PBT(
    PBTConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name", tag="pbt"
):
    """Population based training: members go on, copy better ones and perturb."""


class MAPElites(
    MAPElitesConfig,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="map-elites",
):
    """An archive of the best for each kind of behaviour."""


Search: TypeAlias = GA | NSGA2 | ES | CMAES | PBT | MAPElites

WITHOUT_GENERATIONS = ("ga", "nsga2", "pbt", "map-elites")
"""Searches that can select at every single arrival."""


def name_of(search: Search) -> str:
    """Return the tag, e.g. ``nsga2``."""
    return str(search.__struct_config__.tag)


def default_search(encoding: Encoding) -> str:
    """Return the search to take where the user names none."""
    if len(encoding.objectives) > 1:
        return "nsga2"
    if any(isinstance(part, Blob) for part in encoding.parts.values()):
        return "pbt"
    fitting = [name for name in ("ga", *SEARCHES) if not misfits(name, encoding)]
    return fitting[0]


def make_search(
    search: Search, encoding: Encoding, seed: int, mode: Mode, initialize: Initialize | None
) -> EC:
    """Build the search with the generation size that ``mode`` wants.

    Raises UnsupportedSpace if the encoding does not fit, ConfigError if the mode does not.
    """
    name = name_of(search)
    size = search.generation_size
    if mode == "steady-state":
        if name not in WITHOUT_GENERATIONS:
            raise ConfigError(
                f"mode: {name} learns from whole generations; use generational or first-n"
            )
        if size not in (None, 1):
            raise ConfigError(
                f"ec.generation_size: has no effect with mode steady-state, got {size}"
            )
        search = msgspec.structs.replace(search, generation_size=1)
    kind = SEARCHES[name]
    plain = {field: getattr(search, field) for field in kind.config_type.__struct_fields__}
    return kind(encoding, seed, kind.config_type(**plain), initialize)
