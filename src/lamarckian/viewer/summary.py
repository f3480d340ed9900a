"""What a run's journal says, gathered once for everything that shows it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.errors import LamarckianError
from lamarckian.runs import Run
from lamarckian.runs.journal import Entry, read, replay
from lamarckian.viewer.intervals import interval

MAX_NOTES = 200
"""So many warnings and failures are listed; more are counted."""


@dataclass(slots=True)
class Series:
    """One curve. ``x`` in the run's axis (frames or evaluations), ``wall`` in seconds."""

    metric: str
    label: str
    x: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class Measured:
    """One evaluation: ``intervals`` holds 95 % intervals by metric, as far as they are known."""

    x: float
    wall: float
    episodes: int
    opponent: str
    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float, float]]


@dataclass(slots=True)
class Note:
    """Something that happened to the run itself, or that somebody wrote down about it.

    ``level``: ``info``, ``note``, ``warning`` or ``failure``.
    """

    wall: float
    level: str
    title: str
    text: str = ""


@dataclass(slots=True)
class Summary:
    """A whole run, ready to be shown. ``entries`` are the events that count."""

    name: str
    path: Path | None = None
    entries: list[Entry] = field(default_factory=list, repr=False)
    kind: str = "train"
    version: str = ""
    seed: int | None = None
    status: str = "running"
    reason: str = ""
    began: float | None = None
    wall: float = 0.0
    axis: str = "frames"
    totals: dict[str, int] = field(default_factory=dict)
    episodes: int = 0
    machine: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    series: dict[str, list[Series]] = field(default_factory=dict)
    evaluations: list[Measured] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    final: dict[str, float | None] = field(default_factory=dict)
    superseded: int = 0

    @property
    def game(self) -> str:
        return str(self.settings.get("game") or self.settings.get("problem") or self.name)

    @property
    def algorithm(self) -> str:
        chosen = self.settings.get("algorithm") or self.settings.get("ec") or ""
        if isinstance(chosen, Mapping):
            chosen = chosen.get("name") or chosen.get("type") or ""
        return str(chosen)


def summarise(path: Path) -> Summary:
    """Read the run at ``path``, running or finished. Raises RunError if there is none."""
    run = Run.open(path)
    damaged: list[int] = []
    written = sum(1 for _ in read(path, damaged))
    entries = replay(path)
    summary = Summary(run.name, path, entries, superseded=written - len(entries))
    if any(entry.event == "generation" for entry in entries):
        summary.axis = "evaluations"
    if entries:
        summary.began = entries[0].time
    builder = Builder(summary)
    for entry in entries:
        builder.take(entry)
    builder.finish()
    if summary.status == "running" and run.writer_pid is None:
        summary.status = "interrupted"
    if damaged:
        lines = ", ".join(map(str, damaged[:5])) + (", …" if len(damaged) > 5 else "")
        summary.notes.append(Note(summary.wall, "warning", "Damaged journal lines", lines))
    if not summary.settings:
        try:
            summary.settings = run.settings()
        except LamarckianError as error:
            summary.notes.append(Note(0.0, "warning", "Settings unreadable", str(error)))
    return summary


class Builder:
    """Walks through the events once, in order; what came so far can be read off in between."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.updates: dict[str, Series] = {}
        self.fallback: dict[str, Series] = {}
        self.x = 0.0
        self.frozen = 0.0  # seconds the run did not run: between a stop and a resume
        self.before = summary.began or 0.0
        self.kinds: Counter[str] = Counter()
        self.uncounted: dict[str, Note] = {}
        self.counts_episodes = False

    def take(self, entry: Entry) -> None:
        """Add one event."""
        fields = entry.fields
        if self.summary.began is None:
            self.summary.began = self.before = entry.time
        if entry.event == "resumed":
            self.frozen += max(0.0, entry.time - self.before)
        self.before = max(self.before, entry.time)
        wall = max(self.summary.wall, entry.time - (self.summary.began or 0.0) - self.frozen)
        recorded = _number(_mapping(fields.get("metrics")).get("wall_seconds"))
        if entry.event == "update" and recorded is not None:
            wall = recorded
        self.summary.wall = wall
        handler = getattr(self, f"_on_{entry.event}", None)
        if handler is not None:
            handler(fields, wall)

    def finish(self) -> None:
        """Put the curves of all events so far into the summary. May be called again and again."""
        summary = self.summary
        summary.series = {}
        present = {series.metric for series in self.updates.values()}
        chosen = list(self.updates.values())
        chosen += [each for each in self.fallback.values() if each.metric not in present]
        for series in chosen:
            summary.series.setdefault(series.metric, []).append(series)
        if not self.counts_episodes:
            counts = [
                v for s in summary.series.get("episodes", []) for v in s.values if v is not None
            ]
            summary.episodes = int(max(counts, default=0))
        extra = {kind: count - MAX_NOTES for kind, count in self.kinds.items() if count > MAX_NOTES}
        for kind, count in extra.items():
            title = f"{count} more like these are not listed"
            if kind in self.uncounted:
                self.uncounted[kind].title = title
            else:
                self.uncounted[kind] = Note(summary.wall, kind, title)
                summary.notes.append(self.uncounted[kind])

    def _add(self, into: dict[str, Series], key: str, x: float, wall: float, value: Any) -> None:
        series = into.get(key)
        if series is None:
            metric, _, label = key.partition("/")
            series = into[key] = Series(metric, label)
        series.x.append(x)
        series.wall.append(wall)
        series.values.append(_number(value))

    def _note(self, wall: float, level: str, title: str, text: Any = "") -> None:
        self.kinds[level] += 1
        if self.kinds[level] <= MAX_NOTES:
            self.summary.notes.append(Note(wall, level, title, str(text or "")))

    def _on_run_started(self, fields: Mapping[str, Any], wall: float) -> None:
        summary = self.summary
        summary.name = str(fields.get("name") or summary.name)
        summary.kind = str(fields.get("kind") or "train")
        summary.version = str(fields.get("version") or "")
        seed = fields.get("seed")
        summary.seed = seed if isinstance(seed, int) else None
        summary.machine = dict(_mapping(fields.get("machine")))
        summary.command = [str(word) for word in fields.get("command") or []]

    def _on_config(self, fields: Mapping[str, Any], wall: float) -> None:
        if self.summary.settings:
            self._note(wall, "info", "Settings changed")
        self.summary.settings = dict(_mapping(fields.get("settings")))

    def _on_update(self, fields: Mapping[str, Any], wall: float) -> None:
        totals = {
            name: int(fields[name])
            for name in ("iteration", "frames", "decisions", "samples")
            if _number(fields.get(name)) is not None
        }
        self.summary.totals |= totals
        if self.summary.axis == "frames":
            self.x = float(totals.get("frames", self.x))
        for key, value in _mapping(fields.get("metrics")).items():
            self._add(self.updates, str(key), self.x, wall, value)

    def _on_episode_batch(self, fields: Mapping[str, Any], wall: float) -> None:
        x = float(fields.get("frames") or self.x)
        self.summary.episodes += int(fields.get("episodes") or 0)
        self.counts_episodes = self.summary.episodes > 0
        role = str(fields.get("role") or "")
        metrics = dict(_mapping(fields.get("metrics")))
        for name, source in (("return_mean", "returns"), ("length_mean", "lengths")):
            numbers = [n for n in map(_number, fields.get(source) or []) if n is not None]
            if name not in metrics and numbers:
                metrics[name] = float(np.mean(numbers))
        for key, value in metrics.items():
            self._add(self.fallback, f"{key}/{role}" if role else str(key), x, wall, value)

    def _on_evaluation(self, fields: Mapping[str, Any], wall: float) -> None:
        episodes = int(fields.get("episodes") or 0)
        metrics = {str(k): _number(v) for k, v in _mapping(fields.get("metrics")).items()}
        # Without a score of its own a game is compared by its return, and the event's score is that.
        kinds = {name.partition("/")[0] for name in metrics}
        main = "return_mean" if "return_mean" in kinds and "score" not in kinds else "score"
        if main not in metrics and fields.get("score") is not None:
            metrics[main] = _number(fields["score"])
        found = {
            name: pair
            for name, value in metrics.items()
            if (pair := interval(metrics, name, value, episodes)) is not None
        }
        self.summary.evaluations.append(
            Measured(
                x=float(fields.get("frames") or 0),
                wall=wall,
                episodes=episodes,
                opponent=str(fields.get("opponent") or ""),
                metrics=metrics,
                intervals=found,
            )
        )

    def _on_generation(self, fields: Mapping[str, Any], wall: float) -> None:
        self.summary.axis = "evaluations"
        self.x = float(fields.get("evaluations") or self.x)
        self.summary.totals["evaluations"] = int(self.x)
        self.summary.totals["generation"] = int(fields.get("generation") or 0)
        for key, value in _mapping(fields.get("metrics")).items():
            self._add(self.updates, str(key), self.x, wall, value)

    def _on_individual_told(self, fields: Mapping[str, Any], wall: float) -> None:
        if fields.get("status", "ok") != "ok":
            title = f"Candidate {fields.get('id', '?')} failed"
            self._note(wall, "failure", title, fields.get("reason"))

    def _on_warning(self, fields: Mapping[str, Any], wall: float) -> None:
        self._note(wall, "warning", str(fields.get("message") or "Warning"))

    def _on_worker_failed(self, fields: Mapping[str, Any], wall: float) -> None:
        text = "\n".join(str(fields[k]) for k in ("reason", "traceback") if fields.get(k))
        self._note(wall, "failure", f"Worker {fields.get('worker', '?')} failed", text)

    def _on_worker_restarted(self, fields: Mapping[str, Any], wall: float) -> None:
        self._note(wall, "info", f"Worker {fields.get('worker', '?')} started again")

    def _on_checkpoint_failed(self, fields: Mapping[str, Any], wall: float) -> None:
        title = f"Checkpoint of step {fields.get('step', '?')} not written"
        self._note(wall, "failure", title, fields.get("reason"))

    def _on_checkpoint_damaged(self, fields: Mapping[str, Any], wall: float) -> None:
        self._note(wall, "warning", "A damaged checkpoint was passed over", fields.get("reason"))

    def _on_journal_repaired(self, fields: Mapping[str, Any], wall: float) -> None:
        cut = f"{fields.get('bytes_removed', '?')} bytes of a torn line were cut off"
        self._note(wall, "warning", "Journal mended", cut)

    def _on_journal_gap(self, fields: Mapping[str, Any], wall: float) -> None:
        title = f"{fields.get('events_lost', '?')} events were lost"
        self._note(wall, "failure", title, fields.get("reason"))

    def _on_resumed(self, fields: Mapping[str, Any], wall: float) -> None:
        self.summary.status = "running"
        self._note(wall, "info", f"Resumed from the checkpoint of step {fields.get('step', 0)}")

    def _on_paused(self, fields: Mapping[str, Any], wall: float) -> None:
        self.summary.status = "paused"
        self._note(wall, "info", "Paused")

    def _on_continued(self, fields: Mapping[str, Any], wall: float) -> None:
        self.summary.status = "running"
        self.frozen += float(fields.get("seconds") or 0.0)
        self._note(wall, "info", "Goes on")

    def _on_noted(self, fields: Mapping[str, Any], wall: float) -> None:
        self._note(wall, "note", "Note", fields.get("text"))

    def _on_stopped(self, fields: Mapping[str, Any], wall: float) -> None:
        self.summary.status = "stopped"
        self.summary.reason = str(fields.get("reason") or "")
        self.summary.final = dict(_mapping(fields.get("metrics")))
        self._note(wall, "info", "Stopped", fields.get("reason"))

    def _on_finished(self, fields: Mapping[str, Any], wall: float) -> None:
        self.summary.status = "finished"
        self.summary.final = dict(_mapping(fields.get("metrics")))


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted keys; lists and empty groups stay whole."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def mean_of(series: Iterable[Series]) -> float | None:
    """Return the mean over all points of all ``series`` that are numbers, or None."""
    numbers = [value for each in series for value in each.values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
