"""The report: complete, harmless whatever a run says, readable when there is nothing to show."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade_runs import HOSTILE, SETTINGS, empty_run, pong_frames, small_run

from lamarckian.cli import main as cli
from lamarckian.errors import RunError
from lamarckian.metrics import METRICS
from lamarckian.runs import Run, events
from lamarckian.viewer import Replay, contents, write_report
from lamarckian.viewer.report import MAX_BYTES

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A strict reader: every tag closed in order; scripts, text and addresses collected."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.tags: list[str] = []
        self.feed(self.source)
        self.close()
        assert self.open == []
        [self.code] = [code for kind, code in self.scripts if kind.get("type") is None]
        [data] = [code for kind, code in self.scripts if kind.get("id") == "data"]
        self.data: dict[str, Any] = json.loads(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif not self.open or self.open[-1] != "style":
            self.text += data

    def chart(self, name: str) -> dict[str, Any]:
        [found] = [c for group in self.data["groups"] for c in group["charts"] if c["name"] == name]
        return dict(found)

    def replays(self) -> list[dict[str, Any]]:
        packed = self.data["replays"]
        if "plain" in packed:
            return list(packed["plain"])
        return list(json.loads(gzip.decompress(base64.b64decode(packed["gzip"]))))


def page_of(run: Path, *replays: Replay, **options: Any) -> Page:
    output = run.parent / "report.html"
    options.setdefault("defaults", {})
    write_report(run, output, list(replays), **options)
    return Page(output)


def two_replays() -> list[Replay]:
    return [
        Replay("First policy", "pong", pong_frames(900), {"score": 0.1}),
        Replay("Last policy", "pong", pong_frames(1500), {"score": 0.9}),
    ]


def test_nothing_is_loaded_from_anywhere(tmp_path: Path) -> None:
    page = page_of(small_run(tmp_path / "run"), *two_replays())
    for tag, name, value in page.attributes:
        if name in ("src", "href", "action", "poster", "srcset"):
            assert value.startswith("#"), (tag, name, value)
    assert "@import" not in page.source
    assert "url(" not in page.source
    # The one address is the name of the SVG namespace, which nobody fetches.
    assert set(re.findall(r"https?://[^\s\"'<]+", page.source)) == {"http://www.w3.org/2000/svg"}


def test_only_the_own_script_may_run(tmp_path: Path) -> None:
    page = page_of(small_run(tmp_path / "run"))
    policy = next(v for _, n, v in page.attributes if n == "content" and "default-src" in v)
    digest = base64.b64encode(hashlib.sha256(page.code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_headline_and_curves_hold_what_the_journal_says(tmp_path: Path) -> None:
    page = page_of(small_run(tmp_path / "run"))
    assert "PPO on pong: score 0.75 against rule" in page.text
    # Wilson, 75 of 100: centre (0.75 + 3.8415 / 200) / 1.038415 = 0.7408, half width 0.0842
    assert "75 % (66 to 82)" in page.text
    line = page.chart("return_mean")["lines"][0]
    assert line["x"] == [50 * n for n in range(1, 21)]
    assert line["y"] == list(range(1, 21))
    assert line["t"][1] == 1
    # 3 +- 1.96 * 2 / sqrt(100)
    assert page.chart("return_mean")["points"][0]["low"] == pytest.approx(2.608, abs=1e-3)


def test_every_chart_explains_its_metric(tmp_path: Path) -> None:
    page = page_of(small_run(tmp_path / "run"))
    for group in page.data["groups"]:
        for chart in group["charts"]:
            assert chart["what"] == METRICS[chart["name"]].what
            assert chart["bad"] == METRICS[chart["name"]].bad_when
    assert page.chart("clip_fraction")["limit"] == [">", 0.3]


def test_not_a_number_is_a_gap(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    with Run.resume(run) as writer:
        metrics = {"entropy": math.inf, "strange/red": -math.inf, "best": None}
        writer.journal.append(events.Update(iteration=21, frames=1050, metrics=metrics))
    page = page_of(run)
    entropy = page.chart("entropy")
    assert entropy["lines"][0]["y"][2] is None
    assert entropy["lines"][0]["y"][-1] is None
    assert entropy["gaps"] == 2
    assert "strange" not in [c["name"] for g in page.data["groups"] for c in g["charts"]]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {**SETTINGS, "game": HOSTILE, "opponent": HOSTILE, HOSTILE: [HOSTILE]}
    with Run.create(folder, HOSTILE, settings, command=[HOSTILE]) as run:
        journal = run.journal
        journal.append(events.Update(iteration=1, frames=5, metrics={HOSTILE: 1.0, "entropy": 1.0}))
        journal.append(
            events.Evaluation(
                frames=5, episodes=2, score=0.5, opponent=HOSTILE, metrics={HOSTILE: 2.0}
            )
        )
        journal.append(events.Warned(message=HOSTILE))
        journal.append(events.WorkerFailed(worker=HOSTILE, reason=HOSTILE, traceback=HOSTILE))
    frame = {HOSTILE: HOSTILE, "score": HOSTILE}
    replay = Replay(HOSTILE, HOSTILE, [frame, frame], {HOSTILE: HOSTILE})
    page = page_of(folder, replay, no_replays_because=HOSTILE, defaults={})
    assert len(page.scripts) == 2
    assert "img" not in page.tags
    assert page.text.count(HOSTILE) >= 7
    [shown] = page.replays()
    assert shown["title"] == HOSTILE
    assert shown["frames"] == {"c": frame}


def test_a_slot_named_by_a_run_is_not_filled(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", name="<!--slot:script-->")
    assert "<!--slot:script-->" in page_of(run).text


def test_replays_come_back_with_their_drawing(tmp_path: Path) -> None:
    drawing = {"width": 160, "height": 160, "background": "#000", "items": []}
    replay = Replay("One", "pong", pong_frames(40), {"seed": np.int64(4)}, drawing)
    [shown] = page_of(small_run(tmp_path / "run"), replay).replays()
    assert (shown["count"], shown["drawing"], shown["info"]) == (40, drawing, {"seed": 4})


def test_an_empty_run_has_a_page(tmp_path: Path) -> None:
    page = page_of(empty_run(tmp_path / "run"), no_replays_because="there is no checkpoint yet")
    assert page.data["groups"] == []
    assert page.data["replays"] is None
    for words in (
        "No episode has finished yet",
        "No evaluation yet",
        "there is no checkpoint yet",
        "A quiet run",
        "Interrupted",
    ):
        assert words in page.text


def test_events_behind_a_resume_do_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, "pong", SETTINGS) as run:
        journal = run.journal
        for number in (1, 2, 3, 4):
            journal.append(
                events.Update(iteration=number, frames=number, metrics={"entropy": number})
            )
            if number == 2:
                boundary = journal.sequence
        journal.resume(boundary, step=2)
        journal.append(events.Update(iteration=3, frames=3, metrics={"entropy": 30.0}))
    page = page_of(folder)
    assert page.chart("entropy")["lines"][0]["y"] == [1, 2, 30]
    assert "Resumed from the checkpoint of step 2" in page.text
    assert "2 journal entries lie behind" in page.text


def test_a_long_run_keeps_its_extremes_in_a_small_page(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    rng = np.random.default_rng(0)
    names = [name for name, metric in METRICS.items() if metric.unit != "bytes"][:40]
    with Run.create(folder, "pong", SETTINGS) as run:
        for number in range(2500):
            metrics: dict[str, float | None] = dict(zip(names, rng.normal(size=40).tolist()))
            if number == 1234:
                metrics["return_mean"] = 77.5
            if number == 2345:
                metrics["return_mean"] = -88.25
            run.journal.append(
                events.Update(iteration=number, frames=997 * number, metrics=metrics)
            )
    frames = [{"noise": rng.integers(0, 256, (40, 40)).tolist()} for _ in range(600)]
    page = page_of(folder, Replay("noise", "x", frames))
    line = page.chart("return_mean")["lines"][0]
    assert 900 < len(line["y"]) <= 1000
    assert max(line["y"]) == 77.5
    assert min(line["y"]) == -88.25
    assert line["x"] == sorted(line["x"])
    assert (line["x"][0], line["x"][-1]) == (0, 997 * 2499)
    assert len(page.source.encode()) < MAX_BYTES
    assert page.replays()[0]["stride"] > 1


def test_settings_that_were_changed_come_first(tmp_path: Path) -> None:
    defaults = {
        **SETTINGS,
        "seed": 0,
        "algorithm": {**SETTINGS["algorithm"], "learning_rate": 3e-4},
    }
    text = page_of(small_run(tmp_path / "run"), defaults=defaults).text
    assert text.index("algorithm.learning_rate") < text.index("at their defaults")
    assert text.index("at their defaults") < text.index("algorithm.discount")
    assert "3 settings at their defaults" not in text
    assert "4 settings at their defaults" in text


def test_a_report_that_cannot_be_written_is_a_run_error(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the report"):
        write_report(run, tmp_path / "file" / "report.html", [])
    with pytest.raises(RunError, match="no such run folder"):
        write_report(tmp_path / "absent", tmp_path / "report.html", [])


def test_the_command_writes_page_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page = small_run(tmp_path / "run"), tmp_path / "out.html"
    assert cli.main(["report", str(run), "-o", str(page), "--no-replays", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(page)
    assert told["bytes"] == page.stat().st_size
    assert told["replays"] == 0
    figure = tmp_path / "return.csv"
    command = ["report", str(run), "--metric", "return_mean", "-o", str(figure), "--format", "csv"]
    assert cli.main(command) == 0
    rows = figure.read_text().splitlines()
    assert rows[0] == "series,frames,wall_seconds,value,low,high"
    assert rows[1] == "return_mean,50.0,0.5,1.0,,"
    assert len(rows) == 1 + 20 + 2
    capsys.readouterr()
    assert cli.main(["report", str(run), "--format", "svg"]) == 2
    assert "--metric" in capsys.readouterr().err
    assert cli.main(["report", str(run), "--format", "svg", "--metric", "retrn_mean"]) == 2
    assert "did you mean 'return_mean'" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "nothing")]) == 2


def test_a_figure_is_one_picture(tmp_path: Path) -> None:
    from xml.etree import ElementTree

    from lamarckian.viewer.figures import svg_figure

    run = small_run(tmp_path / "run", name=HOSTILE.replace("\u2028", ""))
    tree = ElementTree.fromstring(svg_figure(run, "entropy"))
    [path] = [node for node in tree.iter() if node.tag.endswith("path")]
    # One gap (the third value), so the line is set down twice.
    assert path.attrib["d"].count("M") == 2
    assert not [node for node in tree.iter() if node.tag.endswith("script")]


def test_a_game_without_a_score_is_told_by_its_return(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "cartpole", {"game": "cartpole"}) as run:
        metrics = {"return_mean": 487.5, "return_std": 20.0}
        run.journal.append(events.Evaluation(frames=9, episodes=4, score=487.5, metrics=metrics))
    page = page_of(tmp_path / "run")
    # 487.5 +- 1.96 * 20 / 2
    assert "cartpole: return 488 (468 to 507)" in page.text
    assert [chart["name"] for group in page.data["groups"] for chart in group["charts"]] == [
        "return_mean"
    ]


def test_a_section_of_its_own_stands_where_the_list_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned(material: contents.Material) -> str:
        return f"<p>{len(material.events('warning'))} warnings, {material.summary.game}</p>"

    extra = [
        contents.Section("warned", "Warned", warned),
        contents.Section("nothing", "Nothing to say", lambda material: ""),
    ]
    monkeypatch.setattr(contents, "SECTIONS", [*contents.SECTIONS[:1], *extra])
    page = page_of(small_run(tmp_path / "run"))
    assert "1 warnings, pong" in page.text
    assert "Nothing to say" not in page.text
    assert page.text.index("Evaluations") < page.text.index("1 warnings")
    assert "Where time goes" not in page.text
