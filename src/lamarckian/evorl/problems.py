"""What can be evolved, by name: a numeric problem, a user's own evaluator, a game, or its styles.

``zdt1`` is a problem of ``lamarckian.problems``; ``package.module:Name`` an evaluator (anything with
``describe``, ``initialize`` and ``evaluate``) or a game; any other name is a game, whose players are
trained and evolved (``evorl/rl_evaluator.py``). ``pong-styles`` and ``styles:GAME`` evolve players of
different styles (``evorl/emogi.py``).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from lamarckian.errors import ConfigError, EvaluatorError, LamarckianError, UnknownName, nearest
from lamarckian.evaluator import Encoding, Evaluator
from lamarckian.mdp import catalogue as games
from lamarckian.problems import catalogue as numeric

Kind: TypeAlias = Literal["problem", "evaluator", "game", "styles"]

STYLES_PREFIX = "styles:"
"""``styles:GAME`` evolves styles of any game that declares behaviours."""

STYLES = {"pong-styles": "pong"}
"""Evolutions of styles with a name of their own, and their game."""


def kind_of(name: str) -> Kind:
    """Return what ``name`` is. Raises UnknownName with the nearest names."""
    if name in numeric.PROBLEMS:
        return "problem"
    styled = game_of_styles(name)
    if styled is not None:
        if kind_of(styled) != "game":
            raise UnknownName(
                f"{name}: expected a game after '{STYLES_PREFIX}', e.g. styles:pong; "
                f"'{styled}' is none"
            )
        return "styles"
    if name.partition("?")[0] in games.GAMES or name.partition(":")[0] in games.PREFIXES:
        return "game"
    if ":" in name:
        return "evaluator" if _is_evaluator(_load(name)) else "game"
    known = [*numeric.PROBLEMS, *games.GAMES, *STYLES]
    raise UnknownName(
        f"nothing to evolve is called '{name}'{nearest(name, known) or ';'} problems: "
        f"{', '.join(numeric.PROBLEMS)}; styles: {', '.join(STYLES)}, {STYLES_PREFIX}GAME; "
        f"games: {', '.join(games.GAMES)}; your own: module:Name"
    )


def game_of_styles(problem: str) -> str | None:
    """Return the game whose styles ``problem`` evolves, or None if it is of another kind."""
    if problem.startswith(STYLES_PREFIX):
        return problem.removeprefix(STYLES_PREFIX)
    return STYLES.get(problem)


def make_evaluator(
    problem: str, options: Mapping[str, Any], training: Mapping[str, Any] | None = None
) -> Evaluator:
    """Build the evaluator of ``problem``; ``training`` are the settings of a game's training.

    Raises UnknownName, ConfigError for wrong options, EvaluatorError for a broken evaluator.
    """
    kind = kind_of(problem)
    if kind == "problem":
        return numeric.make(problem, **options)
    if kind == "game":
        from lamarckian.evorl.rl_evaluator import RLEvaluator, task_from

        return RLEvaluator(task_from({**(training or {}), "game": problem}, options))
    if kind == "styles":
        from lamarckian.evorl.emogi import Emogi, setup_from

        game = game_of_styles(problem)
        return Emogi(setup_from({**(training or {}), "game": game}, options))
    return checked(_construct(problem, options), problem)


def checked(evaluator: Evaluator, name: str) -> Evaluator:
    """Return ``evaluator`` if it describes an encoding. Raises EvaluatorError."""
    try:
        encoding = evaluator.describe()
    except LamarckianError:
        raise
    except Exception as error:
        raise EvaluatorError(
            f"{name}: describe() raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(encoding, Encoding):
        raise EvaluatorError(
            f"{name}: describe() returned {type(encoding).__name__}, expected an Encoding"
        )
    return evaluator


def _is_evaluator(target: Any) -> bool:
    return all(callable(getattr(target, name, None)) for name in _VERBS)


_VERBS = ("describe", "initialize", "evaluate")


def _construct(name: str, options: Mapping[str, Any]) -> Evaluator:
    target = _load(name)
    if not isinstance(target, type):
        if options:
            raise ConfigError(f"{name} is an object, not a class: it takes no options")
        return target  # type: ignore[no-any-return]
    try:
        return target(**options)  # type: ignore[no-any-return]
    except LamarckianError:
        raise
    except TypeError as error:
        raise ConfigError(
            f"{name}: cannot be made with options {dict(options)}: {error}"
        ) from error
    except Exception as error:
        raise EvaluatorError(f"{name}: making it raised {type(error).__name__}: {error}") from error


def _load(name: str) -> Any:
    """Import ``package.module:Name``, also from the current directory."""
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            raise UnknownName(
                f"'{name}': there is no module {missing!r} here or among the installed packages"
            ) from error
        raise EvaluatorError(f"'{name}': importing it failed: {error}") from error
    except Exception as error:
        raise EvaluatorError(
            f"'{name}': importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, attribute):
        known = [item for item in vars(module) if not item.startswith("_")]
        raise UnknownName(
            f"'{name}': module {module_name} has no {attribute!r}{nearest(attribute, known)}"
        )
    return getattr(module, attribute)
