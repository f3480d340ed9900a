"""Playing one match of a coroutine game for a check: every await under a deadline."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.errors import LamarckianError
from lamarckian.mdp.checking_values import Findings, check_observation
from lamarckian.mdp.core import MDP, Controller, random_actions


class _Stuck(Exception):
    """An await passed its deadline, or the match passed its length."""


@dataclass(slots=True)
class MatchCheck:
    """What one match came to. ``record`` is a digest per player of all it saw and earned."""

    decisions: int = 0
    lives: int = 0
    record: dict[str, str] = field(default_factory=dict)


def check_match(
    game: MDP,
    seed: int,
    findings: Findings,
    at: Callable[[str], None],
    *,
    max_decisions: int,
    deadline: float,
) -> MatchCheck:
    """Play one match at random with all that is returned checked; problems go to ``findings``."""
    check = MatchCheck()
    try:
        asyncio.run(_match(game, seed, findings, at, check, max_decisions, deadline))
    except _Stuck as error:
        findings.problem(str(error))
    except ExceptionGroup as group:
        for fault in group.exceptions:
            said = isinstance(fault, (_Stuck, LamarckianError))
            findings.problem(str(fault) if said else f"raised {type(fault).__name__}: {fault}")
    return check


async def _within(awaitable: Awaitable[Any], deadline: float, what: str) -> Any:
    async def wait() -> Any:
        return await awaitable

    try:
        return await asyncio.wait_for(wait(), deadline)
    except TimeoutError:
        raise _Stuck(f"{what}: did not return within {deadline:g} s") from None


async def _match(
    game: MDP,
    seed: int,
    findings: Findings,
    at: Callable[[str], None],
    check: MatchCheck,
    max_decisions: int,
    deadline: float,
) -> None:
    at(f"seed {seed}, reset()")
    controllers = await _within(game.reset(seed), deadline, f"seed {seed}, reset()")
    if not controllers:
        findings.problem(f"seed {seed}: reset() returned no controller")
        return
    names = [controller.player for controller in controllers]
    if len(set(names)) != len(names):
        findings.problem(f"seed {seed}: two controllers have the same player name: {names}")
        return
    async with asyncio.TaskGroup() as group:

        def enter(controller: Controller) -> None:
            group.create_task(
                _play(game, controller, seed, findings, at, check, max_decisions, deadline)
            )

        for controller in controllers:
            enter(controller)
        while True:
            joined = await game.joining()
            if joined is None:
                break
            enter(joined)


async def _play(
    game: MDP,
    controller: Controller,
    seed: int,
    findings: Findings,
    at: Callable[[str], None],
    check: MatchCheck,
    max_decisions: int,
    deadline: float,
) -> None:
    who = f"seed {seed}, player {controller.player}"
    if controller.role not in game.roles:
        findings.problem(f"{who}: its role {controller.role!r} is not declared")
        raise _Stuck(f"{who}: cannot play an undeclared role")
    role = game.roles[controller.role]
    rng = seeding.stream(seed, "check", controller.player)
    digest = hashlib.sha256()
    decisions = 0
    rewards = await _within(controller.ready(), deadline, f"{who}, ready()")
    while controller.alive:
        where = f"{who}, decision {decisions}"
        at(where)
        if decisions >= max_decisions:
            raise _Stuck(f"{who}: the match did not end within {max_decisions} decisions")
        seen = controller.observe()
        if not check_observation(where, role, seen, None, None, findings):
            raise _Stuck(f"{where}: its observation contradicts its role")
        for name in sorted(role.inputs):
            digest.update(np.ascontiguousarray(seen.inputs[name]).tobytes())
        legal = {name: mask[None] for name, mask in seen.legal.items()}
        batch = random_actions(role, legal, 1, rng)
        rewards = await _within(
            controller.act({name: array[0] for name, array in batch.items()}),
            deadline,
            f"{where}, act()",
        )
        amounts = np.asarray(rewards, np.float64)
        if amounts.shape != (role.num_rewards,):
            raise _Stuck(
                f"{where}: rewards: expected {role.num_rewards} numbers, got {rewards!r:.60}"
            )
        if not np.isfinite(amounts).all():
            findings.problem(f"{where}: rewards hold NaN or infinity")
        digest.update(amounts.tobytes())
        decisions += 1
    if controller.terminated == controller.truncated:
        findings.problem(
            f"{who}: after its end exactly one of terminated and truncated must be True, "
            f"got {controller.terminated} and {controller.truncated}"
        )
    check_observation(
        f"{who}, final", role, controller.observe(), None, None, findings, masks=False
    )
    result = controller.outcome().result
    if result not in (None, -1, 0, 1):
        findings.problem(f"{who}: outcome().result must be 1, 0, -1 or None, got {result!r}")
    check.decisions += decisions
    check.lives += 1
    # A player that came back has several lives.
    check.record[f"{controller.player}/{check.lives}"] = digest.hexdigest()
