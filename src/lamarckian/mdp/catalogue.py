"""Games by name: one plain table, a few prefixes, and ``package.module:Name`` for a user's own.

A reference is a name of the table (``pong``), a prefixed name (``gym:CartPole-v1``, ``ale:Pong``) or
``package.module:Name``. Options follow a question mark: ``ale:Pong?obs=ram&frame_skip=2``; values are
read as JSON where they are JSON, else as text.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from lamarckian.errors import ConfigError, GameError, LamarckianError, UnknownName, nearest
from lamarckian.mdp.batch_game import BatchGame
from lamarckian.mdp.core import MDP

Kind = Literal["batch", "mdp"]


@dataclass(frozen=True, slots=True)
class GameEntry:
    """One game of the table: what it is, where it lives, and its preset options."""

    summary: str
    constructor: str
    options: Mapping[str, Any] = field(default_factory=dict)


_GAMES = "lamarckian.mdp.games"

GAMES: dict[str, GameEntry] = {
    "pong": GameEntry("two bats, one ball; ten numbers per player", f"{_GAMES}:Pong"),
    "pong-image": GameEntry("the same Pong seen as an image", f"{_GAMES}:Pong", {"image": True}),
    "cartpole": GameEntry("balance a pole; stepped as arrays", f"{_GAMES}:CartPole"),
    "pendulum": GameEntry("swing a pendulum up; stepped as arrays", f"{_GAMES}:Pendulum"),
    "rps": GameEntry("rock, paper, scissors", f"{_GAMES}:RockPaperScissors"),
    "connect-four": GameEntry("four in a row, in turns", f"{_GAMES}:ConnectFour"),
    "skirmish": GameEntry("two squads of units that die", f"{_GAMES}:Skirmish"),
    "duel": GameEntry(
        "two fencers; real_time=true puts them on the clock", f"{_GAMES}.duel_entry:duel"
    ),
    "mpe:simple_spread": GameEntry(
        "players cover landmarks together; stepped as arrays",
        f"{_GAMES}.simple_spread:SimpleSpread",
    ),
}

_ADAPTERS = "lamarckian.mdp.adapters"

PREFIXES: dict[str, tuple[str, str]] = {
    "gym": (f"{_ADAPTERS}.gymnasium:GymnasiumGame", "gym:CartPole-v1"),
    "gymvec": (f"{_ADAPTERS}.gymnasium_vector:GymnasiumVectorGame", "gymvec:CartPole-v1"),
    "ale": (f"{_ADAPTERS}.ale:ale_game", "ale:Pong"),
    "pettingzoo": (f"{_ADAPTERS}.pettingzoo:pettingzoo_game", "pettingzoo:classic/connect_four_v3"),
    "envpool": (f"{_ADAPTERS}.envpool:EnvPoolGame", "envpool:Pong-v5"),
    "smax": (f"{_ADAPTERS}.smax:SMAX", "smax:3m"),
}
"""prefix -> (constructor, example). The constructor takes ``(num_games, name, **options)``."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A reference made concrete: ``make(num_games, **options)`` builds a BatchGame or an MDP."""

    reference: str
    make: Callable[..., BatchGame | MDP]
    options: Mapping[str, Any]


def resolve(reference: str, options: Mapping[str, Any] | None = None) -> Resolved:
    """Find a game; imports what it needs but makes nothing.

    Raises UnknownName with the nearest match, MissingDependency, or GameError if a user's module raises
    while it is imported.
    """
    name, _, query = reference.partition("?")
    merged = {key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}
    merged |= dict(options or {})
    if name in GAMES:
        entry = GAMES[name]
        return Resolved(
            name, _adapted(_load(entry.constructor, name), name), {**entry.options, **merged}
        )
    prefix, colon, rest = name.partition(":")
    if colon and prefix in PREFIXES:
        if not rest:
            raise UnknownName(
                f"game {reference!r}: expected a name after the colon, e.g. {PREFIXES[prefix][1]}"
            )
        return Resolved(name, _through_adapter(prefix, rest), merged)
    if colon and "/" not in prefix and prefix.replace(".", "").replace("_", "").isalnum():
        return Resolved(name, _adapted(_load(name, name), name), merged)
    raise UnknownName(
        f"unknown game {reference!r}{nearest(name, GAMES)}; known: {', '.join(GAMES)}, "
        f"{', '.join(example for _, example in PREFIXES.values())}, or package.module:Name"
    )


def make_game(
    reference: str, num_games: int, options: Mapping[str, Any] | None = None
) -> BatchGame | list[MDP]:
    """Build ``num_games`` matches: one BatchGame, or as many MDP objects.

    Raises what :func:`resolve` raises, and ConfigError for an option the game does not know.
    """
    resolved = resolve(reference, options)
    game = _build(resolved, num_games)
    if isinstance(game, BatchGame):
        return game
    return [game, *(_expect_mdp(_build(resolved, num_games)) for _ in range(num_games - 1))]


def make_batch(
    reference: str, num_games: int, options: Mapping[str, Any] | None = None
) -> BatchGame:
    """Build a game that is stepped as arrays; raises ConfigError if it is an MDP."""
    game = _build(resolve(reference, options), num_games)
    if not isinstance(game, BatchGame):
        game.close()
        raise ConfigError(f"game {reference!r} is an MDP and cannot be stepped as a batch")
    return game


def make_mdp(reference: str, options: Mapping[str, Any] | None = None) -> MDP:
    """Build one match that players join; raises ConfigError if the game is a batch game."""
    game = _build(resolve(reference, options), 1)
    if isinstance(game, BatchGame):
        game.close()
        raise ConfigError(f"game {reference!r} is a batch game: it is stepped as arrays")
    return game


def _expect_mdp(game: BatchGame | MDP) -> MDP:
    if isinstance(game, BatchGame):
        raise GameError(
            f"{type(game).__name__}: the factory returned an MDP first, then a batch game"
        )
    return game


def _build(resolved: Resolved, num_games: int) -> BatchGame | MDP:
    try:
        return resolved.make(num_games, **resolved.options)
    except LamarckianError:
        raise
    except TypeError as error:
        if resolved.options and "argument" in str(error):
            known = option_names(resolved.make)
            wrong = next((key for key in resolved.options if f"'{key}'" in str(error)), "")
            raise ConfigError(
                f"game {resolved.reference!r} refused the options {sorted(resolved.options)}: {error}"
                + nearest(wrong, known)
                + (f"; options: {', '.join(known)}" if known else "")
            ) from error
        raise GameError(f"game {resolved.reference!r}: making it raised {error}") from error
    except Exception as error:
        raise GameError(
            f"game {resolved.reference!r}: making it raised {type(error).__name__}: {error}"
        ) from error


def option_names(make: Callable[..., Any]) -> list[str]:
    """Return the option names of a resolved game's ``make``."""
    target = getattr(make, "target", make)
    skip = {"num_games", "environment", "self", "name"}
    return [
        name
        for name, parameter in inspect.signature(target).parameters.items()
        if name not in skip and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _load(path: str, reference: str) -> Any:
    """Import ``package.module:Name``, also from the current directory."""
    module_name, _, attribute = path.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            hint = nearest(module_name, [*GAMES, *PREFIXES])
            raise UnknownName(
                f"game {reference!r}: there is no module {missing!r} here or among the installed "
                f"packages{hint}"
            ) from error
        raise GameError(
            f"game {reference!r}: importing {module_name} failed: {error}; install what it needs"
        ) from error
    except LamarckianError:
        raise
    except Exception as error:
        raise GameError(
            f"game {reference!r}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        known = [item for item in vars(module) if not item.startswith("_")]
        raise UnknownName(
            f"game {reference!r}: module {module_name} has no {attribute!r}"
            f"{nearest(attribute, known)}"
        ) from error


class _Make:
    """A constructor with its leading arguments bound; ``target`` is asked for its option names."""

    def __init__(self, target: Any, call: Callable[..., BatchGame | MDP]) -> None:
        self.target = target
        self._call = call

    def __call__(self, num_games: int, **options: Any) -> BatchGame | MDP:
        return self._call(num_games, **options)


def _through_adapter(prefix: str, environment: Any) -> _Make:
    """Bind the name, class or factory of a foreign environment; options the adapter does not know go to
    the environment itself.
    """
    constructor = _load(PREFIXES[prefix][0], prefix)
    known = set(inspect.signature(constructor).parameters)

    def call(num_games: int, **options: Any) -> Any:
        own = {key: value for key, value in options.items() if key in known}
        extra = {key: value for key, value in options.items() if key not in known}
        if "env_options" not in known:
            own |= extra
        elif extra:
            own["env_options"] = {**own.get("env_options", {}), **extra}
        return constructor(num_games, environment, **own)

    return _Make(constructor, call)


def _adapted(target: Any, reference: str) -> _Make:
    """Find out what ``target`` is and return how to build it.

    A BatchGame class takes ``num_games``; an MDP class takes its options; a Gymnasium or PettingZoo class
    goes through its adapter; a factory function may return any of these.
    """
    if isinstance(target, type):
        if issubclass(target, BatchGame):
            batch: Any = target
            return _Make(batch, lambda num_games, **options: batch(num_games=num_games, **options))
        if issubclass(target, MDP):
            return _Make(target, lambda num_games, **options: target(**options))
        kind = foreign_kind(target)
        if kind:
            return _through_adapter(kind, target)
        raise GameError(
            f"game {reference!r}: {target.__name__} is neither a BatchGame, an MDP, a Gymnasium Env "
            "nor a PettingZoo environment"
        )
    if not callable(target):
        raise GameError(
            f"game {reference!r}: expected a class or a factory function, "
            f"got {type(target).__name__}"
        )

    def from_factory(num_games: int, **options: Any) -> Any:
        if "num_games" in inspect.signature(target).parameters:
            options = {"num_games": num_games, **options}
        game = target(**options)
        if isinstance(game, (BatchGame, MDP)):
            return game
        kind = foreign_kind(type(game))
        getattr(game, "close", lambda: None)()
        if kind:
            return _through_adapter(kind, target)(num_games, env_options=options)
        raise GameError(
            f"game {reference!r}: the factory returned {type(game).__name__}; expected a BatchGame, "
            "an MDP, a Gymnasium Env or a PettingZoo environment"
        )

    return _Make(target, from_factory)


def foreign_kind(cls: type) -> str:
    """Return ``gym``, ``gymvec`` or ``pettingzoo`` for a foreign environment class, else ""."""
    for base in cls.__mro__:
        package = base.__module__.partition(".")[0]
        if base.__name__ == "VectorEnv" and package == "gymnasium":
            return "gymvec"
        if base.__name__ in ("Env", "Wrapper") and package in ("gymnasium", "gym"):
            return "gym"
        if base.__name__ in ("ParallelEnv", "AECEnv") and package == "pettingzoo":
            return "pettingzoo"
    return ""
