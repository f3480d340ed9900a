"""Settings of an evolution whose individuals are players that learn."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lamarckian.evorl.rl_evaluator import RLTask
from lamarckian.evorl.searches import PBT, Search
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
