"""EMOGI: one population of players of similar strength and different styles.

R. Shen, Y. Zheng, J. Hao, Z. Meng, Y. Chen, C. Fan, Y. Liu, "Generating Behavior-Diverse Game AIs with
Evolutionary Multi-Objective Deep Reinforcement Learning", IJCAI 2020; use case A of the Lamarckian paper.

An individual is a network and the weights of the reward terms it is trained under, one term per style
(an end of a behaviour the game declares, e.g. ``active`` and ``lazy``). Evaluating it:

1. the network is that of the fitter parent, as trained (``blob_crossover: fitter``, nothing added);
2. it is trained by PPO for a budget under its own reward ``r = r_game + sum_k weight_k end_k(action)``, the
   weights having come from both parents by SBX and polynomial mutation;
3. the trained network is written back into the individual;
4. whole games give the objectives, all maximised: ``f_k = win + style_weight_k x share_k``, with ``share_k``
   the share of an episode's decisions at that end (``m`` for active, ``1 - m`` for lazy).

NSGA-II keeps whoever nobody beats in all of them: the strong, in every shade between the styles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from lamarckian.errors import ConfigError
from lamarckian.evaluator import Descriptor, Objective
from lamarckian.evorl.rl_evaluator import Gene, Genes, RLEvaluator, RLSetup, RLTask, task_from
from lamarckian.mdp import catalogue
from lamarckian.mdp.batch_game import BatchGame
from lamarckian.mdp.behaviours import Term, find_term
from lamarckian.mdp.core import Role
from lamarckian.mdp.evaluation import EvaluationResult
from lamarckian.rl.assembly import choose_learners


class EmogiTask(RLTask, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one evaluation does: how a player is trained, measured, and which styles count."""

    genes: Annotated[
        Genes, Meta(description="Further settings that evolve, with their ranges.")
    ] = Genes(learning_rate=None, value_weight=None)
    styles: Annotated[
        tuple[str, ...],
        Meta(
            description="Ends of the game's behaviours, one objective each; empty: both ends of the "
            "first behaviour."
        ),
    ] = ()
    style_weights: Annotated[
        tuple[Annotated[float, Meta(gt=0.0)], ...],
        Meta(description="What a style counts beside winning, one number each; empty: all 1."),
    ] = ()
    term: Annotated[
        Gene, Meta(description="Range of the weight of each style's reward, per decision.")
    ] = Gene(low=1e-4, high=0.1, scale="log")


def setup_from(settings: Mapping[str, Any], options: Mapping[str, Any]) -> RLSetup:
    """Build the settings of :class:`Emogi` from plain data, as :func:`.task_from`.

    Styles become further reward heads whose weights evolve. Raises ConfigError.
    """
    setup = task_from(settings, options, EmogiTask)
    task = setup.task
    assert isinstance(task, EmogiTask)
    role = _trained_role(setup)
    styles = task.styles or _first_ends(role, setup.game)
    for name, own in (("styles", styles), ("style_weights", task.style_weights)):
        if own and len(own) != len(styles):
            raise ConfigError(
                f"training.{name}: expected {len(styles)} numbers for {', '.join(styles)}, got {len(own)}"
            )
    weighed = {style: task.term for style in styles if style not in task.genes.reward_weights}
    genes = msgspec.structs.replace(
        task.genes, reward_weights={**task.genes.reward_weights, **weighed}
    )
    task = msgspec.structs.replace(task, styles=styles, genes=genes)
    return msgspec.structs.replace(setup, task=task, reward_terms=styles)


class Emogi(RLEvaluator):
    """Trains players under reward weights of their own; prices how they win and how they play.

    Raises ConfigError if the game declares no such behaviours.
    """

    def __init__(self, setup: RLSetup) -> None:
        task = setup.task
        assert isinstance(task, EmogiTask)
        role = _trained_role(setup)
        self.terms: list[Term] = [find_term(role, style) for style in task.styles]
        self.behaviours = tuple(dict.fromkeys(term.behaviour for term in self.terms))
        self.style_weights = task.style_weights or (1.0,) * len(self.terms)
        #: Reward heads of the game itself, before those of the styles.
        self.num_own = role.num_rewards
        super().__init__(setup)

    def objectives(self) -> tuple[Objective, ...]:
        return tuple(Objective(term.end, "maximize", 0.0) for term in self.terms)

    def descriptors(self) -> tuple[Descriptor, ...]:
        return tuple(Descriptor(behaviour, 0.0, 1.0) for behaviour in self.behaviours)

    def price(self, result: EvaluationResult) -> tuple[dict[str, float], dict[str, float]]:
        """Return ``f_k = win + style_weight_k x share_k`` by style, and the share by behaviour."""
        lives = result.episodes
        shares = {
            name: float(
                np.mean([life.statistics[name] for life in lives if name in life.statistics])
            )
            for name in self.behaviours
        }
        win = self.win(result)
        objectives = {
            term.end: win + weight * term.of(shares[term.behaviour])
            for term, weight in zip(self.terms, self.style_weights, strict=True)
        }
        return objectives, shares

    def win(self, result: EvaluationResult) -> float:
        """Return how well a player does, whatever its style: the game's score, else the share of
        matches won, else the mean return of the game's own rewards.
        """
        lives = result.episodes
        scores = [life.score for life in lives if life.score is not None]
        if scores:
            return float(np.mean(scores))
        results = [(life.result + 1) / 2 for life in lives if life.result is not None]
        if results:
            return float(np.mean(results))
        return float(np.mean([sum(life.returns[: self.num_own]) for life in lives]))


def _trained_role(setup: RLSetup) -> Role:
    """Return the role that is trained, as the game itself declares it."""
    made = catalogue.make_game(setup.game, 1, setup.game_options)
    game = made if isinstance(made, BatchGame) else made[0]
    try:
        learners = choose_learners(setup, game.roles, game.bots)
        for name in learners:
            if name in game.roles:
                return game.roles[name]
        raise ConfigError(f"training.learn: {', '.join(learners)}: no such role in {setup.game}")
    finally:
        game.close()


def _first_ends(role: Role, game: str) -> tuple[str, ...]:
    for behaviour in role.behaviours.values():
        return (behaviour.low, behaviour.high)
    raise ConfigError(
        f"{game}: styles are ends of behaviours, and this game declares none; add "
        "Role(behaviours={...}) to it"
    )
