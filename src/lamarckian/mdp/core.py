"""The contracts of a game: what a role may see and do, and how one player meets the game.

An :class:`MDP` is a game that can be joined. It hands out one :class:`Controller` per player, and each
player is a coroutine on its own clock: it observes, acts, and is resumed when *it* must decide again.
Nothing here knows what a policy or a network is.

Shape letters: ``N`` controllers, ``A`` actions, ``K`` reward heads, ``E`` entities, ``F`` features.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import UnsupportedSpace, nearest

Array = NDArray[Any]
Arrays = dict[str, Array]


def below(prefix: str, arrays: Mapping[str, Array]) -> Arrays:
    """Return the arrays whose names begin with ``prefix``, under the rest of their names."""
    return {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}


InputKind = Literal["vector", "image", "entities", "category", "mask"]
DTYPES = ("float32", "uint8", "int64", "bool")


@dataclass(frozen=True, slots=True)
class Input:
    """One named observation array.

    ``vector``    numbers of any shape, flattened by the network.
    ``image``     three axes in the declared ``layout``; uint8 is scaled by 1/255 once, in the network,
                  never in storage; float images are left alone.
    ``entities``  a padded list ``[E, F]``; ``mask`` names the boolean input ``[E]`` that says which rows
                  are real. What the padding holds never changes a policy's output.
    ``category``  integers below ``num_categories``, one-hot or embedded by the network.
    ``mask``      booleans that describe another input. Never normalised.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    kind: InputKind = "vector"
    layout: Literal["CHW", "HWC"] = "CHW"
    num_categories: int = 0
    mask: str | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UnsupportedSpace(
                f"Input dtype: expected one of {', '.join(DTYPES)}, got {self.dtype!r}; "
                "cast at the border of the game"
            )
        if any(size <= 0 for size in self.shape):
            raise UnsupportedSpace(f"Input shape: expected positive sizes, got {self.shape}")
        if self.kind == "image" and len(self.shape) != 3:
            raise UnsupportedSpace(f"Input of kind image: expected three axes, got {self.shape}")
        if self.kind == "entities" and len(self.shape) != 2:
            raise UnsupportedSpace(f"Input of kind entities: expected [E, F], got {self.shape}")
        if self.kind == "category" and (self.num_categories < 1 or self.dtype != "int64"):
            raise UnsupportedSpace(
                "Input of kind category: needs dtype int64 and num_categories >= 1"
            )
        if self.kind == "mask" and self.dtype != "bool":
            raise UnsupportedSpace(f"Input of kind mask: expected dtype bool, got {self.dtype}")


@dataclass(frozen=True, slots=True)
class Discrete:
    """One choice out of ``num``. Action: int64 ``[]``. Legal mask: bool ``[num]``."""

    num: int

    def __post_init__(self) -> None:
        if self.num < 1:
            raise UnsupportedSpace(f"Discrete: expected num >= 1, got {self.num}")


@dataclass(frozen=True, slots=True)
class MultiDiscrete:
    """Independent choices. Action: int64 ``[len(nums)]``. Legal mask: bool ``[sum(nums)]``."""

    nums: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.nums or any(num < 1 for num in self.nums):
            raise UnsupportedSpace(f"MultiDiscrete: expected sizes >= 1, got {self.nums}")


@dataclass(frozen=True, slots=True)
class Continuous:
    """Real numbers. Action: float32 ``[size]``, each within ``[low, high]`` (infinite if unbounded)."""

    size: int
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UnsupportedSpace(f"Continuous: expected size >= 1, got {self.size}")
        for name, bound, default in (("low", self.low, -np.inf), ("high", self.high, np.inf)):
            if not bound:
                object.__setattr__(self, name, (default,) * self.size)
            elif len(bound) != self.size:
                raise UnsupportedSpace(
                    f"Continuous {name}: expected {self.size} numbers, got {len(bound)}"
                )
        if any(low >= high for low, high in zip(self.low, self.high, strict=True)):
            raise UnsupportedSpace(f"Continuous: expected low < high, got {self.low}, {self.high}")
        if any(np.isfinite(a) != np.isfinite(b) for a, b in zip(self.low, self.high, strict=True)):
            raise UnsupportedSpace(
                "Continuous: a number bounded on one side only is not supported; "
                "give both bounds or neither"
            )

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """Which components have bounds, bool ``[size]``."""
        return np.isfinite(np.asarray(self.low, np.float64))


Part = Discrete | MultiDiscrete | Continuous
Bounds = Literal["clip", "tanh"]


def mask_size(part: Part) -> int:
    """Length of the legal-action mask of ``part`` (0 for a continuous part)."""
    if isinstance(part, Discrete):
        return part.num
    return sum(part.nums) if isinstance(part, MultiDiscrete) else 0


def action_shape(part: Part) -> tuple[int, ...]:
    """Shape of one action of ``part``, without the batch axis."""
    if isinstance(part, Discrete):
        return ()
    return (len(part.nums),) if isinstance(part, MultiDiscrete) else (part.size,)


def action_dtype(part: Part) -> str:
    """``float32`` for a continuous part, ``int64`` for the others."""
    return "float32" if isinstance(part, Continuous) else "int64"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a player plays, as a share of a life's decisions: from ``low`` (0) to ``high`` (1).

    ``measure(inputs, actions)`` says how much each of N decisions counts, ``[N]`` within [0, 1]; it gets
    what was seen and what was done, arrays with a leading N. ``low`` and ``high`` name the two ends, e.g.
    ``lazy`` and ``active``. See :mod:`lamarckian.mdp.behaviours`.
    """

    measure: Callable[[Arrays, Arrays], Array]
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Role:
    """What a seat may see and do.

    ``inputs``   named observation arrays, in the order networks read them.
    ``actions``  named action parts; an action is a mapping from part to array, drawn jointly.
    ``rewards``  names of the ``K`` reward heads; the learner weighs them.
    ``state``    named arrays only the critic may see (empty: it sees the inputs).
    ``masked``   the action parts that come with a legal-action mask.
    ``seats``    how many players of this role a match has.
    ``behaviours``  named measures of how it is played, counted in every life (no part of the spaces).
    """

    inputs: Mapping[str, Input]
    actions: Mapping[str, Part]
    rewards: tuple[str, ...] = ("reward",)
    state: Mapping[str, Input] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    seats: int = 1
    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.inputs:
            raise UnsupportedSpace("Role: expected at least one input")
        if not self.actions:
            raise UnsupportedSpace("Role: expected at least one action part")
        if not self.rewards:
            raise UnsupportedSpace("Role: expected at least one reward head")
        for name in self.masked:
            if name not in self.actions:
                raise UnsupportedSpace(
                    f"Role masked part {name!r} is not an action part" + nearest(name, self.actions)
                )
            if isinstance(self.actions[name], Continuous):
                raise UnsupportedSpace(f"Role masked part {name!r} is continuous; it has no mask")
        for group in (self.inputs, self.state):
            for name, item in group.items():
                if item.kind == "entities" and item.mask not in group:
                    raise UnsupportedSpace(
                        f"Role input {name!r}: its mask {item.mask!r} is not an input beside it"
                    )

    @property
    def num_rewards(self) -> int:
        return len(self.rewards)

    def same_spaces(self, other: Role) -> bool:
        """True if one policy can serve both roles (seats may differ)."""
        return (
            dict(self.inputs) == dict(other.inputs)
            and dict(self.actions) == dict(other.actions)
            and self.rewards == other.rewards
            and dict(self.state) == dict(other.state)
            and self.masked == other.masked
        )


@dataclass(slots=True)
class Observation:
    """What one player sees now. Arrays may be views: whoever keeps them copies at receipt.

    ``inputs`` as declared by the role; ``legal`` maps each masked part to its boolean mask; ``state``
    holds the critic's central arrays, empty where the role declares none.
    """

    inputs: Arrays
    legal: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)


Action = Mapping[str, Any]


@dataclass(slots=True)
class PlayerResult:
    """How a player's life ended.

    ``score`` is the game's own figure of merit (normalised where the game defines it); ``result`` is
    +1 win, 0 draw, -1 loss, or None where the game has no winner; ``statistics`` are named numbers such
    as behaviour descriptors; ``offline`` is True if the player was declared gone.
    """

    score: float | None = None
    result: int | None = None
    statistics: dict[str, float] = field(default_factory=dict)
    offline: bool = False


class Controller(ABC):
    """One player's asynchronous handle on a running game.

    A controller lives for one episode of its player: a player that comes back later gets a new one.
    After the end, ``observe()`` returns the final observation: what a truncated episode bootstraps from.
    """

    role: str
    player: str
    alive: bool = True
    terminated: bool = False
    truncated: bool = False

    @abstractmethod
    def observe(self) -> Observation:
        """Return what this player sees now (also after the end)."""

    async def ready(self) -> Sequence[float]:
        """Wait until this player's first decision is due; return the rewards accrued until then.

        Awaited once, before the first decision. Returns at once unless others move first.
        """
        return ()

    @abstractmethod
    def act(self, action: Action) -> Awaitable[Sequence[float]]:
        """Decide, and wait until this player must decide again or is out.

        ``action`` maps each action part to its value. Returns the ``K`` rewards accrued since the
        previous decision of this player, whoever moved meanwhile.
        """

    def outcome(self) -> PlayerResult:
        """Return how this life ended; meaningful once ``alive`` is False."""
        return PlayerResult()


class MDP(ABC):
    """A game that can be joined.

    Subclasses declare ``roles`` (class attribute or set in ``__init__``). One MDP object plays one match
    at a time; many matches are many objects in one process.
    """

    roles: Mapping[str, Role]
    bots: ClassVar[Mapping[str, Any]] = {}
    """Named rule players: ``name -> bot``, see :data:`Bot`; the first is the default opponent."""
    direct_controllers: ClassVar[bool] = False
    """True if controllers await only platform gates, so that players may be stepped by hand."""

    @abstractmethod
    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        """Start a match and return one controller per player; ``roles`` limits who joins."""

    async def joining(self) -> Controller | None:
        """Wait for a player who joins late; None as soon as nobody more will join this match."""
        return None

    def overdue(self) -> list[str]:
        """Return the players whose action the game waits for; asked when nothing moves any more."""
        return []

    def offline(self, player: str) -> None:
        """Told by the platform that ``player`` will not act any more; the match goes on without it."""

    def close(self) -> None:
        """Release what the game holds. Safe to call twice."""

    def frame(self) -> dict[str, Any] | None:
        """Return JSON-compatible data from which a viewer draws the present tick, or None."""
        return None


Player = Callable[[Controller], Awaitable[None]]
"""Whoever drives a controller: trained policy, frozen opponent, rule bot, human."""

Bot = Callable[[Arrays, Arrays, np.random.Generator], Arrays]
"""A rule player as a batched function ``(inputs, legal, rng) -> actions``, arrays with a leading N.

The same bot plays in coroutines (N = 1) and on the batch path.
"""


@functools.lru_cache(maxsize=256)
def _ranges(part: Continuous) -> tuple[NDArray[np.bool_], Array, Array, Array]:
    """Return ``bounded``, low, high and half the width; asked for at every decision, so kept."""
    low, high = np.asarray(part.low, np.float32), np.asarray(part.high, np.float32)
    half = np.float32(0.5) * (high - low)
    for array in (low, high, half):
        array.flags.writeable = False
    return part.bounded, low, high, half


def to_game_action(part: Continuous, raw: Array, bounds: Bounds) -> Array:
    """Map a policy's raw numbers to what the game receives.

    ``raw`` float32 ``[..., size]`` are the numbers whose log-probability was computed and that are
    stored. Bounded components: -1 and 1 map to low and high, after clipping (``clip``) or through the
    hyperbolic tangent (``tanh``). Unbounded components pass unchanged.
    """
    bounded, low, high, half = _ranges(part)
    if bounded.all():
        if bounds == "tanh":
            unit = np.tanh(raw)
        else:
            unit = np.minimum(np.maximum(raw, np.float32(-1.0)), np.float32(1.0))
        scaled = low + (unit + np.float32(1.0)) * half
        game: Array = np.minimum(np.maximum(scaled, low), high)
        return game.astype(np.float32, copy=False)
    if not bounded.any():
        return np.asarray(raw, np.float32)
    out = np.array(raw, np.float32)
    inner = Continuous(int(bounded.sum()), tuple(low[bounded]), tuple(high[bounded]))
    out[..., bounded] = to_game_action(inner, out[..., bounded], bounds)
    return out


def random_actions(role: Role, legal: Arrays, num: int, rng: np.random.Generator) -> Arrays:
    """Draw uniform legal actions for ``num`` players: a bot for any role.

    Unbounded continuous parts draw from a standard normal. A row without a legal action draws
    uniformly from all.
    """
    actions: Arrays = {}
    for name, part in role.actions.items():
        mask = legal.get(name)
        if isinstance(part, Discrete):
            actions[name] = _uniform_choice(part.num, mask, num, rng)
        elif isinstance(part, MultiDiscrete):
            edges = np.cumsum((0, *part.nums))
            columns = [
                _uniform_choice(
                    size, None if mask is None else mask[:, edges[i] : edges[i + 1]], num, rng
                )
                for i, size in enumerate(part.nums)
            ]
            actions[name] = np.stack(columns, axis=1)
        else:
            bounded = part.bounded
            unit = rng.uniform(-1.0, 1.0, (num, part.size)).astype(np.float32)
            normal = rng.standard_normal((num, part.size)).astype(np.float32)
            actions[name] = to_game_action(part, np.where(bounded, unit, normal), "clip")
    return actions


def _uniform_choice(
    size: int, mask: Array | None, num: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    if mask is None:
        return rng.integers(0, size, num)
    allowed = mask | ~mask.any(axis=1, keepdims=True)
    ranks = np.cumsum(allowed, axis=1)
    pick = np.floor(rng.random(num) * ranks[:, -1]) + 1
    choice: NDArray[np.int64] = np.argmax(ranks >= pick[:, None], axis=1)
    return choice
