"""What stands in the report below its curves, in order: one function a section.

A section is a function from :class:`Material` to HTML; an empty text leaves it out. A new one is written in a
module of its own and gets a line in :data:`SECTIONS`. Its HTML may hold tables and inline SVG; scripts and
addresses are refused by the page's own policy, and whatever a run says must be escaped (``html.escape``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from lamarckian.runs.journal import Entry
from lamarckian.viewer import populations, sections
from lamarckian.viewer.summary import Summary


@dataclass(frozen=True, slots=True)
class Material:
    """What sections are made of: the run and the settings it would have had by default."""

    summary: Summary
    defaults: Mapping[str, Any] | None = None

    def events(self, *names: str) -> list[Entry]:
        """Return the journal's events of these names, those that count, in order."""
        return [entry for entry in self.summary.entries if entry.event in names]


@dataclass(frozen=True, slots=True)
class Section:
    """``key`` is the id on the page; two ``is_half`` sections in a row stand side by side."""

    key: str
    title: str
    make: Callable[[Material], str]
    is_half: bool = False


def _evaluations(material: Material) -> str:
    is_evolution = material.events("generation") and not material.summary.evaluations
    return "" if is_evolution else sections.evaluations(material.summary)


SECTIONS: list[Section] = [
    Section("evaluations", "Evaluations", _evaluations),
    Section("styles", "Styles", lambda material: populations.styles(material.summary)),
    Section("front", "The front", lambda material: populations.front(material.summary)),
    Section(
        "time",
        "Where time goes",
        lambda material: sections.where_time_goes(material.summary),
        is_half=True,
    ),
    Section("events", "Events", lambda material: sections.events(material.summary), is_half=True),
    Section(
        "settings",
        "Settings",
        lambda material: sections.settings(material.summary, material.defaults),
    ),
]


def write(material: Material) -> str:
    """Return the HTML of all sections that have something to say."""
    parts: list[str] = []
    halves: list[str] = []
    for section in SECTIONS:
        inside = section.make(material)
        if not inside:
            continue
        name = escape(section.key)
        text = (
            f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">'
            f"{escape(section.title)}</h2>\n{inside}\n</section>\n"
        )
        if section.is_half:
            halves.append(text)
            continue
        parts += _beside(halves)
        halves = []
        parts.append(text)
    return "".join(parts + _beside(halves))


def _beside(halves: list[str]) -> list[str]:
    return [f'<div class="two">\n{"".join(halves)}</div>\n'] if halves else []
