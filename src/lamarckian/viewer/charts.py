"""Which curves are drawn, under which title, and what the reader is told about each."""

from __future__ import annotations

import re
from typing import Any

from lamarckian.metrics import METRICS, Metric
from lamarckian.viewer.sampling import significant, thin
from lamarckian.viewer.summary import Measured, Series, Summary

MAX_POINTS = 1000
_MINOR_POINTS = 300

GROUPS: list[tuple[str, str, str, list[str]]] = [
    (
        "play",
        "How well it plays",
        "Training games, as they were played, and evaluations on games of their own.",
        ["score", "win_rate", "return_mean", "length_mean"],
    ),
    (
        "evolution",
        "How the population evolves",
        "",
        ["hypervolume", "best_objective", "median_objective", "front_size", "diversity"],
    ),
    (
        "learning",
        "How it learns",
        "What the learner reports of its own health.",
        [
            "entropy",
            "value_loss",
            "explained_variance",
            "approximate_kl",
            "clip_fraction",
            "gradient_norm",
        ],
    ),
    (
        "speed",
        "How fast it runs",
        "",
        [
            "samples_per_second",
            "samples_per_cpu_second",
            "frames_per_second",
            "staleness_mean",
            "staleness_p95",
        ],
    ),
]
TITLES = {
    "return_mean": "Return",
    "length_mean": "Episode length",
    "approximate_kl": "KL divergence",
    "samples_per_second": "Throughput",
    "samples_per_cpu_second": "Throughput per processor second",
    "staleness_mean": "Staleness, mean",
    "staleness_p95": "Staleness, 95th percentile",
}
# Never shown as curves: they only grow, and the headline has their last value.
_COUNTERS = {
    "frames",
    "decisions",
    "samples",
    "updates",
    "iterations",
    "episodes",
    "policy_version",
    "wall_seconds",
    "cpu_seconds",
    "generation",
    "evaluations",
}
_LIMIT = re.compile(r"([<>])\s*(-?\d+(?:\.\d+)?)(?!\s*%)\Z")


def title_of(name: str) -> str:
    """Return what the metric ``name`` is called above a chart."""
    return TITLES.get(name) or name.replace("_", " ").capitalize()


def describe(name: str) -> Metric:
    """Return the catalogue's entry, or an empty one for a metric that it does not know."""
    return METRICS.get(name) or Metric(name, "", "")


def limit_of(metric: Metric) -> tuple[str, float] | None:
    """Return ``("<" or ">", bound)`` if what is bad of this metric is a plain bound."""
    found = _LIMIT.match(metric.bad_when)
    return (found[1], float(found[2])) if found else None


def chart(summary: Summary, name: str, most: int = MAX_POINTS) -> dict[str, Any] | None:
    """Return the chart of the metric ``name`` as JSON data, or None if nothing was recorded.

    Each line has at most ``most`` points and keeps its extremes.
    """
    lines = [_line(series, most) for series in summary.series.get(name, [])]
    points = [
        point
        for index in thin([each.metrics.get(name) for each in summary.evaluations], most)
        if (point := _point(summary.evaluations[int(index)], name))
    ]
    lines = [line for line in lines if any(value is not None for value in line["y"])]
    broken = sum(
        value is None for series in summary.series.get(name, []) for value in series.values
    )
    if not lines and not points:
        return None
    metric = describe(name)
    return {
        "name": name,
        "title": title_of(name),
        "what": metric.what,
        "unit": metric.unit,
        "bad": metric.bad_when,
        "limit": limit_of(metric),
        "lines": lines,
        "points": points,
        "gaps": broken,
    }


def charts(summary: Summary, *, most: int = MAX_POINTS) -> list[dict[str, Any]]:
    """Return the groups of charts of a run; empty groups and empty charts are left out.

    Each line has at most ``most`` points; those of lesser metrics have at most 300.
    """
    groups = []
    taken: set[str] = set()
    for key, title, note, names in GROUPS:
        taken |= set(names)
        found = [each for name in names if (each := chart(summary, name, most))]
        if found:
            groups.append({"key": key, "title": title, "note": note, "charts": found})
    rest = sorted(name for name in summary.series if name not in taken | _COUNTERS)
    others = [each for name in rest if (each := chart(summary, name, min(most, _MINOR_POINTS)))]
    if others:
        groups.append({"key": "more", "title": "Everything else", "note": "", "charts": others})
    return groups


def _line(series: Series, most: int) -> dict[str, Any]:
    kept = [int(index) for index in thin(series.values, most)]
    return {
        "label": series.label,
        "x": [significant(series.x[index], 9) for index in kept],
        "t": [significant(round(series.wall[index], 2), 9) for index in kept],
        "y": [significant(series.values[index]) for index in kept],
    }


def _point(measured: Measured, name: str) -> dict[str, Any] | None:
    value = significant(measured.metrics.get(name))
    if value is None:
        return None
    low, high = measured.intervals.get(name, (None, None))
    return {
        "x": significant(measured.x, 9),
        "t": significant(round(measured.wall, 2), 9),
        "y": value,
        "low": significant(low),
        "high": significant(high),
    }
