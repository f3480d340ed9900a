"""What is measured and what it means; and the contract of whoever writes it down.

:data:`METRICS` is the one list of names. A number that is shown anywhere (console, journal, report,
TensorBoard) is called as it is called here, so that one word never stands for two quantities: in
particular *frames* (ticks the environments were stepped), *decisions* (choices of players) and
*samples* (decisions the learner trained on) are three different counts.

Whoever produces numbers is handed a :class:`Recorder` and never opens a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, Union, runtime_checkable

JsonValue: TypeAlias = Union[  # noqa: UP007 - the alias is recursive, so it is spelled as a Union
    bool, int, float, str, Sequence["JsonValue"], Mapping[str, "JsonValue"], None
]


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity: its name, what it is, its unit, and what a bad value looks like."""

    name: str
    what: str
    unit: str
    bad_when: str = ""


@runtime_checkable
class Recorder(Protocol):
    """Takes events as they happen. May be called from any thread of its process."""

    def record(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Take one event; never raises because a disk is full or a network is down."""

    def close(self) -> None:
        """Write out what is held back. Idempotent."""


def _catalogue(rows: Iterable[tuple[str, str, str, str]]) -> dict[str, Metric]:
    return {name: Metric(name, what, unit, bad) for name, what, unit, bad in rows}


METRICS: dict[str, Metric] = _catalogue(
    [
        # Counts. "frames" counts world time, "decisions" counts choices, "samples" what was learnt
        # from; with a frame skip of 4 there are 4 frames to a decision.
        ("frames", "environment ticks stepped, skipped frames included", "frames", ""),
        ("decisions", "choices made by training and sparring players", "decisions", ""),
        ("samples", "decisions the learner has trained on, each counted once", "samples", ""),
        ("updates", "optimiser steps taken", "updates", ""),
        ("iterations", "batches the learner has finished", "iterations", ""),
        ("episodes", "episodes of training players that ended", "episodes", "0 for long"),
        ("policy_version", "version of the newest published weights", "versions", ""),
        # Play. Returns are of the game's own reward unless they are called shaped.
        ("return_mean", "mean return of the last episodes, raw reward", "reward", ""),
        ("return_min", "smallest return of the last episodes, raw reward", "reward", ""),
        ("return_max", "largest return of the last episodes, raw reward", "reward", ""),
        ("return_std", "standard deviation of the last returns, raw reward", "reward", ""),
        ("shaped_return_mean", "mean return of the last episodes as trained on", "reward", ""),
        ("reward_per_decision", "mean raw reward per decision of this batch", "reward", ""),
        ("length_mean", "mean length of the last episodes", "decisions", ""),
        ("current_length", "longest episode still running", "decisions", "grows for ever"),
        ("win_rate", "share of decided matches won (draws count half)", "share", ""),
        ("score", "the game's own normalised score, 0 to 1", "share", ""),
        (
            "statistic",
            "mean over lives of a number that the game reports of each, or of a behaviour's share",
            "",
            "",
        ),
        ("score_std", "standard deviation of the last scores", "share", ""),
        # Speed.
        ("frames_per_second", "environment ticks per second of wall clock", "1/s", "falls"),
        ("decisions_per_second", "decisions per second of wall clock", "1/s", "falls"),
        ("samples_per_second", "trained samples per second of wall clock", "1/s", "falls"),
        (
            "decisions_per_cpu_second",
            "decisions per second of processor time, all processes",
            "1/s",
            "falls",
        ),
        ("samples_per_cpu_second", "trained samples per second of processor time", "1/s", "falls"),
        ("wall_seconds", "wall clock since the run began, pauses left out", "s", ""),
        ("cpu_seconds", "processor time of all processes of the run", "s", ""),
        ("share_environment", "share of actor time spent in the environment", "share", ""),
        ("share_inference", "share of actor time spent in the policy", "share", ""),
        ("share_transport", "share of actor time spent on moving data", "share", "> 0.2"),
        ("share_learner", "share of wall clock the learner spent training", "share", ""),
        ("share_idle", "share of wall clock the learner waited for data", "share", "> 0.3"),
        ("update_seconds", "wall clock of one learner batch", "s", "rises"),
        ("collect_seconds", "wall clock to collect one batch", "s", "rises"),
        # Staleness.
        ("staleness_mean", "learner version minus sample version, mean", "versions", "> 4"),
        ("staleness_p95", "learner version minus sample version, 95th percentile", "versions", ""),
        ("staleness_max", "learner version minus sample version, largest", "versions", ""),
        ("staleness_broadcast", "part of it: the actor's weights were behind", "versions", ""),
        ("staleness_hold", "part of it: decisions lay in unfinished fragments", "versions", ""),
        ("staleness_gather", "part of it: credit, transport, queue, batch", "versions", "> 2"),
        ("dropped_samples", "samples thrown away because they were too old", "samples", "grows"),
        # Learning.
        ("policy_loss", "surrogate loss of the policy", "nats", "drifts away from 0"),
        ("value_loss", "squared error of the critic", "reward^2", "grows"),
        ("total_loss", "the scalar that was differentiated", "", "not finite"),
        ("entropy", "mean entropy of the action distribution", "nats", "near 0 early"),
        ("approximate_kl", "KL of old and new policy, estimated on samples", "nats", "> 0.05"),
        ("kl_coefficient", "weight of the adaptive KL penalty", "", "at its cap"),
        ("clip_fraction", "share of samples whose ratio was clipped", "share", "> 0.3"),
        ("ratio_max", "largest importance ratio of the batch", "", "> 10"),
        ("explained_variance", "1 - Var(target - value) / Var(target)", "share", "< 0"),
        ("advantage_mean", "mean advantage before normalisation", "reward", ""),
        ("advantage_std", "standard deviation of advantages before normalisation", "reward", ""),
        ("value_mean", "mean value estimate", "reward", ""),
        (
            "value_deviation",
            "standard deviation of value estimates across team-mates, within a match and tick",
            "reward",
            "",
        ),
        ("q_mean", "mean action value of the actions taken", "reward", "grows without bound"),
        ("temporal_difference_error", "mean absolute one-step error", "reward", "grows"),
        ("gradient_norm", "norm of the gradient before clipping", "", "not finite"),
        ("weight_norm", "norm of all trained weights", "", "grows without bound"),
        ("learning_rate", "step size in use", "", ""),
        ("exploration_rate", "probability of a random action", "share", ""),
        ("temperature", "weight of the entropy in the reward (alpha)", "", "grows without bound"),
        ("log_std_mean", "mean log standard deviation of continuous actions", "", "at a bound"),
        (
            "skipped_updates",
            "updates not applied because of non-finite gradients",
            "updates",
            "> 0",
        ),
        ("rows_without_legal_action", "decisions whose mask allowed nothing", "decisions", "> 0"),
        ("rejected_data", "episodes refused because of NaN or a wrong shape", "episodes", "> 0"),
        ("replay_fill", "share of the replay memory in use", "share", ""),
        # Real time.
        ("lateness_mean", "how late decisions came, mean", "ms", "> one tick"),
        ("lateness_p99", "how late decisions came, 99th percentile", "ms", "> one tick"),
        ("late_decisions", "decisions that missed their tick", "decisions", "grows"),
        ("offline_players", "players that stopped answering", "players", "> 0"),
        ("batch_fill", "share of a batched policy call that was in use", "share", "< 0.2"),
        # Machine.
        ("rss_bytes", "resident memory of all processes of the run", "bytes", "rises steadily"),
        ("cpu_use", "processor time of the run per second and core of this host", "share", "< 0.9"),
        (
            "queue_depth",
            "fragments sent by actors and not yet read",
            "fragments",
            "0 or at its cap",
        ),
        ("bytes_per_second", "bytes of experience from actors per second", "bytes/s", ""),
        ("lost_fragments", "fragments that were sent and never arrived", "fragments", "> 0"),
        ("worker_failures", "actors that failed and were started again", "failures", "> 0"),
        ("checkpoint_seconds", "time taken by the last checkpoint", "s", ""),
        ("checkpoint_bytes", "size of the last checkpoint", "bytes", ""),
        # Evolution.
        ("generation", "generations selected", "generations", ""),
        ("evaluations", "candidates evaluated", "evaluations", ""),
        ("evaluations_per_second", "candidates evaluated per second", "1/s", "falls"),
        ("failed_evaluations", "candidates that failed or gave NaN", "evaluations", "> 10 %"),
        ("hypervolume", "volume dominated by the front, to the stated reference", "", "falls"),
        ("front_size", "individuals nobody dominates", "individuals", ""),
        ("best_objective", "best value of the first objective", "", ""),
        ("median_objective", "median of the first objective over the population", "", ""),
        ("diversity", "mean distance between individuals in decision space", "", "near 0"),
    ]
)


def unknown_metrics(names: Iterable[str]) -> list[str]:
    """Return the names that no metric has. For tests: at run time a strange name is only shown.

    A name may carry a role, head or objective after a slash: ``return_mean/red``.
    """
    return sorted(name for name in names if name.partition("/")[0] not in METRICS)
