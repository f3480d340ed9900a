"""The report: one file that holds a whole run and asks nothing of the network.

The page is static HTML for everything that can be read as text; curves and replays are drawn by scripts
that stand in the same file. All data are one JSON text in which no character means anything to HTML, and
the page's own content security policy allows no other script and no connection.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from lamarckian.errors import RunError
from lamarckian.runs.durable import write_file
from lamarckian.viewer import charts, contents, sections
from lamarckian.viewer.replay import Replay, pack
from lamarckian.viewer.summary import Summary, summarise

MAX_BYTES = 1_500_000
"""The size the report aims to stay below; replays are thinned until it does."""

_SCRIPTS = ("decode.js", "charts.js", "stage.js", "report.js")
_SLOT = re.compile(r"<!--slot:([a-z_]+)-->")
_LEAST_FOR_REPLAYS = 100_000


@dataclass(slots=True)
class WrittenReport:
    """Where a report went, its size, and how many replays it holds (``reason`` why not all)."""

    path: Path
    bytes: int
    num_replays: int
    reason: str = ""


def write_report(
    run_path: str | Path,
    output: str | Path,
    replays: Sequence[Replay] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    no_replays_because: str = "",
) -> WrittenReport:
    """Write the report of the run at ``run_path``, running or finished, to the file ``output``.

    Without ``replays`` they are recorded from the run's checkpoints
    (:func:`lamarckian.viewer.recording.record_replays`); an empty list leaves them out, and
    ``no_replays_because`` is told to the reader in their place. ``defaults`` are the settings the run would
    have had if nothing had been set, found out by itself for a training.

    Raises RunError if there is no run or the file cannot be written.
    """
    from lamarckian.viewer import recording

    source = Path(run_path).expanduser()
    summary = summarise(source)
    reason = no_replays_because
    if replays is None:
        replays, reason = recording.record_replays(source)
    if defaults is None:
        defaults = recording.default_settings(summary.settings)
    page, count = render(summary, replays, defaults, reason)
    target = Path(output).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, page)
    except OSError as error:
        raise RunError(f"{target}: cannot write the report: {error.strerror}") from None
    return WrittenReport(target, len(page), count, reason)


def render(
    summary: Summary,
    replays: Sequence[Replay],
    defaults: Mapping[str, Any] | None = None,
    no_replays_because: str = "",
) -> tuple[bytes, int]:
    """Return the page as UTF-8 and the number of replays in it."""
    groups = charts.charts(summary)
    data: dict[str, Any] = {"axis": summary.axis, "groups": groups, "replays": None}
    script = "\n".join(_file(name) for name in _SCRIPTS)
    slots = {
        "title": escape(f"{summary.name} · Lamarckian report"),
        "policy": escape(_policy(script), quote=True),
        "style": _file("report.css"),
        "script": script,
        "headline": sections.headline(summary),
        "sections": contents.write(contents.Material(summary, defaults)),
        "no_replays": escape(no_replays_because or "This report was made without replays."),
        "command": escape(" ".join(summary.command)),
        "version": escape(summary.version),
    }
    template = _file("report.html")
    size = len(template) + sum(len(value.encode()) for value in slots.values()) + len(_json(data))
    data["replays"] = pack(replays, max(_LEAST_FOR_REPLAYS, MAX_BYTES - size - 10_000))
    slots["data"] = _json(data)
    page = _SLOT.sub(lambda found: slots[found[1]], template)
    count = sum(1 for replay in replays if replay.frames) if data["replays"] else 0
    return page.encode(), count


def _policy(script: str) -> str:
    # Only this very script may run, whatever else should find its way into the page.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _json(data: Any) -> str:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return (resources.files("lamarckian.viewer") / "page" / name).read_text(encoding="utf-8")
