"""Settings of a training run, and which of them contradict each other."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lamarckian.errors import ConfigError
from lamarckian.rl.algorithm import AlgorithmSettings
from lamarckian.rl.assembly import Training
from lamarckian.runs.checkpoint import Keep


class Evaluating(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a policy is measured while it trains, on games of its own with fixed seeds."""

    every: Annotated[
        int, Meta(ge=0, description="Frames between evaluations; 0: only at the end.")
    ] = 0
    episodes: Annotated[
        int, Meta(ge=0, description="Episodes per evaluation; 0: never measure.")
    ] = 50
    greedy: Annotated[
        bool, Meta(description="Play the most likely action instead of drawing one.")
    ] = True
    stop_score: Annotated[
        float | None,
        Meta(description="End the run once an evaluation reaches this score; None: never."),
    ] = None


class TrainingRun(Training, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a training run: what is trained, where it runs, what is kept."""

    placement: Annotated[
        Literal["in-process", "processes"],
        Meta(description="Where games are played: in the learner's process, or in actors."),
    ] = "in-process"
    num_actors: Annotated[
        int, Meta(ge=0, description="Actor processes; 0: one per core. Only with processes.")
    ] = 0
    collection: Annotated[
        Literal["auto", "synchronous", "asynchronous"],
        Meta(
            description="asynchronous: actors go on playing while the learner trains; auto: as the "
            "algorithm is made for."
        ),
    ] = "auto"
    max_staleness: Annotated[
        int, Meta(ge=1, description="Drop data older than so many versions. Only asynchronous.")
    ] = 4
    fragments_in_flight: Annotated[
        int,
        Meta(ge=1, le=64, description="Unread fragments an actor may have before it waits."),
    ] = 2
    allow_oversubscription: Annotated[bool, Meta(description="Allow more actors than cores.")] = (
        False
    )
    max_seconds: Annotated[
        float, Meta(ge=0.0, description="End the run after so many seconds of training; 0: never.")
    ] = 0.0
    torch_threads: Annotated[
        int,
        Meta(
            ge=0,
            description="Threads of the learner; 0: all cores if it reads images, else one (small "
            "layers lose more than they gain by threads).",
        ),
    ] = 0
    checkpoint_every: Annotated[
        int, Meta(ge=0, description="Iterations between checkpoints; 0: only at the end.")
    ] = 20
    keep: Annotated[Keep, Meta(description="Which checkpoints stay on disk.")] = Keep()
    evaluation: Annotated[Evaluating, Meta(description="Measuring while training.")] = Evaluating()

    @property
    def is_asynchronous(self) -> bool:
        """Whether actors play on while the learner learns."""
        if self.placement == "in-process" or self.collection == "synchronous":
            return False
        algorithm: AlgorithmSettings = self.algorithm
        return self.collection == "asynchronous" or algorithm.is_asynchronous


def check(settings: TrainingRun) -> None:
    """Refuse settings that contradict each other or have no effect. Raises ConfigError."""
    default = TrainingRun(game="")
    if settings.placement == "in-process":
        for name in ("num_actors", "collection", "allow_oversubscription", "fragments_in_flight"):
            if getattr(settings, name) not in (getattr(default, name), "synchronous"):
                raise ConfigError(
                    f"{name}: has no effect with placement in-process; add --placement processes"
                )
    if not settings.is_asynchronous and settings.max_staleness != default.max_staleness:
        raise ConfigError("max_staleness: has no effect with synchronous collection")
