"""The typed events of a run's journal.

A writer is strict: an event must be one of these, with these fields. A reader is lenient: an event
or a field that a later release added is kept as plain data. New events are new classes here; the
fields of an existing event only ever gain members that have a default.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

SCHEMA = 1

# Numbers by name (see lamarckian.metrics); null is "not a number", the journal says which.
Metrics = dict[str, float | None]


class RunStarted(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="run_started"
):
    """First event of every journal."""

    name: str
    version: str
    schema: int = SCHEMA
    kind: str = "train"
    seed: int | None = None
    command: list[str] = []
    machine: dict[str, Any] = {}


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="config"):
    """The resolved settings, once at the start and again when a resume changes them."""

    settings: dict[str, Any]


class Update(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="update"):
    """The learner finished a batch. Counts are totals since the run began."""

    iteration: int
    frames: int = 0
    decisions: int = 0
    samples: int = 0
    metrics: Metrics = {}


class Actors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="actors"):
    """What each actor does; one record each (``ActorReport`` in :mod:`lamarckian.rl.gathering`)."""

    frames: int
    actors: list[dict[str, Any]] = []


class EpisodeBatch(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="episode_batch"
):
    """Episodes that ended since the last such event, by role."""

    frames: int
    episodes: int
    role: str = ""
    returns: list[float | None] = []
    shaped_returns: list[float | None] = []
    lengths: list[int] = []
    outcomes: list[Any] = []
    metrics: Metrics = {}


class Evaluation(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="evaluation"
):
    """A policy was measured; seeds and weights are kept so that it can be measured again."""

    frames: int
    episodes: int
    score: float | None = None
    seeds: list[int] = []
    weights: str = ""
    opponent: str = ""
    metrics: Metrics = {}


class Checkpoint(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="checkpoint"
):
    """A checkpoint is complete on disk."""

    step: int
    score: float | None = None
    bytes: int = 0
    seconds: float = 0.0


class CheckpointFailed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="checkpoint_failed"
):
    """A checkpoint could not be written; training goes on with the previous one."""

    step: int
    reason: str


class CheckpointDamaged(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="checkpoint_damaged"
):
    """A checkpoint could not be read back; an older one was used."""

    step: int
    reason: str


class WorkerFailed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="worker_failed"
):
    """A process failed: its own words."""

    worker: str
    reason: str
    traceback: str = ""
    failures: int = 1


class WorkerRestarted(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="worker_restarted"
):
    """A process was started again after a failure."""

    worker: str
    failures: int = 1


class Warned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="warning"):
    """Something the user should know and that does not stop the run."""

    message: str
    key: str = ""


class JournalRepaired(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="journal_repaired"
):
    """A torn end was cut off when the journal was opened again."""

    bytes_removed: int


class JournalGap(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="journal_gap"
):
    """Events were lost because they could not be written (disk full)."""

    events_lost: int
    reason: str


class Resumed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resumed"):
    """The run went back to a checkpoint: events after ``from_sequence`` count no more."""

    from_sequence: int
    step: int = 0


class Stopped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="stopped"):
    """The run ended before its end and can be resumed."""

    reason: str
    metrics: Metrics = {}


class Finished(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="finished"
):
    """The run reached its end."""

    metrics: Metrics = {}


class Paused(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="paused"):
    """The run stands still because somebody asked it to."""


class Continued(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="continued"
):
    """The run goes on after a pause of so many seconds, which no wall clock of the run counts."""

    seconds: float = 0.0


class Noted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="noted"):
    """Somebody who watched wrote this down. A resume does not take it back."""

    text: str


class IndividualProposed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="individual_proposed"
):
    """The search asked for a candidate to be evaluated.

    ``call`` numbers the calls of ``ask``, ``requested`` is how many were asked for by that call:
    with them the search can be made to propose the same again. ``origin`` names the operators,
    joined by ``+``.
    """

    id: str
    parents: list[str] = []
    origin: str = ""
    generation: int = 0
    call: int = 0
    requested: int = 0


class IndividualTold(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="individual_told"
):
    """A candidate came back; a failed one has no objectives and says why.

    ``decision`` are its parts without network weights, as they are after the evaluation;
    ``weights`` is the hash of the blob with the weights; ``written`` names the parts the
    evaluation wrote back. ``metrics`` are the statistics of the outcome.
    """

    id: str
    objectives: list[float | None] = []
    status: str = "ok"
    reason: str = ""
    seconds: float = 0.0
    weights: str = ""
    metrics: Metrics = {}
    constraints: list[float | None] = []
    descriptors: list[float | None] = []
    decision: dict[str, Any] = {}
    written: list[str] = []
    attempts: int = 1


class GroupTold(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="group_told"
):
    """Candidates evaluated as one computation came back; one ``individual_told`` each follows.

    It is one event so that a kill cannot part them: ``told`` holds the fields of all.
    """

    told: list[dict[str, Any]]


class BatchTold(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="batch_told"
):
    """A generation of a numeric problem was evaluated as arrays: ids ``first`` and ``count`` - 1 more.

    Rows are in the order of ids; null is "not a number" and means a failed evaluation.
    """

    first: int
    count: int
    objectives: list[list[float | None]]
    constraints: list[list[float | None]] = []
    descriptors: list[list[float | None]] = []
    seconds: float = 0.0


class Generation(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="generation"
):
    """Selection took place."""

    generation: int
    population: list[str] = []
    front: list[str] = []
    evaluations: int = 0
    metrics: Metrics = {}


Event = (
    RunStarted
    | Config
    | Update
    | Actors
    | EpisodeBatch
    | Evaluation
    | Checkpoint
    | CheckpointFailed
    | CheckpointDamaged
    | WorkerFailed
    | WorkerRestarted
    | Warned
    | JournalRepaired
    | JournalGap
    | Resumed
    | Stopped
    | Finished
    | Paused
    | Continued
    | Noted
    | IndividualProposed
    | IndividualTold
    | GroupTold
    | BatchTold
    | Generation
)

EVENTS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(Event)
}

# After these a power cut must not take the event back: something else on disk relies on it. The others
# are safe from a killed process, not from a power cut; an evolution syncs its own every second.
SYNCED = frozenset(
    {
        "run_started",
        "config",
        "checkpoint",
        "resumed",
        "stopped",
        "finished",
        "noted",
    }
)

# A resume goes back behind what the run did, not behind what people said about it.
LASTING = frozenset({"noted"})
