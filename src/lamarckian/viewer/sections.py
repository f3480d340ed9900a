"""The parts of the report that need no script: headline, evaluations, time, settings, events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape
from typing import Any

from lamarckian.viewer.charts import title_of
from lamarckian.viewer.figures import short
from lamarckian.viewer.summary import Measured, Summary, flatten, mean_of

STATUS = {
    "finished": "Finished",
    "stopped": "Stopped",
    "running": "Still running",
    "interrupted": "Interrupted",
}
_SHOWN_METRICS = ("score", "win_rate", "return_mean", "length_mean")
_MAX_ROWS = 60


def headline(summary: Summary) -> str:
    """The title, one sentence that says what came out, and the facts of the run."""
    about = " · ".join(
        escape(each)
        for each in (summary.name, STATUS.get(summary.status, summary.status), _when(summary))
        if each
    )
    return (
        f'<p class="kicker">{about}</p>\n<h1>{_sentence(summary)}</h1>\n{_opening(summary)}'
        f'<dl class="facts">\n{_facts(summary)}</dl>'
    )


def evaluations(summary: Summary) -> str:
    """A table of evaluations, the newest first, with intervals."""
    if not summary.evaluations:
        return _empty(
            "No evaluation yet",
            "An evaluation plays games of its own with fixed seeds and says how sure it is. "
            "Set <code>evaluation.every</code> to take one while training, or run "
            "<code>lamarckian evaluate</code> on this run.",
        )
    names = [n for n in _SHOWN_METRICS if any(e.metrics.get(n) is not None for e in _rows(summary))]
    head = "".join(f'<th scope="col">{escape(title_of(name))}</th>' for name in names)
    body = "".join(_row(each, names) for each in reversed(_rows(summary)))
    left = len(summary.evaluations) - len(_rows(summary))
    note = f'<p class="note">{left} earlier ones are in the curves above.</p>' if left else ""
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of evaluations"><table>'
        f'<thead><tr><th scope="col">{escape(summary.axis.capitalize())}</th>{head}'
        '<th scope="col">Episodes</th><th scope="col">Opponent</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        f'<p class="note">In brackets: the 95 % interval over episodes.</p>{note}'
    )


def where_time_goes(summary: Summary) -> str:
    """Shares of the actors' and the learner's time as two bars."""
    bars = []
    actor = [(n, mean_of(summary.series.get(f"share_{n}", []))) for n in _ACTOR]
    if any(share is not None for _, share in actor):
        bars.append(_bar("An actor's time", [(_ACTOR[n], s) for n, s in actor]))
    learner = [(n, mean_of(summary.series.get(f"share_{n}", []))) for n in _LEARNER]
    if any(share is not None for _, share in learner):
        bars.append(_bar("The learner's time", [(_LEARNER[n], s) for n, s in learner]))
    else:
        parts = [(_PHASES[name], _total(summary, name)) for name in _PHASES]
        whole = sum(value or 0.0 for _, value in parts)
        if whole > 0:
            bars.append(_bar("An iteration", [(n, v / whole) for n, v in parts if v is not None]))
    if not bars:
        return _empty("Not measured", "This run recorded no times of its parts.")
    return "\n".join(bars)


def settings(summary: Summary, defaults: Mapping[str, Any] | None) -> str:
    """What was set by hand first, then everything."""
    flat = flatten(summary.settings)
    if not flat:
        return _empty("No settings recorded", "The journal of this run holds no settings.")
    if defaults is None:
        return _settings_table(flat, {})
    usual = flatten(defaults)
    missing = object()
    changed = {key: value for key, value in flat.items() if usual.get(key, missing) != value}
    same = {key: value for key, value in flat.items() if key not in changed}
    table = _settings_table(changed, usual) if changed else "<p>Everything is at its default.</p>"
    if not same:
        return table
    return (
        f"{table}<details><summary>{len(same)} settings at their defaults</summary>"
        f"{_settings_table(same, {})}</details>"
    )


def events(summary: Summary) -> str:
    """Warnings, failures, resumes and stops in the order they came."""
    lost = summary.superseded
    aside = (
        f'<p class="note">{lost} journal entries lie behind a checkpoint that a resume went back '
        "to; they count nowhere in this report.</p>"
        if lost
        else ""
    )
    if not summary.notes:
        return _empty("A quiet run", "No warnings, no failures, no resumes.") + aside
    items = []
    for note in summary.notes:
        text = f"<pre>{escape(note.text)}</pre>" if "\n" in note.text else ""
        line = f"<p>{escape(note.text)}</p>" if note.text and not text else text
        if text and len(note.text) > 400:
            line = f"<details><summary>Details</summary>{text}</details>"
        items.append(
            f'<li class="{note.level}"><span class="at">{duration(note.wall)}</span>'
            f'<div><strong><span class="level">{note.level}</span> {escape(note.title)}</strong>'
            f"{line}</div></li>"
        )
    return f'<ol class="events">{"".join(items)}</ol>{aside}'


def duration(seconds: float) -> str:
    """Return seconds as ``48 s``, ``12 min`` or ``3 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


_ACTOR = {"environment": "environment", "inference": "policy", "transport": "moving data"}
_LEARNER = {"learner": "training", "idle": "waiting for data"}
_PHASES = {"collect_seconds": "collecting play", "update_seconds": "learning from it"}


def _sentence(summary: Summary) -> str:
    who = f"{summary.algorithm.upper()} on " if summary.algorithm else ""
    subject = f"{escape(who)}{escape(summary.game)}"
    last = summary.evaluations[-1] if summary.evaluations else None
    name = next((n for n in _SHOWN_METRICS[:3] if last and last.metrics.get(n) is not None), None)
    if last is None or name is None:
        return subject
    value = f'<span class="value">{_value(last, name)}</span>'
    against = f" against {escape(last.opponent)}" if last.opponent else ""
    word = title_of(name).lower()
    return f"{subject}: {word} {value}{against}"


def _opening(summary: Summary) -> str:
    if summary.evaluations:
        last = summary.evaluations[-1]
        known = [n for n in _SHOWN_METRICS[:2] if last.intervals.get(n)]
        text = f"Measured on {last.episodes} episodes after {_count(last.x)} {summary.axis}"
        text += "; in brackets the 95 % interval." if known else "."
    elif summary.axis == "evaluations":
        counts = summary.totals
        text = f"{counts['evaluations']:,} evaluations, {counts['generation']:,} selections"
        volume = summary.series.get("hypervolume", [])
        last_volume = volume[0].values[-1] if volume else None
        text += "." if last_volume is None else f"; hypervolume {_plain(last_volume)}."
    elif summary.episodes:
        text = f"{summary.episodes:,} episodes were played; none was an evaluation."
    else:
        text = "No episode has finished yet, so there is no result to speak of."
    return f'<p class="lead">{text}</p>\n'


def _facts(summary: Summary) -> str:
    rows: list[tuple[str, str]] = []
    last = summary.evaluations[-1] if summary.evaluations else None
    if last and last.metrics.get("win_rate") is not None:
        rows.append(
            (f"Win rate against {last.opponent or 'the opponent'}", _value(last, "win_rate"))
        )
    for name in (summary.axis, "samples"):
        if name in summary.totals:
            rows.append((name.capitalize(), _count(summary.totals[name])))
    rows.append(("Wall time", duration(summary.wall)))
    if summary.episodes:
        rows.append(("Episodes", f"{summary.episodes:,}"))
    rate = summary.series.get("samples_per_second", [])
    if (mean := mean_of(rate)) is not None:
        rows.append(("Samples per second", short(mean)))
    rows.append(("Seed", "not fixed" if summary.seed is None else str(summary.seed)))
    machine = summary.machine
    words = [str(machine[key]) for key in ("system", "cpu", "gpu") if machine.get(key)]
    if machine.get("cores"):
        words.append(f"{machine['cores']} cores")
    if machine.get("python"):
        words.append(f"Python {machine['python']}")
    if words:
        rows.append(("Machine", ", ".join(words)))
    if summary.version:
        rows.append(("Lamarckian", summary.version))
    return "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>\n" for k, v in rows)


def _rows(summary: Summary) -> list[Measured]:
    return summary.evaluations[-_MAX_ROWS:]


def _row(measured: Measured, names: list[str]) -> str:
    cells = "".join(f"<td>{_value(measured, name)}</td>" for name in names)
    return (
        f'<tr><th scope="row">{_count(measured.x)}</th>{cells}<td>{measured.episodes}</td>'
        f"<td>{escape(measured.opponent or '–')}</td></tr>"
    )


def _value(measured: Measured, name: str) -> str:
    value = measured.metrics.get(name)
    if value is None:
        return "–"
    share = name == "win_rate"
    text = f"{100 * value:.0f} %" if share else _plain(value)
    pair = measured.intervals.get(name)
    if pair is None:
        return text
    low, high = (f"{100 * each:.0f}" if share else _plain(each) for each in pair)
    return f"{text} ({low} to {high})"


def _plain(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e6 else f"{value / 1e6:.3g} M"


def _bar(title: str, parts: list[tuple[str, float | None]]) -> str:
    shares = [(name, min(1.0, max(0.0, share))) for name, share in parts if share is not None]
    rest = 1.0 - sum(share for _, share in shares)
    if rest > 0.005:
        shares.append(("other", rest))
    total = sum(share for _, share in shares) or 1.0
    pieces = "".join(
        f'<span class="piece p{i}" style="flex-grow:{share / total:.4f}"></span>'
        for i, (_, share) in enumerate(shares)
    )
    keys = "".join(
        f'<li><i class="p{i}"></i>{escape(name)} <b>{100 * share / total:.0f} %</b></li>'
        for i, (name, share) in enumerate(shares)
    )
    return (
        f'<figure class="bar"><figcaption>{escape(title)}</figcaption>'
        f'<div class="track" aria-hidden="true">{pieces}</div><ul class="keys">{keys}</ul></figure>'
    )


def _settings_table(flat: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    default = '<th scope="col">Default</th>' if usual else ""
    rows = []
    for key, value in flat.items():
        was = f"<td>{_setting(usual[key]) if key in usual else '–'}</td>" if usual else ""
        rows.append(
            f'<tr><th scope="row"><code>{escape(key)}</code></th><td>{_setting(value)}</td>{was}</tr>'
        )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of settings">'
        f'<table class="settings"><thead><tr><th scope="col">Setting</th><th scope="col">Value</th>'
        f"{default}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _setting(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value == "" or value == [] or value == {}:
        return '<span class="quiet">empty</span>'
    if isinstance(value, list):
        return escape(", ".join(str(each) for each in value))
    return escape(str(value))


def _total(summary: Summary, name: str) -> float | None:
    series = summary.series.get(name, [])
    if not series:
        return None
    return sum(value for each in series for value in each.values if value is not None)


def _when(summary: Summary) -> str:
    if summary.began is None:
        return ""
    moment = time.gmtime(summary.began)
    return f"{moment.tm_mday} {time.strftime('%B %Y, %H:%M UTC', moment)}"


def _empty(title: str, text: str) -> str:
    # ``text`` is markup of this module, never something a run said.
    return f'<div class="empty"><p><strong>{title}</strong></p><p>{text}</p></div>'
