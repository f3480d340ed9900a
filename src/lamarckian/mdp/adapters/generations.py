"""Opening Gymnasium-style environments, and the three generations of their interface.

``gymnasium``  reset(seed=) -> (observation, info); step -> 5 values. Gymnasium 0.26 up to 1.x.
``gym-0.26``   the same calls on the older package ``gym``.
``gym-0.21``   seed(seed), reset() -> observation; step -> 4 values, where a time limit is told by
               ``info["TimeLimit.truncated"]``.

The generation is chosen by the user and never guessed: an environment of another one is refused with a
message that names the right choice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np

from lamarckian.errors import (
    ConfigError,
    GameError,
    LamarckianError,
    MissingDependency,
    UnknownName,
    nearest,
)

Api = Literal["gymnasium", "gym-0.26", "gym-0.21"]
Step = Callable[[Any], Any]

_INSTALL = {
    "gymnasium": "pip install 'lamarckian[gymnasium]'",
    "gym-0.26": "pip install 'gym==0.26.2'",
    "gym-0.21": "pip install 'gym==0.21.0'",
}


def require(module: str, install: str, what: str) -> Any:
    """Import an optional package; raises MissingDependency with the install command."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            raise MissingDependency(
                f"{what}: importing {module} failed because {error.name!r} is missing; "
                f"install it, e.g. pip install {error.name}"
            ) from error
        raise MissingDependency(
            f"{what} needs the package {package}; install it with: {install}"
        ) from error


def check_api(api: str) -> Api:
    """Return ``api`` if it is a known generation; raises ConfigError."""
    for known in get_args(Api):
        if api == known:
            return known  # type: ignore[no-any-return]
    raise ConfigError(
        f"api: expected one of {', '.join(get_args(Api))}, got {api!r}{nearest(api, get_args(Api))}"
    )


def open_environment(
    environment: str | Callable[..., Any], options: Mapping[str, Any], api: Api
) -> Any:
    """Make one environment from a registered id or a factory.

    Raises UnknownName, ConfigError, MissingDependency, or GameError if its constructor raised.
    """
    if not isinstance(environment, str):
        label = label_of(environment)
        try:
            return environment(**options)
        except LamarckianError:
            raise
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise ConfigError(f"{label}: its factory refused the options: {error}") from error
            raise GameError(f"{label}: its constructor raised TypeError: {error}") from error
        except Exception as error:
            raise GameError(
                f"{label}: its constructor raised {type(error).__name__}: {error}"
            ) from error
    package = require(api.partition("-")[0], _INSTALL[api], f"environment {environment!r}")
    extra: dict[str, Any] = {} if api == "gym-0.21" else {"disable_env_checker": True}
    try:
        return package.make(environment, **extra, **options)
    except Exception as error:
        raise making_failed(package, environment, options, error) from error


def making_failed(
    package: Any, name: str, options: Mapping[str, Any], error: Exception
) -> LamarckianError:
    """Return the error of ours that a failed ``make`` means."""
    if isinstance(error, package.error.UnregisteredEnv):
        known = list(getattr(package.envs.registry, "keys", list)())
        return UnknownName(
            f"environment {name!r} is not registered{nearest(name, known)} ({error})"
        )
    if isinstance(error, package.error.DependencyNotInstalled):
        return MissingDependency(f"environment {name!r}: {error}")
    if isinstance(error, ModuleNotFoundError):
        return MissingDependency(
            f"environment {name!r} needs the module {error.name}; "
            f"install it, e.g. pip install {error.name}"
        )
    if isinstance(error, TypeError) and options:
        return ConfigError(f"environment {name!r} refused the options {dict(options)}: {error}")
    return GameError(f"environment {name!r}: making it raised {type(error).__name__}: {error}")


def label_of(environment: Any) -> str:
    """Return the name messages use for an environment id, class or factory."""
    if isinstance(environment, str):
        return environment
    return str(getattr(environment, "__qualname__", type(environment).__name__))


def reset_environment(env: Any, seed: int, api: Api) -> tuple[Any, dict[str, Any]]:
    """Start an episode; return (observation, info). Raises GameError for a wrong return value."""
    if api == "gym-0.21":
        env.seed(seed)
        observation = env.reset()
        if _is_pair(observation):
            raise GameError(
                "reset() returned (observation, info), which is not the api gym-0.21; "
                'choose api="gymnasium" or "gym-0.26"'
            )
        return observation, {}
    result = env.reset(seed=seed)
    if not _is_pair(result):
        raise GameError(
            f"reset() must return (observation, info), got {_what(result)}"
            + ('; for the old interface choose api="gym-0.21"' if result is not None else "")
        )
    return result[0], result[1]


def _is_pair(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)


def _what(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return f"{len(result)} values"
    return "None" if result is None else type(result).__name__


def step_function(env: Any, api: Api) -> Step:
    """Return the environment's step as a function that returns five values."""
    if api != "gym-0.21":
        step: Step = env.step
        return step
    old_step = env.step

    def step_with_four(action: Any) -> Any:
        result = old_step(action)
        if not isinstance(result, tuple) or len(result) != 4:
            return result if not isinstance(result, tuple) else (*result, None)
        observation, reward, done, info = result
        truncated = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return observation, reward, bool(done) and not truncated, truncated, info

    return step_with_four


def wrong_step(result: Any, api: Api) -> str:
    """Say what is wrong with a step result that does not unpack into five values."""
    if api == "gym-0.21":
        got = _what(result[:-1]) if isinstance(result, tuple) else _what(result)
        return (
            f"step() must return 4 values under api gym-0.21, got {got}; "
            'for the newer interface choose api="gymnasium" or "gym-0.26"'
        )
    hint = ""
    if isinstance(result, tuple) and len(result) == 4:
        hint = (
            "; this looks like the interface of gym before 0.26, which cannot tell termination from "
            'truncation: choose api="gym-0.21"'
        )
    return (
        "step() must return 5 values (observation, reward, terminated, truncated, info), "
        f"got {_what(result)}{hint}"
    )


def check_step(result: Any, api: Api) -> None:
    """Check the types of one step result; raises GameError. Used for the first steps only."""
    if not isinstance(result, tuple) or len(result) != 5:
        raise GameError(wrong_step(result, api))
    for name, flag in (("terminated", result[2]), ("truncated", result[3])):
        if np.asarray(flag).dtype.kind != "b" or np.size(flag) != 1:
            raise GameError(f"step(): expected {name} to be a bool, got {flag!r:.40}")
    if not isinstance(result[4], Mapping):
        raise GameError(f"step(): expected info to be a dict, got {_what(result[4])}")
