"""What the live page shows of a run, as plain data."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lamarckian.viewer.charts import charts
from lamarckian.viewer.following import Following
from lamarckian.viewer.summary import Measured, Series, Summary, flatten

MAX_POINTS = 400
"""Points of a curve on the live page, which is sent anew as the run goes on."""
MAX_NOTES = 60
_RECENT = 20  # updates over which the present pace is measured


def listing(following: Following) -> dict[str, Any]:
    """Return the line of one run in the list of runs."""
    summary = following.summary
    return {
        "name": following.run.name,
        "status": following.status(),
        "kind": summary.kind,
        "game": summary.game,
        "algorithm": summary.algorithm,
        "began": summary.began,
        "wall": _number(summary.wall),
        "progress": progress(summary),
        "best": _main_number(summary),
        "read": following.is_read,
    }


def overview(following: Following) -> dict[str, Any]:
    """Return everything the overview of one run shows."""
    summary = following.refresh()
    status = following.status()
    tail = following.tail
    return {
        **listing(following),
        "axis": summary.axis,
        "seed": summary.seed,
        "version": summary.version,
        "path": str(following.run.path),
        "command": " ".join(summary.command),
        "reason": summary.reason,
        "totals": dict(summary.totals),
        "episodes": summary.episodes,
        "is_written": following.run.writer_pid is not None,
        "read_share": tail.offset / tail.size if tail.size else 1.0,
        "damaged": tail.damaged,
        "quiet_seconds": _quiet(following) if status == "running" else None,
        "facts": _facts(summary),
        "evolves": bool(following.generations.candidates),
        "groups": charts(summary, most=MAX_POINTS),
        "evaluations": [_evaluation(each) for each in summary.evaluations[-20:]],
        "notes": [
            {"wall": each.wall, "level": each.level, "title": each.title, "text": each.text}
            for each in summary.notes[-MAX_NOTES:]
        ],
        "failures": sum(note.level == "failure" for note in summary.notes),
        "settings": {key: _shown(value) for key, value in flatten(summary.settings).items()},
    }


def progress(summary: Summary) -> dict[str, Any] | None:
    """Return how far the run is and how many seconds are left at its present pace, or None.

    The budget is that of frames for a training and of evaluations for an evolution; where there is none
    (or the run ends by its clock) the seconds count.
    """
    settings, totals = summary.settings, summary.totals
    unit = summary.axis
    done = totals.get(unit)
    total = _number(settings.get(unit))
    limit = _number(settings.get("max_seconds"))
    if not total and limit:
        share = min(1.0, summary.wall / limit)
        rest = max(0.0, limit - summary.wall)
        return {"done": summary.wall, "total": limit, "unit": "s", "share": share, "left": rest}
    if done is None or not total:
        return None
    pace = _pace(summary)
    left = None if not pace else max(0.0, total - done) / pace
    if left is not None and limit:
        left = min(left, max(0.0, limit - summary.wall))
    return {
        "done": done,
        "total": total,
        "unit": unit,
        "share": min(1.0, done / total),
        "left": left,
    }


def _pace(summary: Summary) -> float | None:
    """Units of the run's axis per second over its latest updates."""
    for series in _longest(summary):
        if len(series.x) > 1:
            first = max(0, len(series.x) - 1 - _RECENT)
            seconds = series.wall[-1] - series.wall[first]
            if seconds > 0:
                return (series.x[-1] - series.x[first]) / seconds
    return None


def _longest(summary: Summary) -> Sequence[Series]:
    everything = [series for group in summary.series.values() for series in group]
    return sorted(everything, key=lambda series: -len(series.x))[:1]


def _facts(summary: Summary) -> list[dict[str, Any]]:
    """The numbers of now: name of the metric, value, unit."""
    facts = []
    shown = [
        ("score", "Score"),
        ("win_rate", "Win rate"),
        ("return_mean", "Return"),
        ("best_objective", "Best objective"),
        ("hypervolume", "Hypervolume"),
        ("frames_per_second", "Frames per second"),
        ("samples_per_second", "Samples per second"),
        ("staleness_mean", "Staleness"),
        ("share_idle", "Learner idle"),
        ("worker_failures", "Worker failures"),
    ]
    for name, title in shown:
        value = _last(summary, name)
        if value is not None:
            facts.append({"name": name, "title": title, "value": value})
    cores = _cores_in_use(summary)
    if cores is not None:
        facts.append({"name": "cpu_seconds", "title": "Cores in use", "value": cores})
    return facts


def _cores_in_use(summary: Summary) -> float | None:
    """Processor seconds per second of wall clock over the latest updates."""
    for series in summary.series.get("cpu_seconds", [])[:1]:
        values = [
            (wall, value)
            for wall, value in zip(series.wall[-_RECENT:], series.values[-_RECENT:])
            if value is not None
        ]
        if len(values) > 1 and values[-1][0] > values[0][0]:
            return (values[-1][1] - values[0][1]) / (values[-1][0] - values[0][0])
    return None


def _last(summary: Summary, name: str) -> float | None:
    for measured in reversed(summary.evaluations):
        value = measured.metrics.get(name)
        if value is not None:
            return _number(value)
    for series in summary.series.get(name, []):
        if series.values:
            return _number(series.values[-1])
    return None


def _main_number(summary: Summary) -> dict[str, Any] | None:
    for name in ("score", "win_rate", "return_mean", "hypervolume", "best_objective"):
        value = _last(summary, name)
        if value is not None:
            return {"name": name, "value": value}
    return None


def _quiet(following: Following) -> float | None:
    """Seconds since the journal was last written."""
    try:
        return max(0.0, time.time() - following.tail.file.stat().st_mtime)
    except OSError:
        return None


def _evaluation(measured: Measured) -> dict[str, Any]:
    main = next((n for n in ("score", "return_mean") if n in measured.metrics), None)
    low, high = measured.intervals.get(main or "", (None, None))
    return {
        "x": measured.x,
        "wall": measured.wall,
        "episodes": measured.episodes,
        "opponent": measured.opponent,
        "metric": main,
        "value": None if main is None else _number(measured.metrics[main]),
        "low": _number(low),
        "high": _number(high),
    }


def _shown(value: Any) -> Any:
    if isinstance(value, (list, tuple, Mapping)):
        return str(value)
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
