"""From settings to the parts of a training: game, seating, policies, learners, collector.

Used alike by the process that learns, by actors in other processes, by evaluation and by export, so that
one description gives the same players everywhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from lamarckian import seeding
from lamarckian.errors import ConfigError
from lamarckian.mdp import behaviours, catalogue
from lamarckian.mdp.batch_game import BatchGame
from lamarckian.mdp.collector import (
    Collector,
    CollectorSettings,
    Seating,
    bot_for,
    group_roles,
)
from lamarckian.mdp.core import MDP, Bot, Role
from lamarckian.mdp.evaluation import EvaluationResult, evaluate
from lamarckian.mdp.guard import OnBadData
from lamarckian.mdp.guarded import GuardedGame
from lamarckian.mdp.policy import Policy
from lamarckian.mdp.vectorised import BatchCollector
from lamarckian.mdp.wave_collector import WaveCollector
from lamarckian.rl.algorithm import AlgorithmSettings, Learner
from lamarckian.rl.dqn import DQN
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.mappo import MAPPO
from lamarckian.rl.planning import Device, batch_bytes, check_memory, choose_device
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.ppo import PPO
from lamarckian.rl.sac import SAC

_log = logging.getLogger("lamarckian.rl")

EVALUATION_GAMES = 32
"""Matches side by side in an evaluation; part of what makes equal seeds give equal lives."""

Algorithm = PPO | IMPALA | MAPPO | DQN | SAC
"""Settings of any algorithm (see :mod:`lamarckian.rl.algorithm`); ``name`` in a config says which."""


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on what: everything that decides the result but not where it is kept."""

    game: Annotated[str, Meta(description="Game to play; `lamarckian games` lists them.")]
    game_options: Annotated[
        dict[str, str | int | float | bool], Meta(description="Options of the game itself.")
    ] = {}
    algorithm: Annotated[Algorithm, Meta(description="What learns, and how.")] = PPO()
    frames: Annotated[
        int, Meta(ge=1, description="Ticks of the game to train for, skipped frames included.")
    ] = 1_000_000
    seed: Annotated[int, Meta(ge=0, description="Seed of everything random in the run.")] = 0
    learn: Annotated[
        tuple[str, ...],
        Meta(description="Roles that are trained; empty: the first if there is a bot, else all."),
    ] = ()
    share_policies: Annotated[
        bool,
        Meta(description="Roles with equal spaces share one policy; false: one for each role."),
    ] = True
    device: Annotated[
        Device, Meta(description="Where the learner computes; auto says what it chose and why.")
    ] = "auto"
    opponent: Annotated[
        str,
        Meta(
            description="Bot of the other roles: a name of the game's, or random; empty: its first."
        ),
    ] = ""
    on_bad_data: Annotated[
        OnBadData,
        Meta(description="NaN from the game: fail the run, or drop the episode that met it."),
    ] = "fail"
    reward_terms: Annotated[
        tuple[str, ...],
        Meta(
            description="Ends of the game's behaviours that pay as further reward heads, e.g. lazy; "
            "weigh all heads with algorithm.reward_weights."
        ),
    ] = ()


@dataclass(slots=True)
class Assembly:
    """The parts of one training in one process."""

    training: Training
    roles: Mapping[str, Role]
    seating: Seating
    policies: dict[str, TorchPolicy]

    def make_game(self, num_games: int) -> BatchGame | list[MDP]:
        """Build fresh matches of the training's game."""
        training = self.training
        made = catalogue.make_game(training.game, num_games, training.game_options)
        guarded: BatchGame | list[MDP] = made
        if isinstance(made, BatchGame):
            guarded = GuardedGame(made, training.game)
        if isinstance(training.algorithm, MAPPO):
            guarded = training.algorithm.critic_view(training.seed).wrap(guarded)
        return behaviours.watch(guarded, training.reward_terms)

    def use_threads(self, num_threads: int) -> int:
        """Give torch ``num_threads`` threads and return their number; 0 chooses.

        All cores if a role sees images, else one: small layers lose more than they gain by threads.
        """
        images = any(
            item.kind == "image" for role in self.roles.values() for item in role.inputs.values()
        )
        chosen = num_threads or ((os.cpu_count() or 1) if images else 1)
        torch.set_num_threads(chosen)
        return chosen

    def evaluate(self, *, num_episodes: int, seed: int, greedy: bool) -> EvaluationResult:
        """Measure the present policies on matches of their own; see :func:`~.mdp.evaluation.evaluate`."""
        games = self.make_game(min(num_episodes, EVALUATION_GAMES))
        try:
            return evaluate(
                games, self.seating, num_episodes=num_episodes, seed=seed, greedy=greedy
            )
        finally:
            for game in [games] if isinstance(games, BatchGame) else games:
                game.close()

    def make_collector(self, num_games: int, seed: int) -> Collector:
        """Build a collector that plays ``num_games`` matches with the policies of this assembly."""
        algorithm: AlgorithmSettings = self.training.algorithm
        settings = CollectorSettings(
            num_games=num_games,
            fragment_length=algorithm.fragment_length,
            discounts=lambda role: algorithm.per_head("discount", role.num_rewards),
            seed=seed,
            chunk_length=algorithm.chunk_length,
        )
        games = self.make_game(num_games)
        if isinstance(games, BatchGame):
            return BatchCollector(games, self.seating, settings)
        waiting = iter(games)
        return WaveCollector(lambda: next(waiting), self.seating, settings)


def assemble(training: Training) -> Assembly:
    """Build policies and seating for ``training``.

    Raises ConfigError, UnknownName or UnsupportedSpace before anything is started.
    """
    made = catalogue.make_game(training.game, 1, training.game_options)
    game = made if isinstance(made, BatchGame) else made[0]
    seen = dict(game.roles)
    if isinstance(training.algorithm, MAPPO):
        view = training.algorithm.critic_view(training.seed)
        seen = view.roles(seen, as_arrays=isinstance(made, BatchGame))
    roles, bots = behaviours.with_terms(seen, training.reward_terms), game.bots
    game.close()
    learners = group_roles(
        roles, choose_learners(training, roles, bots), share=training.share_policies
    )
    algorithm: AlgorithmSettings = training.algorithm
    trained = {role: roles[role] for role in learners}
    check_memory(batch_bytes(trained, algorithm.num_games, algorithm.fragment_length))
    device, why = choose_device(training.device, trained)
    _log.info("learner on %s: %s", device, why)
    policies = {
        group: algorithm.make_policy(
            roles[group], seeding.derive(training.seed, "policy", group)
        ).to(device)
        for group in dict.fromkeys(learners.values())
    }
    seating = Seating(
        policies, learners, choose_opponents(training.opponent, learners, roles, bots)
    )
    return Assembly(training, roles, seating, policies)


def make_learners(assembly: Assembly) -> dict[str, Learner]:
    """Build one learner per policy. Raises ConfigError for settings that do not fit the roles."""
    training = assembly.training
    algorithm: AlgorithmSettings = training.algorithm
    return {
        group: algorithm.make_learner(policy, seeding.derive(training.seed, "learner", group))
        for group, policy in assembly.policies.items()
    }


def choose_learners(
    training: Training, roles: Mapping[str, Role], bots: Mapping[str, Bot]
) -> list[str]:
    """Return the roles to train: as asked, or the first if the others can be played by a bot."""
    if training.learn:
        return list(training.learn)
    names = list(roles)
    has_opponent = bool(training.opponent) or bool(bots)
    return names[:1] if has_opponent and len(names) > 1 else names


def choose_opponents(
    name: str, learners: Mapping[str, str], roles: Mapping[str, Role], bots: Mapping[str, Bot]
) -> dict[str, tuple[str, Bot | Policy]]:
    """Return who plays the roles that are not trained. Raises ConfigError if nobody can."""
    others = [role for role in roles if role not in learners]
    if not others:
        if name:
            raise ConfigError(
                f"opponent: {name!r} would play nobody, since all roles ({', '.join(roles)}) are "
                "trained; leave the opponent out, or train fewer roles with --learn"
            )
        return {}
    chosen = name or next(iter(bots), "random")
    return {role: (chosen, bot_for(chosen, bots, roles[role])) for role in others}


def training_from(settings: dict[str, Any]) -> Training:
    """Rebuild a :class:`Training` from plain data, e.g. of a run's ``config.yaml``."""
    try:
        return msgspec.convert(settings, Training)
    except msgspec.ValidationError as error:
        raise ConfigError(f"training settings: {error}") from None
