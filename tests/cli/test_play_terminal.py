"""Play in a real (pseudo) terminal: pictures, keys, and a terminal that is left as it was found."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from lamarckian.mdp.games.drawing import circle, line, rect, scene, text
from lamarckian.viewer import terminal

if sys.platform == "win32":
    pytest.skip("pseudo terminals are of Unix", allow_module_level=True)

from terminals import Terminal

DRAWING = scene(
    8,
    8,
    rect("box", 2, 2, "#ff0000"),
    circle("ball", 0.4, "#00ff00"),
    line("wall", 0.1, "#0000ff"),
    text("score", 4, 0.5, 1, "#ffffff"),
    background="#000000",
)


def test_half_blocks() -> None:
    """An 8 x 8 world on 8 x 4 characters is 8 x 8 pixels, so every pixel is one unit."""
    frame = {"box": [[1, 2]], "ball": [[6.5, 6.5]], "wall": [[0, 7.5, 7.9, 7.5]], "score": "3:1"}
    canvas = terminal.draw(frame, DRAWING, 8, 4)
    assert (canvas.columns, canvas.rows) == (8, 4)
    red = (canvas.pixels == [255, 0, 0]).all(axis=2)
    assert np.argwhere(red).tolist() == [[2, 1], [2, 2], [3, 1], [3, 2]]
    assert canvas.pixels[6, 6].tolist() == [0, 255, 0]
    assert (canvas.pixels[7, :, 2] == 255).all()
    plain = canvas.lines(colored=False)
    assert plain[0] == "   3:1  " or plain[0] == "  3:1   "
    assert plain[1] == " ██     "
    colored = canvas.lines(colored=True)
    assert "\x1b[38;2;255;0;0;48;2;255;0;0m▀▀\x1b[38;2;0;0;0;48;2;0;0;0m" in colored[1]


def test_things_outside_the_world_are_cut_off() -> None:
    frame = {"box": [[-5, -5], [7, 7], [50, 50]], "ball": [[-3, 99]], "wall": [[-9, -9, 20, 20]]}
    canvas = terminal.draw({**frame, "score": "a score as wide as the world"}, DRAWING, 8, 4)
    assert canvas.pixels[7, 7].tolist() != [0, 0, 0]
    assert len(canvas.lines(colored=False)[0]) == 8


def test_a_dead_unit_fades() -> None:
    canvas = terminal.draw({"ball": [[4.5, 4.5, 0.5]]}, DRAWING, 8, 4)
    assert canvas.pixels[4, 4].tolist() == [0, 127, 0]


def test_numbers_of_a_frame_without_hints() -> None:
    frame = {"tick": 3, "player": {"x": [0.123456, float("nan")], "long": list(range(20))}}
    lines = terminal.list_numbers(frame, 60, 10)
    assert lines[0] == "tick         3"
    assert lines[1] == "player.x     [0.1235, -]"
    assert lines[2].endswith("11, ...]")
    assert terminal.list_numbers({str(n): n for n in range(9)}, 60, 3)[-1] == "... and 7 more"


def test_a_match_against_me() -> None:
    with Terminal("play", "connect-four", "--against", "me", "--opponent", "random") as console:
        console.wait_for(terminal.ENTER)
        console.wait_for("tick 0")
        for tick in (2, 4):
            console.press("4")
            console.wait_for(f"tick {tick}")
        console.press("q")
        assert console.end() == 0
        assert terminal.LEAVE in console.text
        assert "match cut after 4 ticks" in console.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_terminal_is_restored_after_a_signal(number: signal.Signals) -> None:
    with Terminal("play", "pong", "--against", "me", "--role", "left") as console:
        console.wait_for("tick 5")
        console.signal(number)
        assert console.end() == 128 + number
        assert terminal.LEAVE in console.text


def test_the_terminal_is_restored_when_the_game_fails(tmp_path: Path) -> None:
    (tmp_path / "broken_duel.py").write_text(
        "from lamarckian.mdp.games.duel import Duel\n"
        "class Broken(Duel):\n"
        "    def tick(self, actions):\n"
        "        super().tick(actions)\n"
        "        if self._tick == 3: raise RuntimeError('out of swords')\n"
    )
    arguments = ("play", "broken_duel:Broken", "--against", "me")
    with Terminal(*arguments, cwd=tmp_path) as console:
        code = console.end()
        assert terminal.LEAVE in console.text
        assert "out of swords" in console.text
        assert "Traceback" not in console.text
        assert code == 2


def test_watching_can_be_quit() -> None:
    with Terminal("play", "cartpole", "--speed", "20") as console:
        console.wait_for("tick 1")
        console.press("q")
        assert console.end() == 0
