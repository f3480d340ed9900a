"""The documentation cannot lie: every snippet runs, every page made from code is up to date (CFG-04).

A fenced block in README.md or docs/ is run as it stands, in a folder per page. HTML comments before it say
what is different in tests; they do not show on the page:

``<!-- in tests: OLD => NEW -->``      the text OLD (which must be there) is replaced: fewer frames
``<!-- in tests: not run, REASON -->`` only its commands are looked at
``<!-- file: NAME.py -->``             the block is a file the reader writes

Pages made from code are written anew by LAMARCKIAN_WRITE_DOCS=1 python -m pytest tests/test_docs.py
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
import types
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lamarckian import config
from lamarckian.cli.main import installed, main
from lamarckian.metrics import METRICS
from lamarckian.runs.training import TrainingRun

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKER = re.compile(r"^<!-- (in tests|file): (.+?) -->$")
FENCE = re.compile(r"^```(\w*)$")


@dataclass
class Snippet:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str = ""
    file: str = ""
    run: bool = True
    changes: list[tuple[str, str]] = field(default_factory=list)

    def shortened(self) -> str:
        text = self.text
        for old, new in self.changes:
            assert old in text, f"{self.page.name}:{self.line}: there is no {old!r} to replace"
            text = text.replace(old, new)
        return text


def snippets(page: Path) -> list[Snippet]:
    found: list[Snippet] = []
    marks: list[tuple[str, str]] = []
    inside: Snippet | None = None
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if inside is not None:
            if line == "```":
                found.append(inside)
                inside = None
            else:
                inside.text += line + "\n"
        elif fence:
            inside = Snippet(page, number, fence[1])
            for kind, text in marks:
                old, arrow, new = text.partition(" => ")
                if kind == "file":
                    inside.file = text
                elif arrow:
                    inside.changes.append((old, new))
                else:
                    assert text.startswith("not run, "), f"{page.name}:{number}: {text}"
                    inside.run = False
            marks = []
        elif mark := MARKER.match(line):
            marks.append((mark[1], mark[2]))
        elif line:
            marks = []
    return found


def commands(text: str) -> list[list[str]]:
    """The commands a reader types: lines that start with a dollar sign."""
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


def run_command(argv: list[str], run: bool, where: str) -> None:
    program = argv[0].removeprefix(".venv/bin/")
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
        assert argv[1] in targets, f"{where}: the Makefile has no {argv[1]!r}"
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        wanted = re.fullmatch(r"lamarckian(?:\[([\w,-]+)\])?", argv[2])
        assert argv[1] == "install", where
        assert wanted is not None, where
        for extra in filter(None, (wanted[1] or "").split(",")):
            assert extra in project["optional-dependencies"], f"{where}: no extra {extra!r}"
    else:
        assert program == "lamarckian", f"{where}: who knows {program!r}? mark it as not run"
        assert argv[1] in installed() or argv[1].startswith("-"), f"{where}: no command {argv[1]!r}"
        if run:
            assert main(argv[1:]) == 0, f"{where}: {shlex.join(argv)}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pitfalls_cfg_04_every_snippet_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.argv", ["lamarckian"])
    before = set(sys.modules)
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    try:
        for snippet in snippets(page):
            where = f"{page.name}:{snippet.line}"
            if snippet.language == "console":
                text = snippet.shortened()
                assert commands(text), f"{where}: a console block without a line '$ ...'"
                for argv in commands(text):
                    run_command(argv, snippet.run, where)
            elif snippet.language == "python":
                code = compile(snippet.shortened(), where, "exec")
                if snippet.file:
                    (tmp_path / snippet.file).write_text(snippet.shortened(), "utf-8")
                elif snippet.run:
                    exec(code, module.__dict__)
            elif snippet.language == "yaml":
                assert snippet.file, f"{where}: a settings file needs a name"
                (tmp_path / snippet.file).write_text(snippet.shortened(), "utf-8")
            else:
                assert snippet.language == "text", f"{where}: say what this block is"
    finally:
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == tmp_path:
                del sys.modules[name]


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[\w-]+)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


# --- pages made from code -------------------------------------------------------------------------


def check_page(name: str, text: str, start: str = "", end: str = "") -> None:
    """The page (or what stands between ``start`` and ``end``) is ``text``."""
    page = ROOT / "docs" / name
    wanted = text
    if start:
        whole = page.read_text("utf-8")
        head, tail = whole.index(start) + len(start), whole.index(end)
        wanted = whole[:head] + "\n" + text + whole[tail:]
    if os.environ.get("LAMARCKIAN_WRITE_DOCS"):
        page.write_text(wanted, "utf-8")
    assert page.read_text("utf-8") == wanted, (
        f"docs/{name} is stale: LAMARCKIAN_WRITE_DOCS=1 python -m pytest tests/test_docs.py"
    )


def test_metrics_page() -> None:
    lines = [
        "# Metrics",
        "",
        "Every number that is shown, in the console, the journal, reports or TensorBoard, has one name. "
        "A name may carry a role, a reward head or an objective after a slash: `return_mean/red`. This "
        "page is made from `lamarckian.metrics.METRICS`.",
        "",
        "| name | what | unit | look closer when |",
        "|---|---|---|---|",
    ]
    for metric in METRICS.values():
        cells = (f"`{metric.name}`", metric.what, metric.unit, metric.bad_when)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    check_page("metrics.md", "\n".join(lines) + "\n")


ALGORITHMS = config.variants(TrainingRun, "algorithm")


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_has_a_page_with_its_defaults(name: str) -> None:
    lines = ["| setting | default | range | meaning |", "|---|---|---|---|"]
    for row in config.describe(ALGORITHMS[name]):
        default = config.dump_yaml(row.default).removesuffix("\n").removesuffix("\n...")
        default = default.replace("\n", " ") or "''"
        cells = (f"`{row.key}`", f"`{default}`", row.constraint, row.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    check_page(
        f"{name}.md", "\n".join(lines) + "\n", "<!-- defaults -->", "<!-- end of defaults -->"
    )
