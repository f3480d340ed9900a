"""Evolution as a run: propose, evaluate, select, keep; stop and resume at any point.

``evolve`` begins a run, ``resume`` goes on with one. The search is a deterministic function of what it
was asked and told, so the journal is enough to bring it back: a resumed run loads the newest
checkpoint, makes the recorded proposals again, tells the recorded outcomes in the recorded order, and
goes on with what was out. Nothing that was recorded is evaluated a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from lamarckian import config, seeding
from lamarckian.distributed.group import WorkerOptions
from lamarckian.distributed.placement import placement
from lamarckian.distributed.process import available_cores
from lamarckian.ec import EC
from lamarckian.errors import ConfigError, EvaluatorError, RunError
from lamarckian.evaluator import BatchEvaluator, Blob, Encoding, Evaluator
from lamarckian.evorl.evaluating import is_grouped
from lamarckian.evorl.executors import InProcess, Pool
from lamarckian.evorl.problems import checked, game_of_styles, kind_of, make_evaluator
from lamarckian.evorl.searches import NSGA2, Search, default_search, make_search
from lamarckian.evorl.workflow import Executor, Mode
from lamarckian.metrics import Recorder
from lamarckian.runs.checkpoint import Keep
from lamarckian.runs.folder import Run
from lamarckian.runs.recording import MakeRecorders, recording

KIND = "evolve"


class EvolutionRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an evolution: what is searched, by what, where it is evaluated, what is kept."""

    problem: Annotated[
        str, Meta(description="A problem, a game, or your own evaluator as module:Name.")
    ]
    options: Annotated[
        dict[str, Any], Meta(description="Options of the problem or game itself.")
    ] = {}
    ec: Annotated[Search, Meta(description="The search and its settings.")] = NSGA2()
    evaluations: Annotated[
        int, Meta(ge=0, description="Evaluations in all; 0: no limit (then give generations).")
    ] = 10_000
    generations: Annotated[int, Meta(ge=0, description="Selections in all; 0: no limit.")] = 0
    mode: Annotated[
        Mode,
        Meta(
            description="generational waits for a whole generation, first-n for the expected number, "
            "steady-state for nobody."
        ),
    ] = "generational"
    num_in_flight: Annotated[
        int, Meta(ge=0, description="Individuals out at the same time; 0: as the mode needs.")
    ] = 0
    late_after: Annotated[
        int,
        Meta(ge=0, description="Discard outcomes older than so many selections; 0: use them."),
    ] = 0
    retries: Annotated[
        int, Meta(ge=0, description="Further tries of an evaluation that fails or gives NaN.")
    ] = 0
    placement: Annotated[
        Literal["in-process", "processes"],
        Meta(description="Where individuals are evaluated."),
    ] = "in-process"
    num_workers: Annotated[
        int, Meta(ge=0, description="Worker processes; 0: one per core. Only with processes.")
    ] = 0
    lease_seconds: Annotated[
        float,
        Meta(
            ge=0.0,
            description="A worker that holds an evaluation for longer is killed and replaced (a group: "
            "for so long per member); 0: no limit. Only with processes.",
        ),
    ] = 0.0
    max_attempts: Annotated[
        int,
        Meta(ge=1, description="Workers that may die or hang over one evaluation. With processes."),
    ] = 3
    seed: Annotated[int, Meta(ge=0, description="Seed of everything random in the run.")] = 0
    checkpoint_seconds: Annotated[
        float, Meta(ge=0.0, description="Time between checkpoints; the journal fills the gaps.")
    ] = 30.0
    keep: Annotated[Keep, Meta(description="Which checkpoints stay on disk.")] = Keep()
    keep_weights: Annotated[
        Literal["population", "all"],
        Meta(description="Whose network weights stay on disk."),
    ] = "population"

    def training_data(self) -> dict[str, Any] | None:
        """Return the settings of a game's training as plain data; None for other problems."""
        return None


@dataclass(slots=True)
class EvolutionResult:
    """What a finished or stopped evolution has come to.

    ``indicators`` are ``hypervolume``, ``igd``, ``igd_plus`` and ``spread`` where they are defined:
    with a declared reference, and with a known true front. ``best`` holds one record per member
    of the front (one objective: the best individual).
    """

    run: str
    problem: str
    ec: str
    evaluations: int
    generations: int
    failures: int
    seconds: float
    evaluations_per_second: float
    idle_share: float
    finished: bool
    reason: str
    front_size: int
    best: list[dict[str, Any]] = field(default_factory=list)
    indicators: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``--json``: the indicators stand beside the other numbers."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**{k: v for k, v in plain.items() if k != "indicators"}, **self.indicators}


@dataclass(slots=True)
class Parts:
    """What a run of evolution is made of."""

    settings: EvolutionRun
    evaluator: Evaluator
    encoding: Encoding
    search: EC

    @property
    def is_array_problem(self) -> bool:
        """Whether whole generations are evaluated as arrays, without a task per individual."""
        settings = self.settings
        return (
            settings.mode == "generational"
            and settings.placement == "in-process"
            and isinstance(self.evaluator, BatchEvaluator)
            and not any(isinstance(part, Blob) for part in self.encoding.parts.values())
            and settings.retries == 0
        )

    def executor(self) -> Executor:
        """Start the workers."""
        settings, search = self.settings, self.search
        members = search.generation_size if search.generation_size > 1 else search.population_size
        grouped = is_grouped(self.evaluator)
        if settings.placement == "in-process":
            return InProcess(self.evaluator, settings.seed, members if grouped else 1)
        num_workers = settings.num_workers or available_cores()
        group_size = -(-members // num_workers) if grouped else 1
        problem = {"problem": settings.problem, "options": dict(settings.options)}
        return Pool(
            placement("processes", WorkerOptions(hung_after=None)),
            problem | {"training": settings.training_data()},
            settings.seed,
            num_workers=num_workers,
            group_size=group_size,
            lease=settings.lease_seconds * group_size or None,
            max_attempts=settings.max_attempts,
        )


def build_settings(
    problem: str,
    given: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
    *,
    use_preset: bool = True,
) -> EvolutionRun:
    """Merge defaults, those known to be good for the game, a file's settings and ``given`` ones
    (dotted keys), in this order.

    The search, if none is named, is the first that fits the problem. Raises ConfigError and its kin.
    """
    file = file or {}
    updates = {**given, "problem": problem}
    if "generations" in updates and not {"evaluations"} & {*updates, *file}:
        updates["evaluations"] = 0
    kind: type[EvolutionRun] = EvolutionRun
    known: dict[str, Any] = {}
    what = kind_of(problem)
    if what in ("game", "styles"):
        from lamarckian.rl.presets import evolution_preset
        from lamarckian.runs.game_evolution import GameEvolutionRun, StylesRun

        kind = GameEvolutionRun if what == "game" else StylesRun
        known = evolution_preset(game_of_styles(problem) or problem) if use_preset else {}
    base = config.apply(config.build(kind, {"problem": problem, **known}), file)
    if what != "styles" and "ec" not in updates and "ec" not in file:
        others = {key: value for key, value in updates.items() if not key.startswith("ec.")}
        record = config.apply(base, others)
        evaluator = make_evaluator(record.problem, record.options, record.training_data())
        updates["ec"] = default_search(checked(evaluator, problem).describe())
    return config.apply(base, updates)


def evolve(
    settings: EvolutionRun,
    path: str | Path | None = None,
    *,
    recorders: MakeRecorders | None = None,
    command: Sequence[str] = (),
) -> EvolutionResult:
    """Begin a run in ``path`` (default ``runs/<problem>-<n>``) and evolve until the budget is used.

    Raises ConfigError and its kin before anything is evaluated, EvaluatorError if every single
    evaluation failed; an interrupt (SIGINT, SIGTERM) ends the run after the evaluation at hand.
    """
    from lamarckian.runs.evolution_loop import drive

    parts = prepare(settings)
    with (
        Run.create(
            path,
            settings.problem.replace(":", "-"),
            settings,
            kind=KIND,
            seed=settings.seed,
            command=command,
            keep=settings.keep,
        ) as run,
        recording(run, recorders) as recorder,
    ):
        return _finish(parts, drive(parts, run, recorder, first=True), run, recorder)


def resume(
    path: str | Path, *, recorders: MakeRecorders | None = None, evaluations: int | None = None
) -> EvolutionResult:
    """Go on with a run where it was stopped or killed; ``evaluations`` extends it."""
    from lamarckian.runs.evolution_loop import drive

    reading = Run.open(path)
    settings = load_settings(reading)
    if evaluations is not None:
        settings = msgspec.structs.replace(settings, evaluations=evaluations)
    parts = prepare(settings)
    with Run.resume(path, keep=settings.keep) as run:
        if evaluations is not None:
            run.change_config(settings)
        with recording(run, recorders) as recorder:
            return _finish(parts, drive(parts, run, recorder, first=False), run, recorder)


def load_settings(run: Run) -> EvolutionRun:
    """Read a run's settings. Raises RunError if it is not an evolution."""
    plain = run.settings()
    if "problem" not in plain:
        raise RunError(f"{run.path}: this run is not an evolution; it was made by 'train'")
    if "training" in plain:
        from lamarckian.runs.game_evolution import GameEvolutionRun, StylesRun

        styled = game_of_styles(str(plain["problem"])) is not None
        return run.load_config(StylesRun if styled else GameEvolutionRun)
    return run.load_config(EvolutionRun)


def is_evolution(run: Run) -> bool:
    """Return whether the run is one of evolution."""
    return "problem" in run.settings()


def prepare(settings: EvolutionRun) -> Parts:
    """Build evaluator and search. Raises before anything is evaluated if they do not fit."""
    check(settings)
    kind_of(settings.problem)
    evaluator = make_evaluator(settings.problem, settings.options, settings.training_data())
    encoding = checked(evaluator, settings.problem).describe()
    _try_initialize(evaluator, encoding, settings)
    search = make_search(settings.ec, encoding, settings.seed, settings.mode, evaluator.initialize)
    return Parts(settings, evaluator, encoding, search)


def _try_initialize(evaluator: Evaluator, encoding: Encoding, settings: EvolutionRun) -> None:
    try:
        decision = evaluator.initialize(seeding.stream(settings.seed, "initialize", "check"))
        encoding.check_decision(decision)
    except EvaluatorError as error:
        raise EvaluatorError(f"{settings.problem}: initialize(): {error}") from None
    except Exception as error:
        raise EvaluatorError(
            f"{settings.problem}: initialize() raised {type(error).__name__}: {error}"
        ) from error


def check(settings: EvolutionRun) -> None:
    """Refuse settings that contradict each other or have no effect. Raises ConfigError."""
    default = EvolutionRun(problem="")
    if not settings.evaluations and not settings.generations:
        raise ConfigError("evolution: give --evaluations or --generations")
    if settings.placement == "in-process":
        for name in ("num_workers", "lease_seconds", "max_attempts"):
            if getattr(settings, name) != getattr(default, name):
                raise ConfigError(
                    f"{name}: has no effect with placement in-process; add --placement processes"
                )
    if settings.mode != "first-n" and settings.late_after:
        raise ConfigError("late_after: has an effect only with --mode first-n")
    if settings.mode == "generational" and settings.num_in_flight:
        raise ConfigError("num_in_flight: has no effect with mode generational")


def _finish(parts: Parts, result: EvolutionResult, run: Run, recorder: Recorder) -> EvolutionResult:
    metrics: dict[str, Any] = {
        "evaluations": float(result.evaluations),
        "failed_evaluations": float(result.failures),
        **{k: v for k, v in result.indicators.items() if np.isfinite(v) and k == "hypervolume"},
    }
    if result.finished:
        recorder.record("finished", {"metrics": metrics})
    else:
        recorder.record("stopped", {"reason": result.reason, "metrics": metrics})
    if result.evaluations and result.failures == result.evaluations and result.finished:
        reasons = [
            entry.fields.get("reason", "")
            for entry in run.replay()
            if entry.event == "individual_told"
        ]
        raise EvaluatorError(
            f"{parts.settings.problem}: all {result.evaluations} evaluations failed; the first: "
            f"{reasons[0] if reasons else 'a number was not finite'}; run: {run.path}"
        )
    return result
