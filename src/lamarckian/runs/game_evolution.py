"""Settings of evolutions whose individuals are players that learn."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lamarckian.ec.variation import VariationConfig
from lamarckian.evorl.emogi import EmogiTask
from lamarckian.evorl.rl_evaluator import RLTask
from lamarckian.evorl.searches import NSGA2, PBT, Search
from lamarckian.runs.evolution import EvolutionRun


class GameEvolutionRun(EvolutionRun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An evolution of players; see :class:`~.evolution.EvolutionRun` for the other settings."""

    ec: Annotated[Search, Meta(description="The search and its settings.")] = PBT()
    evaluations: Annotated[
        int, Meta(ge=0, description="Evaluations in all; 0: no limit (then give generations).")
    ] = 160
    training: Annotated[RLTask, Meta(description="How each individual is trained.")] = RLTask()

    def training_data(self) -> dict[str, Any] | None:
        """Return the settings of the training as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self.training)
        return {**plain, "seed": self.seed}


class StylesRun(EvolutionRun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An evolution of playing styles (EMOGI); see :class:`~.evolution.EvolutionRun` for the rest."""

    ec: Annotated[Search, Meta(description="The search and its settings.")] = NSGA2(
        population=24,
        variation=VariationConfig(
            crossover_eta=20.0,
            mutation_eta=20.0,
            blob_crossover="fitter",
            blob_deviation=0.0,
        ),
    )
    evaluations: Annotated[
        int, Meta(ge=0, description="Evaluations in all; 0: no limit (then give generations).")
    ] = 960
    training: Annotated[
        EmogiTask, Meta(description="How each individual is trained, and which styles count.")
    ] = EmogiTask()

    def training_data(self) -> dict[str, Any] | None:
        """Return the settings of the training as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self.training)
        return {**plain, "seed": self.seed}
