"""Single figures: one chart by the name of its metric, as SVG or as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from lamarckian.errors import UnknownName, nearest
from lamarckian.viewer.charts import chart
from lamarckian.viewer.summary import Summary, summarise

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 48, 44
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def csv_figure(path: Path, metric: str) -> str:
    """Return every recorded value of ``metric`` as CSV; what is not finite is an empty cell.

    Columns: series, frames (or evaluations), wall_seconds, value, low, high. Evaluations are the series
    ``evaluation`` and have the 95 % interval. Raises UnknownName if the run has no such metric.
    """
    summary = summarise(path)
    _data(summary, metric)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["series", summary.axis, "wall_seconds", "value", "low", "high"])
    for series in summary.series.get(metric, []):
        for x, wall, value in zip(series.x, series.wall, series.values, strict=True):
            writer.writerow([_cell(series.label or metric), x, wall, value, None, None])
    for each in summary.evaluations:
        if each.metrics.get(metric) is not None:
            low, high = each.intervals.get(metric, (None, None))
            writer.writerow(["evaluation", each.x, each.wall, each.metrics[metric], low, high])
    return text.getvalue()


def svg_figure(path: Path, metric: str) -> str:
    """Return the chart of ``metric`` as a stand-alone SVG picture of 720 by 360.

    Raises UnknownName if the run has no such metric.
    """
    summary = summarise(path)
    data = _data(summary, metric)
    lines, points = data["lines"], data["points"]
    xs = [x for line in lines for x in line["x"]] + [point["x"] for point in points]
    ys = [y for line in lines for y in line["y"] if y is not None]
    ys += [point[key] for point in points for key in ("y", "low", "high") if point[key] is not None]
    across = _Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    up = _Scale(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    parts = list(_axes(data, summary, across, up))
    for index, line in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        shape = _path(line, across, up)
        parts.append(f'<path d="{shape}" fill="none" stroke="{colour}" stroke-width="1.75"/>')
        if line["label"] and len(lines) > 1:
            place = f'x="{LEFT + 8 + 110 * index}" y="{TOP + 4}" fill="{colour}"'
            parts.append(f"<text {place}>{escape(str(line['label']))}</text>")
    for point in points:
        x, y = across(point["x"]), up(point["y"])
        if point["low"] is not None and point["high"] is not None:
            ends = f'y1="{up(point["low"]):.1f}" y2="{up(point["high"]):.1f}"'
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="{COLOURS[1]}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{COLOURS[1]}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="12" role="img">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from ``low`` to ``high``, at most about ``most``."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """Return a number as an axis shows it: ``1.5M``, ``20k``, ``0.25``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


class _Scale:
    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        if high == low:
            low, high = low - 0.5, high + 0.5
        self.low, self.high, self.start, self.stop = low, high, start, stop

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def _data(summary: Summary, metric: str) -> dict[str, Any]:
    data = chart(summary, metric)
    if data is None:
        known = sorted({*summary.series, *(k for e in summary.evaluations for k in e.metrics)})
        raise UnknownName(
            f"{summary.name}: no values of a metric '{metric}' in this run"
            f"{nearest(metric, known)}; it has {', '.join(known) or 'none yet'}"
        )
    return data


def _axes(data: dict[str, Any], summary: Summary, across: _Scale, up: _Scale) -> Iterator[str]:
    unit = f", {data['unit']}" if data["unit"] else ""
    title = escape(f"{data['title']}{unit}")
    yield f"<title>{escape(summary.name)}: {title}</title>"
    yield f'<text x="{LEFT}" y="24" font-size="15" font-weight="600" fill="#1d2327">{title}</text>'
    for value in ticks(up.low, up.high):
        y = up(value)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e1dc"/>'
        yield (
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#5d666e">'
            f"{short(value)}</text>"
        )
    for value in ticks(across.low, across.high):
        yield (
            f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" '
            f'fill="#5d666e">{short(value)}</text>'
        )
    yield (
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end" fill="#5d666e">'
        f"{summary.axis}</text>"
    )


def _path(line: dict[str, Any], across: _Scale, up: _Scale) -> str:
    shape, pen = [], "M"
    for x, y in zip(line["x"], line["y"], strict=True):
        if y is None:
            pen = "M"
            continue
        shape.append(f"{pen}{across(x):.1f},{up(y):.1f}")
        pen = "L"
    return "".join(shape)


def _cell(text: str) -> str:
    # A spreadsheet takes a cell that begins like this for a formula.
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text
