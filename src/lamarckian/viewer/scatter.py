"""A cloud of points as inline SVG, in the colours of the page: what section authors draw with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from lamarckian.viewer.figures import short, ticks

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 18, 46


@dataclass(frozen=True, slots=True)
class Dot:
    """One point. ``colour`` is 0 to 5 of the page's palette, or -1 for the background; ``label`` is
    read on hovering; ``name`` is written beside it.
    """

    x: float
    y: float
    colour: int = 0
    label: str = ""
    name: str = ""


def scatter(
    dots: Sequence[Dot],
    x_title: str,
    y_title: str,
    *,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    what: str = "",
) -> str:
    """Return an SVG of ``dots``; later ones lie above earlier ones. ``what`` is read to the blind."""
    left, right = x_range or _range([dot.x for dot in dots])
    low, high = y_range or _range([dot.y for dot in dots])

    def across(x: float) -> float:
        return LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    parts = []
    for value in ticks(low, high):
        y = up(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
        )
    for value in ticks(left, right):
        parts.append(
            f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{short(value)}</text>"
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f'{escape(x_title)}</text><text x="14" y="{(TOP + HEIGHT - BOTTOM) / 2:.0f}" '
        f'text-anchor="middle" transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2:.0f})">'
        f"{escape(y_title)}</text>"
    )
    for dot in dots:
        style = "fill:var(--rule)" if dot.colour < 0 else f"fill:var(--c{dot.colour})"
        radius = 3 if dot.colour < 0 else 5
        title = f"<title>{escape(dot.label)}</title>" if dot.label else ""
        parts.append(
            f'<circle cx="{across(dot.x):.1f}" cy="{up(dot.y):.1f}" r="{radius}" '
            f'style="{style}">{title}</circle>'
        )
    for dot in dots:
        if dot.name:
            place = "end" if across(dot.x) > WIDTH - 120 else "start"
            shift = -9 if place == "end" else 9
            parts.append(
                f'<text x="{across(dot.x) + shift:.1f}" y="{up(dot.y) - 8:.1f}" '
                f'text-anchor="{place}" style="fill:var(--ink)">{escape(dot.name)}</text>'
            )
    return (
        f'<figure class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(what or f"{y_title} against {x_title}", quote=True)}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or 0.5
    return low - margin, high + margin
