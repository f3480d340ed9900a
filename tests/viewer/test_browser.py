"""The report in a real browser, driven over Chromium's debugging pipe. Skipped without Chromium."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from handmade_runs import HOSTILE, empty_run, pong_frames, small_run

from lamarckian.viewer import Replay, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TICK = "document.querySelector('.transport .tick').textContent"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


class Browser:
    """One page; ``problems`` holds errors, console messages and requests that leave the file."""

    def __init__(self, profile: Path) -> None:
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for _ in (0, 1) for end in os.pipe()]
        self.ends = ends

        def hand_over() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[3], 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [str(CHROMIUM), *options, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=hand_over,
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        self.session: str | None = None
        self.number = 0
        self.rest = b""
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.ends[1], json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                assert select.select([self.ends[2]], [], [], 60)[0], f"no answer to {method}"
                self.rest += os.read(self.ends[2], 1 << 16)
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            name = answer.get("method", "")
            if name in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                self.problems.append(text.decode()[:500])
            if name == "Network.requestWillBeSent":
                address = answer["params"]["request"]["url"]
                if not address.startswith("file:"):
                    self.problems.append(address)
            if answer.get("id") == self.number:
                return dict(answer.get("result", answer))

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        end = time.monotonic() + 20
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never came true: {expression}"
            time.sleep(0.1)

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def open(self, path: Path) -> None:
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete'")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        for end in self.ends:
            os.close(end)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    opened = Browser(tmp_path / "profile")
    yield opened
    opened.close()


def test_keys_play_pause_and_step(browser: Browser, tmp_path: Path) -> None:
    replays = [Replay(title, "pong", pong_frames(1500)) for title in ("First", "Best", "Last")]
    page = write_report(small_run(tmp_path / "run"), tmp_path / "report.html", replays, defaults={})
    browser.open(page.path)
    browser.wait(f"document.querySelector('.transport') && parseInt({TICK}) > 3")
    browser.press(" ")
    assert browser.evaluate("document.querySelector('.play').textContent") == "Play"
    before = int(browser.evaluate(f"parseInt({TICK})"))
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    browser.press("ArrowLeft")
    assert browser.evaluate(f"parseInt({TICK})") == before + 1
    assert browser.evaluate("document.querySelectorAll('.stage').length") == 2
    browser.evaluate("document.querySelector('#axis button:last-child').click()")
    browser.evaluate("document.querySelector('.chart svg').focus()")
    browser.press("ArrowRight")
    assert " s" in browser.evaluate("document.querySelector('.chart .now').textContent")
    for width in (1200, 375):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.problems == []


def test_empty_and_hostile_runs_make_no_errors(browser: Browser, tmp_path: Path) -> None:
    page = write_report(empty_run(tmp_path / "empty"), tmp_path / "empty.html", [], defaults={})
    browser.open(page.path)
    browser.wait("!document.getElementById('no-replays').hidden")
    replay = Replay(HOSTILE, HOSTILE, [{HOSTILE: HOSTILE}] * 5, {HOSTILE: HOSTILE})
    run = small_run(tmp_path / "run", name=HOSTILE)
    page = write_report(run, tmp_path / "hostile.html", [replay], defaults={})
    browser.open(page.path)
    browser.wait("document.querySelector('.stage h3') !== null")
    assert browser.evaluate("document.querySelector('.stage h3').textContent") == HOSTILE
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.problems == []
