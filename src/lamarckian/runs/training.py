"""Training as a run: collect, learn, measure, keep; stop and resume at any point.

``train`` begins a run, ``resume`` goes on with one. Both end in the same loop. Whatever happens is
recorded in the run's journal first; the console and other recorders hear the same events.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from lamarckian import seeding
from lamarckian.distributed.process import available_cores
from lamarckian.mdp.core import Arrays, below
from lamarckian.mdp.evaluation import EvaluationResult, summarise
from lamarckian.mdp.guard import guard
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory
from lamarckian.metrics import Recorder
from lamarckian.rl.algorithm import Learner
from lamarckian.rl.assembly import Assembly, assemble, make_learners
from lamarckian.rl.gathering import Gathering, InProcess
from lamarckian.rl.gathering_processes import Processes
from lamarckian.rl.policy import TorchPolicy
from lamarckian.runs.control import Mailbox
from lamarckian.runs.folder import Run
from lamarckian.runs.interrupts import interrupts
from lamarckian.runs.recording import MakeRecorders, recording
from lamarckian.runs.training_settings import Evaluating, TrainingRun, check

__all__ = [
    "Evaluating",
    "TrainingResult",
    "TrainingRun",
    "check",
    "load_policies",
    "load_policy",
    "resume",
    "train",
]

RECENT_EPISODES = 100
"""Curves show means over so many of the latest episodes."""

ACTORS_EVERY = 10.0
"""Seconds of training between two records of what each actor does."""

ENDLESS = 1000
"""A game of which no episode has ended after so many decisions is not evaluated."""


@dataclass(slots=True)
class TrainingResult:
    """What a finished or stopped run has come to."""

    run: str
    frames: int
    decisions: int
    iterations: int
    seconds: float
    finished: bool
    reason: str
    metrics: dict[str, float | None] = field(default_factory=dict)
    evaluation: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def train(
    settings: TrainingRun,
    path: str | Path | None = None,
    *,
    recorders: MakeRecorders | None = None,
    command: Sequence[str] = (),
) -> TrainingResult:
    """Begin a run in ``path`` (default ``runs/<game>-<n>``) and train until its frames are used up.

    Raises ConfigError and its kin before the first step; an interrupt (SIGINT, SIGTERM) ends the run
    after the batch at hand, with a checkpoint.
    """
    check(settings)
    assembly = assemble(settings)
    learners = make_learners(assembly)
    with (
        closing(make_gathering(settings, assembly)) as gathering,
        Run.create(
            path,
            settings.game,
            settings,
            kind="train",
            seed=settings.seed,
            command=command,
            keep=settings.keep,
        ) as run,
        recording(run, recorders) as recorder,
    ):
        return _Loop(settings, assembly, learners, gathering, run, recorder).run_all(first=True)


def resume(
    path: str | Path, *, recorders: MakeRecorders | None = None, frames: int | None = None
) -> TrainingResult:
    """Go on with a run from its last good checkpoint; ``frames`` extends it.

    In one process the run continues bit for bit as if it had never stopped.
    """
    run = Run.open(path)
    settings = run.load_config(TrainingRun)
    if frames is not None:
        settings = msgspec.structs.replace(settings, frames=frames)
    check(settings)
    assembly = assemble(settings)
    learners = make_learners(assembly)
    with (
        closing(make_gathering(settings, assembly)) as gathering,
        Run.resume(path, keep=settings.keep) as run,
    ):
        if frames is not None:
            run.change_config(settings)
        with recording(run, recorders) as recorder:
            loop = _Loop(settings, assembly, learners, gathering, run, recorder)
            checkpoint = run.load("last", require=("learners", "gathering", "loop"))
            run.go_back(checkpoint.info)
            loop.load_state(checkpoint.state, checkpoint.arrays)
            return loop.run_all(first=False)


def make_gathering(settings: TrainingRun, assembly: Assembly) -> Gathering:
    """Build what collects; nothing plays yet. Raises ConfigError if the machine is too small."""
    if settings.placement == "in-process":
        return InProcess(settings, assembly)
    return Processes(
        settings,
        assembly,
        num_actors=settings.num_actors or available_cores(),
        synchronous=not settings.is_asynchronous,
        max_staleness=settings.max_staleness,
        allow_oversubscription=settings.allow_oversubscription,
        fragments_in_flight=settings.fragments_in_flight,
    )


def load_policies(
    run: Run, which: int | Literal["last", "best"] = "last", *, opponent: str | None = None
) -> Assembly:
    """Rebuild a run's policies with the weights of one of its checkpoints.

    ``opponent`` seats another bot than the one of the training.
    """
    settings = run.load_config(TrainingRun)
    if opponent is not None:
        settings = msgspec.structs.replace(settings, opponent=opponent)
    assembly = assemble(settings)
    checkpoint = run.load(which, parts=list(assembly.policies))
    for group, policy in assembly.policies.items():
        load_policy(policy, group, checkpoint.state, checkpoint.arrays)
    return assembly


def load_policy(policy: TorchPolicy, group: str, state: dict[str, Any], arrays: Arrays) -> None:
    """Put a checkpoint's weights of ``group`` into ``policy``."""
    policy.load_arrays(below(f"{group}/policy/", arrays))
    policy.version = int(state["learners"][group]["version"])
    policy.eval()


class _Loop:
    """The state of a training between two iterations, and what an iteration does."""

    def __init__(
        self,
        settings: TrainingRun,
        assembly: Assembly,
        learners: dict[str, Learner],
        gathering: Gathering,
        run: Run,
        recorder: Recorder,
    ) -> None:
        self.settings = settings
        self.assembly = assembly
        self.learners = learners
        self.gathering = gathering
        self.run = run
        self.recorder = recorder
        self.iteration = 0
        self.samples = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.next_evaluation = settings.evaluation.every
        self.next_actor_report = 0.0
        self.recent: dict[str, list[EpisodeRecord]] = {}
        self.num_episodes = 0
        self.num_dropped = 0
        self.best_score = -np.inf
        self.last_metrics: dict[str, float | None] = {}
        self.last_evaluation: EvaluationResult | None = None
        self.evaluated_at = -1

    def run_all(self, *, first: bool) -> TrainingResult:
        """Iterate until the frames are used up, the score is reached or the user interrupts."""
        settings = self.settings
        self.assembly.use_threads(settings.torch_threads)
        reason = ""
        try:
            with interrupts() as interrupted:
                if first:
                    state, arrays = self.state()
                    self.run.rehearse(state, arrays)
                self.gathering.start()
                mailbox = Mailbox(self.run, self.recorder)
                while not reason:
                    if self.gathering.num_frames >= settings.frames:
                        reason = "frames"
                    elif interrupted:
                        reason = interrupted[0]
                    elif settings.max_seconds and self.seconds >= settings.max_seconds:
                        reason = "seconds"
                    else:
                        reason = mailbox.obey(interrupted)[0] or self.iterate()
                finished = reason in ("frames", "score", "seconds")
                self.report_actors()
                # Before the evaluation: should the game fail there, what was learned is kept.
                self.checkpoint()
                if finished and self.last_evaluation_is_old() and self.can_evaluate():
                    self.evaluate()
                    self.checkpoint()  # the same again, now with its score
        finally:
            self.gathering.close()
        self.record("finished" if finished else "stopped", self.ending(finished, reason))
        return TrainingResult(
            run=str(self.run.path),
            frames=self.gathering.num_frames,
            decisions=self.gathering.num_decisions,
            iterations=self.iteration,
            seconds=self.seconds,
            finished=finished,
            reason=reason,
            metrics=self.last_metrics,
            evaluation=None if self.last_evaluation is None else self.last_evaluation.to_json(),
        )

    def iterate(self) -> str:
        """Collect one batch and learn from it; return why the run ends, or an empty text."""
        settings = self.settings
        wall, cpu = time.perf_counter(), time.process_time()
        batches = self.gathering.gather()
        collected = time.perf_counter()
        metrics: dict[str, float] = {}
        progress = min(1.0, self.gathering.num_frames / settings.frames)
        reward = 0.0
        fresh_samples = 0
        for group, trajectory in batches.items():
            self.num_dropped += guard(
                trajectory, game=settings.game, on_bad_data=settings.on_bad_data
            )
            stats = self.learners[group].update(trajectory, progress)
            fresh_samples += trajectory.num_decisions
            reward += _mean_reward(trajectory)
            suffix = f"/{group}" if len(batches) > 1 else ""
            metrics |= {name + suffix: value for name, value in stats.items()}
        self.iteration += 1
        self.samples += fresh_samples
        self.gathering.publish()
        ended = time.perf_counter()
        self.seconds += ended - wall
        spent_cpu = time.process_time() - cpu + self.gathering.take_actor_cpu_seconds()
        self.cpu_seconds += spent_cpu
        metrics |= self.episodes()
        metrics |= self.gathering.metrics()
        metrics |= {
            "reward_per_decision": reward / max(1, len(batches)),
            "collect_seconds": collected - wall,
            "update_seconds": ended - collected,
            "samples_per_second": fresh_samples / (ended - wall),
            "samples_per_cpu_second": fresh_samples / max(spent_cpu, 1e-9),
            "wall_seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "cpu_use": spent_cpu / max((ended - wall) * available_cores(), 1e-9),
            "updates": float(sum(learner.num_updates for learner in self.learners.values())),
            "rejected_data": self.num_dropped + metrics.get("rejected_data", 0.0),
            "current_length": float(self.gathering.longest_running()),
        }
        self.last_metrics = dict(metrics)
        self.record(
            "update",
            {
                "iteration": self.iteration,
                "frames": self.gathering.num_frames,
                "decisions": self.gathering.num_decisions,
                "samples": self.samples,
                "metrics": metrics,
            },
        )
        if self.seconds >= self.next_actor_report:
            self.report_actors()
        every = settings.evaluation.every
        if every and self.gathering.num_frames >= self.next_evaluation and self.can_evaluate():
            self.next_evaluation = (self.gathering.num_frames // every + 1) * every
            result = self.evaluate()
            stop = settings.evaluation.stop_score
            if stop is not None and result.main_score() >= stop:
                return "score"
        if settings.checkpoint_every and self.iteration % settings.checkpoint_every == 0:
            self.checkpoint()
        return ""

    def report_actors(self) -> None:
        """Record what each actor does, where there are any."""
        self.next_actor_report = self.seconds + ACTORS_EVERY
        reports = [msgspec.to_builtins(report) for report in self.gathering.actors()]
        if reports:
            self.record("actors", {"frames": self.gathering.num_frames, "actors": reports})

    def episodes(self) -> dict[str, float]:
        """Record the lives that ended, and return means over the latest ones."""
        by_role: dict[str, list[EpisodeRecord]] = {}
        for episode in self.gathering.take_episodes():
            by_role.setdefault(episode.role, []).append(episode)
        for role, episodes in by_role.items():
            self.num_episodes += len(episodes)
            self.recent[role] = (self.recent.get(role, []) + episodes)[-RECENT_EPISODES:]
            self.record(
                "episode_batch",
                {
                    "frames": self.gathering.num_frames,
                    "episodes": len(episodes),
                    "role": role,
                    "returns": [sum(e.returns) for e in episodes],
                    "lengths": [e.length for e in episodes],
                    "metrics": summarise(episodes),
                },
            )
        metrics = {"episodes": float(self.num_episodes)}
        for role, episodes in self.recent.items():
            suffix = f"/{role}" if len(self.recent) > 1 else ""
            metrics |= {name + suffix: value for name, value in summarise(episodes).items()}
        return metrics

    def evaluate(self) -> EvaluationResult:
        """Measure the present policies on fixed seeds; keep the best."""
        measuring = self.settings.evaluation
        result = self.assembly.evaluate(
            num_episodes=measuring.episodes,
            seed=seeding.derive(self.settings.seed, "evaluation"),
            greedy=measuring.greedy,
        )
        self.last_evaluation = result
        self.record(
            "evaluation",
            {
                "frames": self.gathering.num_frames,
                "episodes": len(result.episodes),
                "score": result.main_score(),
                "seeds": [result.seed],
                "weights": ",".join(
                    policy.fingerprint() for policy in self.assembly.policies.values()
                ),
                "opponent": result.opponent,
                "metrics": result.metrics(),
            },
        )
        self.evaluated_at = self.gathering.num_frames
        return result

    def can_evaluate(self) -> bool:
        """False if that is not wanted, or if episodes do not seem to end: it would take for ever."""
        if self.settings.evaluation.episodes == 0:
            return False
        longest = self.gathering.longest_running()
        if self.num_episodes or longest < ENDLESS:
            return True
        message = (
            f"0 episodes finished, current length {longest:,}: the policy is not evaluated; give the "
            "game a time limit (truncated)"
        )
        self.record("warning", {"message": message})
        return False

    def last_evaluation_is_old(self) -> bool:
        return self.evaluated_at != self.gathering.num_frames

    def checkpoint(self) -> None:
        """Write everything the next iteration depends on."""
        state, arrays = self.state()
        score = None
        if self.last_evaluation is not None and not self.last_evaluation_is_old():
            score = self.last_evaluation.main_score()
        self.run.save(self.iteration, state, arrays, score=score)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the whole state of the training as (JSON data, arrays)."""
        arrays: Arrays = {}
        learners = {}
        for group, learner in self.learners.items():
            learners[group], parts = learner.state()
            arrays |= {f"{group}/{name}": array for name, array in parts.items()}
        data, parts = self.gathering.state()
        arrays |= {f"gathering/{name}": array for name, array in parts.items()}
        return {
            "learners": learners,
            "gathering": data,
            "loop": {
                "iteration": self.iteration,
                "samples": self.samples,
                "seconds": self.seconds,
                "cpu_seconds": self.cpu_seconds,
                "next_evaluation": self.next_evaluation,
                "num_episodes": self.num_episodes,
                "num_dropped": self.num_dropped,
            },
        }, arrays

    def load_state(self, state: dict[str, Any], arrays: Arrays) -> None:
        for group, learner in self.learners.items():
            learner.load_state(state["learners"][group], below(f"{group}/", arrays))
        loop = state["loop"]
        for name, value in loop.items():
            setattr(self, name, value)
        self.gathering.load_state(state["gathering"], below("gathering/", arrays))

    def ending(self, finished: bool, reason: str) -> dict[str, Any]:
        metrics = self.last_metrics
        return {"metrics": metrics} if finished else {"reason": reason, "metrics": metrics}

    def record(self, event: str, fields: dict[str, Any]) -> None:
        self.recorder.record(event, fields)


def _mean_reward(trajectory: Trajectory) -> float:
    if not trajectory.valid.any():
        return 0.0
    return float(trajectory.rewards[trajectory.valid].sum(axis=-1).mean())
