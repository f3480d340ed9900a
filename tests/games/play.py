"""Playing an asynchronous game to its end with bots, on the real scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamarckian.mdp.batching import Scheduler
from lamarckian.mdp.core import MDP, Bot, Controller
from lamarckian.mdp.match import Cast, Match, MatchResult
from lamarckian.mdp.rollout import BotWave, Seat


class Recorder:
    """Plays one match; keeps each life's transitions as (observation, action, rewards)."""

    def __init__(self, mdp: MDP, *, patience: float = 5.0) -> None:
        self.mdp = mdp
        self.lives: list[tuple[str, Controller, list[tuple[Any, Any, list[float]]]]] = []
        self.results: list[MatchResult] = []
        self.patience = patience

    def play(
        self, bots: Mapping[str, Bot], seed: int = 0, quits: Mapping[str, int] | None = None
    ) -> MatchResult:
        """``quits``: after how many decisions a player's coroutine simply returns."""
        quits = quits or {}

        async def player(controller: Controller, seat: Seat) -> None:
            life: list[tuple[Any, Any, list[float]]] = []
            self.lives.append((controller.player, controller, life))
            seat.begin(await controller.ready())
            while controller.alive:
                if len(life) == quits.get(controller.player, -1):
                    return
                seen = controller.observe()
                action = await seat.decide(seen)
                rewards = list(await controller.act(action))
                seat.reward(rewards)
                life.append((seen, action, rewards))

        scheduler = Scheduler(patience=self.patience)
        rng = np.random.default_rng(seed)
        waves = {role: BotWave(bot, self.mdp.roles[role], rng) for role, bot in bots.items()}
        scheduler.waves = list(waves.values())
        done: list[MatchResult] = []
        match = Match(
            self.mdp,
            {role: Cast(player, wave) for role, wave in waves.items()},
            scheduler,
            name=type(self.mdp).__name__,
            ended=lambda _, result: done.append(result),
        )
        scheduler.watched.append(match)
        try:
            match.play(seed)
            scheduler.run(lambda: bool(done))
        finally:
            scheduler.close()
        self.results.append(done[0])
        return done[0]

    def life(self, player: str, number: int = 0) -> list[tuple[Any, Any, list[float]]]:
        return [life for name, _, life in self.lives if name == player][number]


def scripted(part: str, choices: list[Any], dtype: Any = np.int64) -> Bot:
    """A bot that plays ``choices`` in order and then the last one for ever, all rows the same."""
    left = list(choices)

    def bot(inputs: Any, legal: Any, rng: np.random.Generator) -> Any:
        choice = left.pop(0) if len(left) > 1 else left[0]
        return {part: np.array([choice] * len(next(iter(inputs.values()))), dtype)}

    return bot
