"""The live viewer's server: who gets in, what is sent, what can be asked. No browser, no network."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from handmade_runs import SETTINGS, small_run
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from lamarckian.errors import RunError
from lamarckian.runs import Run, control, events
from lamarckian.viewer import server
from lamarckian.viewer.hub import find_runs
from lamarckian.viewer.server import make_app

TOKEN = "the-token"
BASE = "http://127.0.0.1:8321"
VIEWER = Path(server.__file__).parent


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    small_run(tmp_path / "runs" / "pong-1")
    app = make_app([tmp_path / "runs"], token=TOKEN)
    with TestClient(app, base_url=BASE) as opened:
        yield opened


def connect(client: TestClient, origin: str | None = BASE, path: str = f"/{TOKEN}/live") -> Any:
    headers = {"host": "127.0.0.1:8321"}
    if origin is not None:
        headers["origin"] = origin
    return client.websocket_connect(path, headers=headers)


def hear(socket: Any, kind: str, check: Any = lambda message: True) -> dict[str, Any]:
    for _ in range(50):
        message = json.loads(socket.receive_text())
        if message["type"] == kind and check(message):
            return dict(message)
    raise AssertionError(f"no {kind} came")


def test_the_page_needs_the_token_and_nothing_else(client: TestClient) -> None:
    page = client.get(f"/{TOKEN}/")
    assert page.status_code == 200
    assert "assets/app.js" in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    assert (
        client.get(f"/{TOKEN}/assets/app.js").headers["content-type"].startswith("text/javascript")
    )
    assert client.get(f"/{TOKEN}", follow_redirects=False).headers["location"] == f"/{TOKEN}/"


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", "/the-toke/", "/the-token2/", "/assets/app.js", "/%74he-tokem/"]
)
def test_without_the_token_there_is_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 403
    assert "pong" not in answer.text
    with pytest.raises(WebSocketDisconnect), connect(client, path=f"{path}live"):
        pass


@pytest.mark.parametrize(
    "name", ["..%2Findex.html", "..%2F..%2Fserver.py", "%2Fetc%2Fpasswd", "built.json", ""]
)
def test_only_built_files_are_served(client: TestClient, name: str) -> None:
    assert client.get(f"/{TOKEN}/assets/{name}").status_code == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", ""]
)
def test_other_names_of_this_machine_are_refused(client: TestClient, host: str) -> None:
    assert client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://evil.example", "http://127.0.0.1:9999", "http://localhost:8321"],
)
def test_other_pages_get_no_connection(client: TestClient, origin: str | None) -> None:
    with pytest.raises(WebSocketDisconnect), connect(client, origin):
        pass
    if origin is not None:
        assert client.get(f"/{TOKEN}/", headers={"origin": origin}).status_code == 403


def test_the_list_and_the_overview_come_from_the_journal(client: TestClient) -> None:
    with connect(client) as socket:
        runs = hear(socket, "runs", lambda each: each["runs"] and each["runs"][0]["read"])["runs"]
        assert [run["key"] for run in runs] == ["pong-1"]
        assert runs[0]["status"] == "finished"
        assert runs[0]["progress"]["share"] == 1.0
        socket.send_text(json.dumps({"do": "look", "run": "pong-1", "page": "overview"}))
        data = hear(socket, "page")["data"]
    charts = {chart["name"]: chart for group in data["groups"] for chart in group["charts"]}
    assert charts["return_mean"]["lines"][0]["y"] == list(range(1, 21))
    assert charts["clip_fraction"]["bad"] == "> 0.3"
    assert charts["clip_fraction"]["what"] == "share of samples whose ratio was clipped"
    assert {fact["title"]: fact["value"] for fact in data["facts"]}["Score"] == 0.75
    assert [note["title"] for note in data["notes"]] == ["the disk is slow"]
    assert data["settings"]["algorithm.learning_rate"] == 0.001
    assert not data["is_written"]


def test_what_is_written_later_is_shown(client: TestClient, tmp_path: Path) -> None:
    with (
        Run.create(tmp_path / "runs" / "pong-2", "pong", SETTINGS) as run,
        connect(client) as socket,
    ):
        hear(socket, "runs", lambda each: any(line["key"] == "pong-2" for line in each["runs"]))
        socket.send_text(json.dumps({"do": "look", "run": "pong-2"}))
        assert hear(socket, "page")["data"]["groups"] == []
        run.journal.append(events.Update(iteration=1, frames=250, metrics={"return_mean": 4.0}))
        data = hear(socket, "page")["data"]
        assert data["groups"][0]["charts"][0]["lines"][0]["y"] == [4]
        assert data["progress"] == {
            "done": 250, "total": 1000, "unit": "frames", "share": 0.25, "left": None
        }  # fmt: skip
        assert data["status"] == "running"
        assert data["is_written"]


def test_pause_reaches_the_mailbox_and_notes_the_journal(
    client: TestClient, tmp_path: Path
) -> None:
    with connect(client) as socket:
        hear(socket, "runs", lambda each: each["runs"])
        note = {"do": "control", "run": "pong-1", "action": "note", "text": "looks odd"}
        socket.send_text(json.dumps(note))
        assert hear(socket, "said")["ok"]
        assert Run.open(tmp_path / "runs" / "pong-1").replay()[-1].fields == {"text": "looks odd"}
        socket.send_text(json.dumps({**note, "action": "pause"}))
        said = hear(socket, "said")
        assert not said["ok"]
        assert "nobody can pause" in said["text"]
        with Run.create(tmp_path / "runs" / "pong-2", "pong", SETTINGS) as run:
            hear(socket, "runs", lambda each: len(each["runs"]) == 2)
            socket.send_text(json.dumps({"do": "control", "run": "pong-2", "action": "pause"}))
            assert hear(socket, "said")["ok"]
            letters = list((run.path / control.FOLDER).glob("*.json"))
            assert [json.loads(each.read_text())["action"] for each in letters] == ["pause"]


@pytest.mark.parametrize(
    "message",
    [
        "no json",
        "[1]",
        '{"do": "dance"}',
        '{"do": "look", "page": "nowhere"}',
        '{"do": "control", "run": "nobody", "action": "stop"}',
        '{"do": "control", "run": "pong-1", "action": "explode"}',
        '{"do": 7}',
    ],
)
def test_nonsense_is_answered_and_survived(client: TestClient, message: str) -> None:
    with connect(client) as socket:
        hear(socket, "runs", lambda each: each["runs"])
        socket.send_text(message)
        said = hear(socket, "said")
        assert not said["ok"]
        assert said["text"]
        socket.send_text(json.dumps({"do": "look", "run": "pong-1"}))
        assert hear(socket, "page")["run"] == "pong-1"


def test_runs_are_found_by_folder_and_told_apart(tmp_path: Path) -> None:
    one = small_run(tmp_path / "a" / "pong-1", num_updates=1)
    two = small_run(tmp_path / "b" / "pong-1", num_updates=1)
    (tmp_path / "a" / "no-run").mkdir()
    assert find_runs([tmp_path / "a", one]) == {"pong-1": tmp_path / "a" / "pong-1"}
    assert find_runs([one, two]) == {"a~pong-1": one, "b~pong-1": two}
    with pytest.raises(RunError, match="no such run folder"):
        find_runs([tmp_path / "c"])


def test_the_built_page_is_that_of_its_sources() -> None:
    """`make viewer` builds it anew; this needs no node."""
    sealed = json.loads((VIEWER / "static" / "built.json").read_text("utf-8"))
    sources = {
        path.relative_to(VIEWER).as_posix()
        for path in (VIEWER / "web").rglob("*")
        if path.is_file() and "node_modules" not in path.parts
    }
    assert sources <= sealed["sources"].keys(), "a source the page was not built with: make viewer"
    built = {
        path.relative_to(VIEWER).as_posix()
        for path in (VIEWER / "static").rglob("*")
        if path.is_file() and path.name != "built.json"
    }
    assert built == sealed["built"].keys()
    for name, digest in (sealed["sources"] | sealed["built"]).items():
        found = hashlib.sha256((VIEWER / name).read_bytes()).hexdigest()
        assert found == digest, f"{name} is not what the page was built of: make viewer"


def test_the_page_asks_nobody_else() -> None:
    for path in (VIEWER / "static").rglob("*.*"):
        text = path.read_text("utf-8")
        for scheme in ("http://", "https://"):
            places = [part.split("/")[0] for part in text.split(scheme)[1:]]
            assert set(places) <= {"www.w3.org"}, f"{path.name}: {places}"


def test_curves_need_no_torch(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from lamarckian.viewer.following import Following\n"
        "from lamarckian.viewer.live import overview\n"
        "import lamarckian.viewer.server\n"
        f"following = Following(Path({str(tmp_path / 'run')!r}))\n"
        "following.poll()\n"
        "assert overview(following)['groups']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
