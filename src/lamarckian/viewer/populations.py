"""Sections of the report about an evolution: its styles (EMOGI), and its front."""

from __future__ import annotations

from html import escape

from lamarckian.errors import LamarckianError
from lamarckian.evaluator import Encoding
from lamarckian.runs import individuals
from lamarckian.runs.evolution import is_evolution
from lamarckian.runs.folder import Run
from lamarckian.runs.individuals import Stored, latest
from lamarckian.viewer.scatter import Dot, scatter
from lamarckian.viewer.summary import Summary

MAX_OLD_DOTS = 600
_STEPS = 3
"""Colours by which a third objective is told: low, middle, high."""


def styles(summary: Summary) -> str:
    """Normalised score against each behaviour, everybody who ever lived behind the last population."""
    found = _population(summary)
    if found is None:
        return ""
    encoding, everyone, alive = found
    names = [each.name for each in encoding.descriptors]
    drawn = []
    for column, name in enumerate(names):
        old, now = [], []
        for each in everyone.values():
            share, score = each.descriptors[column], _strength(each)
            if share is None or score is None:
                continue
            if each.id in alive:
                label = f"individual {each.id}: {name} {share:.2f}, {_words(each)} {score:.3f}"
                now.append(Dot(share, score, 0, label))
            else:
                old.append(Dot(share, score, -1))
        if not now:
            continue
        word = _words(next(each for each in everyone.values() if each.id in alive))
        stride = -(-len(old) // MAX_OLD_DOTS) or 1
        scored = word == "score"
        drawn.append(
            scatter(
                [*old[::stride], *_named(now)],
                name,
                "normalised score" if scored else word.replace("_", " "),
                x_range=(-0.02, 1.02),
                y_range=(-0.03, 1.03) if scored else None,
                what=f"strength against {name} of the last population",
            )
        )
    if not drawn:
        return ""
    ends = ", ".join(escape(each.name) for each in encoding.objectives)
    return (
        "".join(drawn)
        + f'<p class="note">Blue: the last population, {len(alive)} players. Grey: those before them. '
        f"Objectives: {ends}.</p>"
    )


def front(summary: Summary) -> str:
    """The last population by its first two objectives; a third one is told by colour."""
    found = _population(summary)
    if (
        found is None
        or summary.path is None
        or len(found[0].objectives) < 2
        or found[0].descriptors
    ):
        return ""
    encoding, everyone, alive = found
    goals = encoding.objectives
    best = set(latest(Run.open(summary.path), "front"))
    rows = [each for each in everyone.values() if each.id in alive and None not in each.objectives]
    points = [[float(value or 0.0) for value in each.objectives] for each in rows]
    if not points:
        return ""
    third = [point[2] for point in points] if len(goals) > 2 else [0.0] * len(points)
    low, span = min(third), (max(third) - min(third)) or 1.0
    dots = []
    for each, point, value in zip(rows, points, third, strict=True):
        step = min(_STEPS - 1, int(_STEPS * (value - low) / span)) if len(goals) > 2 else 0
        told = ", ".join(f"{goal.name} {number:.3g}" for goal, number in zip(goals, point))
        label = f"individual {each.id}: {told}"
        dots.append(Dot(point[0], point[1], step if each.id in best else -1, label))
    dots.sort(key=lambda dot: dot.colour >= 0)
    words = [f"{escape(goal.name)} ({goal.direction}d)" for goal in goals]
    note = f"Whom nobody dominates, {len(best)} of {len(rows)} of the last population"
    if len(goals) > 2:
        edges = [low + span * step / _STEPS for step in range(_STEPS + 1)]
        ranges = "".join(
            f'<li><i class="p{step}"></i>{edges[step]:.3g} to {edges[step + 1]:.3g}</li>'
            for step in range(_STEPS)
        )
        return (
            scatter(dots, words[0], words[1])
            + f'<ul class="keys"><li>{words[2]}:</li>{ranges}</ul><p class="note">{note}.</p>'
        )
    return scatter(dots, words[0], words[1]) + f'<p class="note">{note}.</p>'


def _population(summary: Summary) -> tuple[Encoding, dict[int, Stored], set[int]] | None:
    """Return encoding, everybody evaluated, and who is alive; None for a run of another kind."""
    if summary.path is None or summary.axis != "evaluations":
        return None
    run = Run.open(summary.path)
    if not is_evolution(run):
        return None
    try:
        encoding = individuals.encoding_of(run)
        everyone = {k: v for k, v in individuals.read_all(run).items() if v.status == "ok"}
    except LamarckianError:
        return None  # a damaged run still gets the rest of its report
    return encoding, everyone, set(latest(run, "population"))


def _named(dots: list[Dot]) -> list[Dot]:
    """Write beside the two ends who they are."""
    dots = sorted(dots, key=lambda dot: dot.x)
    ends = {id(dots[0]), id(dots[-1])}
    return [
        Dot(dot.x, dot.y, dot.colour, dot.label, f"{dot.x:.2f}, {dot.y:.2f}")
        if id(dot) in ends
        else dot
        for dot in dots
    ]


def _words(each: Stored) -> str:
    return next(
        (n for n in ("score", "win_rate") if each.statistics.get(n) is not None), "return_mean"
    )


def _strength(each: Stored) -> float | None:
    return each.statistics.get(_words(each))
