"""A run on the console: a live panel on a terminal, a line now and then elsewhere.

Nothing here is a result: it goes to stderr. Quiet says only how it ended; normal redraws a panel on
a terminal and otherwise prints at most one line every ten seconds; verbose prints every update.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from lamarckian.metrics import METRICS, JsonValue

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

QUIET, NORMAL, VERBOSE = 0, 1, 2
LINE_SECONDS = 10.0
REDRAW_SECONDS = 0.25
SHOWN_ACTORS = 8

# What the panel shows under each head, where it is known.
_PANEL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("play", ("return_mean", "win_rate", "score", "length_mean", "episodes")),
    ("speed", ("samples_per_second", "samples_per_cpu_second", "cpu_use", "share_idle")),
    (
        "learning",
        (
            "policy_loss", "value_loss", "entropy", "approximate_kl", "clip_fraction",
            "explained_variance", "gradient_norm", "learning_rate",
        ),
    ),
    (
        "data",
        (
            "staleness_mean", "staleness_p95", "staleness_max", "staleness_broadcast",
            "staleness_hold", "staleness_gather", "dropped_samples", "queue_depth",
            "bytes_per_second",
        ),
    ),
    (
        "evolution",
        (
            "generation", "evaluations", "failed_evaluations", "front_size", "hypervolume",
            "best_objective", "median_objective", "evaluations_per_second",
        ),
    ),
    (
        "trouble",
        (
            "skipped_updates", "rows_without_legal_action", "rejected_data", "late_decisions",
            "offline_players", "worker_failures", "lost_fragments",
        ),
    ),
)  # fmt: skip
_NOTICES = {
    "worker_failed": "{worker} failed: {reason}",
    "worker_restarted": "{worker} started again",
    "warning": "{message}",
    "checkpoint_failed": "{reason}",
    "checkpoint_damaged": "{reason}",
    "paused": "paused by request",
    "continued": "goes on after a pause of {seconds:.0f} s",
    "noted": "note: {text}",
}


@dataclass(slots=True)
class Status:
    """What is known of a run from the events so far. Times are seconds of a monotonic clock."""

    target_frames: int | None
    begun: float
    first_frames: int = 0
    unit: str = "frames"
    frames: int = 0
    iteration: int = 0
    episodes: int = 0
    score: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)
    actors: list[Mapping[str, Any]] = field(default_factory=list)

    def take(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Learn from one event."""
        frames = fields.get("frames")
        if isinstance(frames, int):
            self.frames = frames
        if event == "update":
            iteration = fields.get("iteration")
            self.iteration = iteration if isinstance(iteration, int) else self.iteration
        elif event == "episode_batch":
            episodes = fields.get("episodes")
            self.episodes += episodes if isinstance(episodes, int) else 0
            return  # the means of an update cover more episodes than one batch of them
        elif event == "individual_told":
            self.metrics["evaluations"] = self.metrics.get("evaluations", 0.0) + 1
            if self.unit == "evaluations":
                self.frames = int(self.metrics["evaluations"])
            if fields.get("status") != "ok":
                failed = self.metrics.get("failed_evaluations", 0.0)
                self.metrics["failed_evaluations"] = failed + 1
            return  # the numbers of one candidate say nothing of the search
        elif event == "generation":
            front = fields.get("front")
            self.metrics["front_size"] = float(len(front)) if isinstance(front, list) else 0.0
            for name in ("generation", "evaluations"):
                value = fields.get(name)
                if isinstance(value, int):
                    self.metrics[name] = float(value)
                    if name == self.unit:
                        self.frames = value
        elif event == "actors":
            found = fields.get("actors")
            self.actors = (
                [a for a in found if isinstance(a, Mapping)] if isinstance(found, list) else []
            )
            return
        elif event == "evaluation":
            score = fields.get("score")
            self.score = float(score) if isinstance(score, (int, float)) else self.score
            return
        metrics = fields.get("metrics")
        if isinstance(metrics, Mapping):
            for name, value in metrics.items():
                if isinstance(value, (int, float)) and math.isfinite(value):
                    self.metrics[name] = float(value)
                    self.not_finite.discard(name)
                elif value is not None:
                    self.not_finite.add(name)
        self.episodes = max(self.episodes, int(self.metrics.get("episodes", 0)))

    def frames_per_second(self, now: float) -> float:
        """Frames of this process per second since it began; 0 before there are any."""
        return max(0, self.frames - self.first_frames) / max(now - self.begun, 1e-9)

    def seconds_left(self, now: float) -> float | None:
        """Estimate of the time to the target; None if there is no telling."""
        speed = self.frames_per_second(now)
        if self.target_frames is None or speed <= 0:
            return None
        return max(0.0, (self.target_frames - self.frames) / speed)

    def of(self, name: str) -> list[tuple[str, float]]:
        """Return ``(label, value)`` of a metric, one for each role that has it."""
        return [
            (full, value)
            for full, value in self.metrics.items()
            if full == name or full.startswith(f"{name}/")
        ]


def line(status: Status, now: float) -> str:
    """Return the status as one line."""
    parts = []
    if status.target_frames:
        share = min(1.0, status.frames / status.target_frames)
        parts.append(f"{share:4.0%}  {status.frames:,}/{status.target_frames:,} {status.unit}")
    elif status.frames:
        parts.append(f"{status.frames:,} {status.unit}")
    parts.append(duration(now - status.begun))
    parts += play(status)
    speed = status.frames_per_second(now)
    if speed > 0:
        parts.append(f"{speed:,.{0 if speed >= 10 else 2}f} {status.unit}/s")
    parts += [f"staleness {value:.1f}" for _, value in status.of("staleness_mean") if value > 0]
    parts += [f"{name} not finite" for name in sorted(status.not_finite)]
    left = status.seconds_left(now)
    if left is not None and status.target_frames and status.frames < status.target_frames:
        parts.append(f"ETA {duration(left)}")
    return "  ".join(parts)


def play(status: Status) -> list[str]:
    """Return what is known of the play or the search; never a score that does not exist yet."""
    if "evaluations" in status.metrics:
        names = ["generation", "failed_evaluations", "hypervolume"]  # what has none is left out
        one = "best_objective" in status.metrics and "hypervolume" not in status.metrics
        names += ["best_objective" if one else "front_size"]
        if status.unit != "evaluations":
            names.insert(1, "evaluations")  # the line begins with them otherwise
        found = [(name, status.metrics.get(name)) for name in names]
        shown = [f"{name.replace('_', ' ')} {value:,.4g}" for name, value in found if value]
        idle = status.metrics.get("share_idle", 0.0)
        return [*shown, f"idle {idle:.0%}"] if idle >= 0.005 else shown
    if status.episodes == 0:
        text = "0 episodes finished"
        if status.of("current_length"):
            text += f", current length {status.of('current_length')[0][1]:,.0f}"
        if status.of("reward_per_decision"):
            text += f", reward per decision {status.of('reward_per_decision')[0][1]:.3g}"
        return [text]
    parts = []
    for name, label in (
        ("return_mean", "return"),
        ("win_rate", "win rate"),
        ("length_mean", "length"),
    ):
        for full, value in status.of(name):
            role = full.partition("/")[2]
            parts.append(f"{label}{f' {role}' if role else ''} {value:.4g}")
    if status.score is not None:
        parts.append(f"score {status.score:.4g}")
    return parts


def actor_lines(status: Status) -> list[str]:
    """Return what single actors do, those in trouble first; at most eight of them."""
    wrong = ("lost_fragments", "dropped_samples", "restarts")
    ordered = sorted(status.actors, key=lambda a: -sum(a.get(name, 0) for name in wrong))
    lines = []
    for actor in ordered[:SHOWN_ACTORS]:
        parts = [
            f"{actor.get('actor', '?')}: cpu {actor.get('cpu_use', 0.0):.0%}",
            f"queue {actor.get('queue_depth', 0)}",
            f"{actor.get('bytes', 0) / 1e6:,.1f} MB",
        ]
        parts += [f"{name.replace('_', ' ')} {actor[name]:,}" for name in wrong if actor.get(name)]
        if not actor.get("running", True):
            parts.append("not running")
        lines.append("  ".join(parts))
    if len(ordered) > SHOWN_ACTORS:
        lines.append(f"and {len(ordered) - SHOWN_ACTORS} more")
    return lines


def duration(seconds: float) -> str:
    """Return ``m:ss`` or ``h:mm:ss``."""
    whole = int(max(0.0, seconds))
    hours, rest = divmod(whole, 3600)
    clock = f"{rest // 60}:{rest % 60:02d}"
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else clock


class ConsoleRecorder:
    """Shows a run while it goes on (see the module for what is shown when).

    ``first_frames`` is where a resumed run begins, ``target_frames`` where it ends; with ``unit``
    ``evaluations`` both count those. ``live`` None means: if ``stream`` is a terminal. ``clock`` is
    a monotonic clock in seconds.
    """

    def __init__(
        self,
        *,
        title: str = "",
        target_frames: int | None = None,
        first_frames: int = 0,
        unit: str = "frames",
        verbosity: int = NORMAL,
        stream: TextIO | None = None,
        live: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live_wanted = self._stream.isatty() if live is None else live
        self._verbosity = verbosity
        self._title = title
        self._clock = clock
        self._status = Status(target_frames, clock(), first_frames, unit)
        if unit == "evaluations" and first_frames:
            self._status.metrics["evaluations"] = float(first_frames)
        self._next_line = -math.inf
        self._notices: dict[str, int] = {}
        self._live: Live | None = None
        self._guard = threading.Lock()
        self._ended = False

    def record(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        """Take one event and show what is due. Never raises because the terminal went away."""
        with self._guard:
            try:
                self._record(event, fields)
            except (OSError, ValueError):  # closed stream or pipe
                self._verbosity = QUIET

    def _record(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        self._status.take(event, fields)
        if event in ("finished", "stopped"):
            self._end(event, fields)
            return
        if self._verbosity == QUIET or event == "episode_batch":
            return  # the update that follows a batch of episodes has their means
        if event in _NOTICES:
            text = _NOTICES[event].format_map(_Blank(fields))
            self._notices[text] = self._notices.get(text, 0) + 1
        now = self._clock()
        if self._live_wanted:
            self._draw(now)
        elif now >= self._next_line or (self._verbosity == VERBOSE and event == "update"):
            self._next_line = now + LINE_SECONDS
            self._say("  ".join([line(self._status, now), *self._take_notices()]))

    def close(self) -> None:
        """Leave the terminal as it was. Idempotent."""
        with self._guard:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _take_notices(self) -> Iterable[str]:
        taken = [
            f"[{text}{f' (x{count})' if count > 1 else ''}]"
            for text, count in self._notices.items()
        ]
        self._notices.clear()
        return taken

    def _draw(self, now: float) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, force_terminal=True)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        for notice in self._take_notices():
            self._live.console.print(notice, markup=False, highlight=False)
        if now >= self._next_line:
            self._next_line = now + REDRAW_SECONDS
            self._live.update(panel(self._status, self._title, now), refresh=True)

    def _end(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        if self._ended:
            return
        self._ended = True
        if self._live is not None:
            self._live.stop()
            self._live = None
        now = self._clock()
        reason = fields.get("reason")
        why = f" ({reason})" if reason else ""
        done = f"{self._status.frames:,} {self._status.unit}"
        parts = [
            f"{event}{why}: {done} in {duration(now - self._status.begun)}",
            # A run resumed at its end has no update of its own to tell of.
            *(play(self._status) if self._status.metrics else ()),
            *self._take_notices(),
        ]
        self._say("  ".join(parts))

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class _Blank(dict[str, Any]):
    """Fields of a notice; what is missing is left blank."""

    def __missing__(self, key: str) -> str:
        return ""


def panel(status: Status, title: str, now: float) -> RenderableType:
    """Return the live panel as something rich can draw."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold")
    rows.add_column()
    for head, names in _PANEL:
        cells = []
        for name in names:
            if METRICS[name].bad_when == "> 0" and not any(value for _, value in status.of(name)):
                continue
            for full, value in status.of(name):
                cells.append(f"{full.replace('_', ' ')} {value:,.4g}")
        if cells:
            rows.add_row(head, Text("   ".join(cells)))
    if status.actors:
        rows.add_row("actors", Text("\n".join(actor_lines(status))))
    if status.not_finite:
        rows.add_row("not finite", Text(", ".join(sorted(status.not_finite)), style="red"))
    items: list[Any] = []
    if status.target_frames:
        items.append(ProgressBar(total=status.target_frames, completed=status.frames, width=60))
    items += [Text(line(status, now)), rows]
    return Panel(Group(*items), title=Text(title), title_align="left")
