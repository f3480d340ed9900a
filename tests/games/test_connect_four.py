from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lamarckian.mdp.core import random_actions
from lamarckian.mdp.games import ConnectFour
from lamarckian.mdp.games.connect_four import LINES, careful, greedy, random, winning_columns

from .play import Recorder, scripted


def board(*rows: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Lines of the board from the top, x own and o enemy; the missing upper rows are empty."""
    cells = "".join(["." * 7] * (6 - len(rows)) + list(rows))
    return (
        np.array([[int(cell == "x") for cell in cells]]),
        np.array([[int(cell == "o") for cell in cells]]),
    )


def test_there_are_69_lines() -> None:
    assert LINES.shape == (69, 42)
    assert (LINES.sum(axis=1) == 4).all()


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (["xxx...."], [3]),
        (["xx.x..."], [2]),
        (["x......", "x......", "x......"], [0]),
        (
            ["...o...", "..xo...", ".xoo...", "xoox..."],
            [],
        ),  # column 3 is already above the diagonal
        (["..xo...", ".xoo...", "xooo..."], [3]),
        (
            ["..x....", ".xo....", "xoo...."],
            [],
        ),  # column 3 lands at the bottom, not on the diagonal
        (["ooo...."], []),
    ],
)
def test_winning_columns(rows: list[str], columns: list[int]) -> None:
    assert np.flatnonzero(winning_columns(*board(*rows))[0]).tolist() == columns


def play(first: list[int], second: list[int]) -> Recorder:
    recorder = Recorder(ConnectFour())
    result = recorder.play(
        {"first": scripted("column", first), "second": scripted("column", second)}
    )
    assert result.error is None
    return recorder


def test_pitfalls_ma_01_the_loser_is_paid_while_the_winner_moves() -> None:
    recorder = play([0, 1, 2, 3], [0, 1, 2])
    first, second = recorder.life("first"), recorder.life("second")
    assert [rewards for *_, rewards in first] == [[0.0], [0.0], [0.0], [1.0]]
    assert [rewards for *_, rewards in second] == [[0.0], [0.0], [-1.0]]
    records = {record.role: record for record in recorder.results[0].episodes}
    assert (records["first"].score, records["first"].result) == (1.0, 1)
    assert (records["second"].score, records["second"].result) == (0.0, -1)
    assert records["first"].statistics == {"moves": 7.0}


def test_each_sees_its_own_discs_first() -> None:
    recorder = play([0, 1, 2, 3], [0, 1, 2])
    seen = recorder.life("second")[0][0].inputs["board"].reshape(2, 6, 7)
    assert seen[0].sum() == 0.0
    assert seen[1, 5, 0] == 1.0
    seen = recorder.life("first")[1][0].inputs["board"].reshape(2, 6, 7)
    assert seen[0, 5, 0] == 1.0
    assert seen[1, 4, 0] == 1.0


def test_full_columns_are_masked_and_refused() -> None:
    recorder = Recorder(ConnectFour())
    result = recorder.play({"first": scripted("column", [0]), "second": scripted("column", [0])})
    assert result.error is not None
    assert "column 0" in str(result.error)
    assert recorder.life("first")[-1][0].legal["column"].tolist() == [True] * 7
    game = recorder.mdp
    assert game.controllers["first"].observe().legal["column"].tolist() == [False] + [True] * 6  # type: ignore[attr-defined]


def test_a_draw() -> None:
    # columns filled in pairs so that nobody gets four: 42 moves
    order = [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 2, 3, 2, 3, 3, 2, 3, 2, 2, 3, 2, 3]
    order += [4, 5, 4, 5, 5, 4, 5, 4, 4, 5, 4, 5, 6, 6, 6, 6, 6, 6]
    recorder = play(order[::2], order[1::2])
    records = recorder.results[0].episodes
    assert [record.score for record in records] == [0.5, 0.5]
    assert [record.result for record in records] == [0, 0]
    assert records[0].statistics["moves"] == 42.0


def test_a_player_who_leaves_loses() -> None:
    recorder = Recorder(ConnectFour())
    result = recorder.play({"first": random, "second": random}, quits={"second": 2})
    assert result.error is None
    records = {record.role: record for record in result.episodes}
    assert records["first"].result == 1
    assert records["second"].offline
    assert result.num_offline == 1


def test_bots_get_stronger() -> None:
    def share(strong: Any, weak: Any, num: int) -> float:
        score = 0.0
        for n in range(num):
            roles = ("first", "second") if n % 2 else ("second", "first")
            result = Recorder(ConnectFour()).play(dict(zip(roles, (strong, weak))), seed=n)
            score += sum(r.score for r in result.episodes if r.role == roles[0])  # type: ignore[misc]
        return score / num

    assert share(greedy, random, 20) >= 0.9
    assert share(careful, greedy, 30) >= 0.65


def test_frames_and_both_shapes_of_the_board() -> None:
    game = ConnectFour(image=True)
    Recorder(game).play({"first": random, "second": random})
    frame = game.frame()
    assert frame is not None
    assert json.loads(json.dumps(frame)) == frame
    assert len(frame["first"]) + len(frame["second"]) == frame["tick"]
    assert game.view("first").inputs["board"].shape == (2, 6, 7)
    np.testing.assert_array_equal(
        game.view("first").inputs["board"], game.view("second").inputs["board"][::-1]
    )
    legal = {"column": game.view("first").legal["column"][None]}
    drawn = random_actions(game.roles["first"], legal, 1, np.random.default_rng(0))
    assert drawn["column"].shape == (1,)
