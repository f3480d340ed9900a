"""What ``import lamarckian as lm`` offers, loaded name by name when first used."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lamarckian.errors import ConfigError
from lamarckian.version import __version__

if TYPE_CHECKING:
    from lamarckian.rl.assembly import Assembly
    from lamarckian.runs.evolution import EvolutionResult
    from lamarckian.runs.training import TrainingResult

__all__ = ["__getattr__", "__version__", "evolve", "load", "resume", "train"]

_HOMES = {
    "MDP": "lamarckian.mdp.core",
    "BatchGame": "lamarckian.mdp.batch_game",
    "Continuous": "lamarckian.mdp.core",
    "Controller": "lamarckian.mdp.core",
    "Discrete": "lamarckian.mdp.core",
    "Input": "lamarckian.mdp.core",
    "MultiDiscrete": "lamarckian.mdp.core",
    "NetworkConfig": "lamarckian.rl.network_config",
    "Observation": "lamarckian.mdp.core",
    "DQN": "lamarckian.rl.dqn",
    "IMPALA": "lamarckian.rl.impala",
    "MAPPO": "lamarckian.rl.mappo",
    "PPO": "lamarckian.rl.ppo",
    "SAC": "lamarckian.rl.sac",
    "Role": "lamarckian.mdp.core",
    "RowStep": "lamarckian.mdp.batch_game",
    "Run": "lamarckian.runs.folder",
    "TickGame": "lamarckian.mdp.tick",
    "TrainingRun": "lamarckian.runs.training",
}
_FUNCTIONS = ("evolve", "load", "resume", "train")


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return globals()[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'lamarckian' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def train(
    game: str | type,
    *,
    run: str | Path | None = None,
    show: bool = True,
    **settings: Any,
) -> TrainingResult:
    """Train a policy on ``game`` and keep everything in a run folder.

    ``game`` is a name of ``lamarckian games``, a reference such as ``gym:CartPole-v1``, or a class of
    yours (a BatchGame, an MDP or a Gymnasium environment). ``settings`` are those of
    :class:`TrainingRun`, e.g. ``algorithm=lm.PPO(learning_rate=1e-3), frames=2_000_000`` or
    ``algorithm="impala"``; unset ones come from the measured preset of the game, else from the defaults.
    ``show`` prints progress.

    Raises ConfigError, UnknownName or UnsupportedSpace before anything is started.
    """
    import msgspec

    from lamarckian import config
    from lamarckian.rl.presets import algorithm_named, expand, preset
    from lamarckian.runs import training
    from lamarckian.runs.display import ConsoleRecorder

    reference = game if isinstance(game, str) else _reference(game)
    if reference.startswith("__main__:") and settings.get("placement") == "processes":
        raise ConfigError(
            f"game {reference!r}: other processes cannot import a class of the main script; put it in "
            "a module of its own, or use placement in-process"
        )
    settings = expand(settings)
    chosen = settings.get("algorithm")
    known: dict[str, Any] = {}
    if not isinstance(chosen, msgspec.Struct):
        known = preset(algorithm_named(chosen), reference)
    record = config.build(training.TrainingRun, {"game": reference, **known})
    record = config.apply(record, settings)
    return training.train(
        record,
        run,
        recorders=(lambda _: [ConsoleRecorder(title=reference, target_frames=record.frames)])
        if show
        else None,
    )


def evolve(
    problem: str | type,
    *,
    run: str | Path | None = None,
    show: bool = True,
    **settings: Any,
) -> EvolutionResult:
    """Evolve ``problem`` and keep everything in a run folder.

    ``problem`` is a name of ``lamarckian search-spaces``, a game, a reference ``module:Name``, or a
    class of yours: an evaluator or a game. ``settings`` are those of ``EvolutionRun``, e.g.
    ``ec="nsga2", evaluations=25_000``; nested ones as a mapping: ``ec={"name": "pbt", "population": 8}``.
    ``show`` prints progress.

    Raises ConfigError, UnknownName or UnsupportedSpace before anything is started.
    """
    from lamarckian.runs import evolution
    from lamarckian.runs.display import ConsoleRecorder

    reference = problem if isinstance(problem, str) else _reference(problem)
    if reference.startswith("__main__:") and settings.get("placement") == "processes":
        raise ConfigError(
            f"problem {reference!r}: other processes cannot import a class of the main script; put "
            "it in a module of its own, or use placement in-process"
        )
    record = evolution.build_settings(reference, settings)

    def recorders(_: Any) -> list[Any]:
        target = record.evaluations or None
        return [ConsoleRecorder(title=reference, target_frames=target, unit="evaluations")]

    return evolution.evolve(record, run, recorders=recorders if show else None)


def resume(
    run: str | Path, *, frames: int | None = None, evaluations: int | None = None
) -> TrainingResult | EvolutionResult:
    """Go on with a run; ``frames`` extends a training, ``evaluations`` an evolution.

    Raises ConfigError for a limit the kind of run does not have.
    """
    from lamarckian.runs import evolution
    from lamarckian.runs.folder import Run

    if evolution.is_evolution(Run.open(run)):
        if frames is not None:
            raise ConfigError("frames: this run is an evolution; extend it with evaluations")
        return evolution.resume(run, evaluations=evaluations)
    if evaluations is not None:
        raise ConfigError("evaluations: this run is a training; extend it with frames")
    from lamarckian.runs import training

    return training.resume(run, frames=frames)


def load(run: str | Path, checkpoint: int | Literal["last", "best"] = "last") -> Assembly:
    """Return a run's game, seating and policies with the weights of a checkpoint.

    ``load(run).evaluate(num_episodes=100, seed=0, greedy=True)`` measures them;
    ``load(run).policies`` are the policies by group.
    """
    from lamarckian.runs.folder import Run
    from lamarckian.runs.training import load_policies

    return load_policies(Run.open(run), checkpoint)


def _reference(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
