"""What only the raw data of a Gymnasium environment show: bounds, reused arrays, wide dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lamarckian.mdp.adapters.action_spaces import MaskPlan
from lamarckian.mdp.adapters.generations import reset_environment, step_function
from lamarckian.mdp.adapters.gymnasium import ROLE, GymnasiumGame
from lamarckian.mdp.adapters.spaces import MASK_KEY, Leaf, kind_of
from lamarckian.mdp.checking_values import Findings
from lamarckian.mdp.core import Arrays, random_actions

STEPS = 300


def examine_environment(
    game: GymnasiumGame, findings: Findings, seed: int, on_step: Callable[[], None]
) -> None:
    """Step the first environment of ``game`` by hand and look at what it returns.

    Numbers outside the declared Box are a problem; arrays that are reused, float64 and keys beyond the
    declared ones are handled by the adapter and noted.
    """
    env, observations, actions, api = game.inside()
    step = step_function(env, api)
    rng = np.random.default_rng(seed)
    masks = MaskPlan(actions)
    role = game.roles[ROLE]
    seen, info = reset_environment(env, seed, api)
    previous: dict[str, Any] = {}
    for tick in range(STEPS):
        on_step()
        for leaf in observations.leaves:
            value = _at(seen, leaf)
            _look(leaf, value, previous.get(leaf.name), tick, findings)
            previous[leaf.name] = value
        _extra_keys(env.observation_space, seen, findings)
        legal: Arrays = {}
        if role.masked:
            legal = masks.allocate(1)
            masks.write((seen if observations.mask_key else info)[MASK_KEY], legal, 0)
        batch = random_actions(role, legal, 1, rng)
        seen, reward, ended, limited, info = step(actions.rows(batch)[0])
        if isinstance(reward, np.float64):
            findings.note("rewards are float64: cast to float32")
        if ended or limited:
            seen, info = reset_environment(env, seed + tick, api)
            previous = {}


def _at(value: Any, leaf: Leaf) -> Any:
    for key in leaf.path:
        value = value[key]
    return value


def _look(leaf: Leaf, value: Any, previous: Any, tick: int, findings: Findings) -> None:
    if isinstance(value, np.ndarray):
        if value is previous:
            findings.note(
                f"observation {leaf.name!r}: the same array is returned again and changed in place; "
                "it is copied at receipt"
            )
        if value.dtype == np.float64:
            findings.note(f"observation {leaf.name!r} is float64: cast to float32")
        if value.dtype != leaf.source:
            findings.note(
                f"observation {leaf.name!r}: declared {leaf.source}, returned {value.dtype}"
            )
    if any(leaf.name in text and "expected within" in text for text in findings.problems):
        return
    outside = leaf.out_of_bounds(np.asarray(value))
    if outside:
        findings.problem(f"tick {tick}: observation {outside}; widen the declared Box or clip")


def _extra_keys(space: Any, seen: Any, findings: Findings) -> None:
    if kind_of(space) == "Dict" and isinstance(seen, Mapping):
        extra = [str(key) for key in seen if key not in space.spaces]
        if extra:
            findings.note(f"observation keys {extra} are not declared, and are ignored")
