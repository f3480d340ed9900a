"""A fencing duel in real time: different decision rates, latecomers' actions, players who vanish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from lamarckian.errors import ConfigError
from lamarckian.mdp.behaviours import acting
from lamarckian.mdp.core import Action, Arrays, Behaviour, Discrete, Input, Observation, Role
from lamarckian.mdp.games.drawing import Drawing, line, rect, scene, text
from lamarckian.mdp.tick import TickGame

RETREAT, WAIT, ADVANCE, LUNGE, PARRY = 0, 1, 2, 3, 4
PISTE = 14.0
START = 4.0
STRIDE = 0.5
REACH = 2.0
AFTER_LUNGE = 3
AFTER_PARRIED = 6
Late = Literal["repeat", "idle", "scripted"]


def fencer(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Close in, parry now and then, lunge in reach; surely at an enemy who recovers."""
    state = inputs["state"]
    num = len(state)
    chance = rng.random(num)
    near = state[:, 1] * PISTE <= REACH
    open_enemy = state[:, 3] > 0
    fight = np.where(open_enemy | (chance < 0.5), LUNGE, np.where(chance < 0.8, PARRY, RETREAT))
    return {"move": np.where(near, fight, ADVANCE)}


def random(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Move anyhow."""
    return {"move": rng.integers(0, 5, len(inputs["state"]))}


class Duel(TickGame):
    """Two fencers on a line of 14.

    At a tick each fencer who is not recovering does one of five things: retreat or advance by 0.5, wait,
    lunge, parry. A lunge within reach (2.0) of an enemy who does not parry is a touch: +1 and -1, and both
    return to their marks. After a lunge one recovers for 3 ticks, after a parried one for 6; who recovers
    does not decide, so the two decide at different rates. Two touches at once cancel out. The bout ends
    at ``touches`` or after ``max_ticks``; both lives terminate. Strictly zero-sum.

    Input ``state``, float32 ``[8]``: own distance from the own end and the gap (both / 14), own and enemy
    recovery (/ 6), whether the enemy parried at the last tick, own and enemy touches (/ ``touches``), share
    of the time left.

    Who is due but brings no action, in real time or because it went offline, is played by ``late``:
    ``repeat`` its last action, ``idle`` (wait) or ``scripted`` (keep away, parry in reach). The bout goes on
    and ends. Score = (own - enemy + touches) / (2 touches); statistics ``touches`` and ``activeness``, the
    share of lunges in all decisions.
    """

    bots: ClassVar[Mapping[str, Any]] = {"fencer": fencer, "random": random}
    _walked: list[float]
    _recovery: list[int]
    _points: list[int]
    _moves: list[int]
    _last: list[int]
    _lunges: list[int]
    _decisions: list[int]
    drawing: ClassVar[Drawing] = scene(
        PISTE,
        4.0,
        line("piste", 0.08, "#4c566a"),
        rect("red", 0.4, 1.4, "#bf616a"),
        rect("blue", 0.4, 1.4, "#88c0d0"),
        line("blades", 0.08, "#eceff4"),
        text("score", PISTE / 2, 0.7, 0.6),
    )

    def __init__(self, *, touches: int = 5, max_ticks: int = 400, late: Late = "repeat") -> None:
        for name, value in (("touches", touches), ("max_ticks", max_ticks)):
            if value < 1:
                raise ConfigError(f"Duel {name}: expected at least 1, got {value}")
        if late not in ("repeat", "idle", "scripted"):
            raise ConfigError(f"Duel late: expected repeat, idle or scripted, got {late!r}")
        self.touches = touches
        self.max_ticks = max_ticks
        self.late: Late = late
        seat = Role(
            inputs={"state": Input((8,))},
            actions={"move": Discrete(5)},
            behaviours={"activeness": Behaviour(acting("move", LUNGE), "lazy", "active")},
        )
        self.roles = {"red": seat, "blue": seat}
        self._set_up()

    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        self._set_up()
        return [(role, role) for role in roles]

    def deciders(self) -> Iterable[str]:
        return [
            name
            for side, name in enumerate(("red", "blue"))
            if not self._recovery[side] and name in self.controllers
        ]

    def view(self, player: str) -> Observation:
        me = int(player == "blue")
        return Observation({"state": self._seen_by(me)})

    def tick(self, actions: dict[str, Action]) -> None:
        self._tick += 1
        moves = [WAIT, WAIT]
        for side, name in enumerate(("red", "blue")):
            if self._recovery[side]:
                self._recovery[side] -= 1
                continue
            moves[side] = int(actions[name]["move"]) if name in actions else self._substitute(side)
            self._last[side] = moves[side]
            self._decisions[side] += 1
            self._lunges[side] += moves[side] == LUNGE
        self._moves = moves
        gap = self._gap()
        touch = [False, False]
        for side in (0, 1):
            if moves[side] == LUNGE:
                parried = moves[1 - side] == PARRY and gap <= REACH
                self._recovery[side] = AFTER_PARRIED if parried else AFTER_LUNGE
                touch[side] = gap <= REACH and not parried
        for side in (0, 1):
            step = {RETREAT: -STRIDE, ADVANCE: STRIDE}.get(moves[side], 0.0)
            room = PISTE - self._walked[1 - side]
            self._walked[side] = min(max(self._walked[side] + step, 0.0), room)
        if touch[0] != touch[1]:
            winner = int(touch[1])
            self._points[winner] += 1
            self._pay(winner)
            self._walked = [START, START]
            self._recovery = [0, 0]
        if max(self._points) >= self.touches or self._tick >= self.max_ticks:
            self._end()

    def frame(self) -> dict[str, Any] | None:
        red, blue = self._walked[0], PISTE - self._walked[1]
        blades = []
        for side, (x, way) in enumerate(((red, 1.0), (blue, -1.0))):
            if self._moves[side] == LUNGE:
                blades.append([x, 2.2, x + way * REACH, 2.2])
            elif self._moves[side] == PARRY:
                blades.append([x + way * 0.5, 1.6, x + way * 0.5, 2.8])
        return {
            "tick": self._tick,
            "piste": [[0.0, 3.0, PISTE, 3.0]],
            "red": [[red - 0.4, 1.6]],
            "blue": [[blue, 1.6]],
            "blades": blades,
            "score": f"{self._points[0]} : {self._points[1]}",
        }

    def _set_up(self) -> None:
        """Both at their marks; every list has red's entry, then blue's."""
        self._tick = 0
        self._walked = [START, START]
        self._recovery = [0, 0]
        self._points = [0, 0]
        self._moves = [WAIT, WAIT]
        self._last = [WAIT, WAIT]
        self._lunges = [0, 0]
        self._decisions = [0, 0]

    def _gap(self) -> float:
        return PISTE - self._walked[0] - self._walked[1]

    def _seen_by(self, me: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        enemy = 1 - me
        return np.array(
            [
                self._walked[me] / PISTE,
                self._gap() / PISTE,
                self._recovery[me] / AFTER_PARRIED,
                self._recovery[enemy] / AFTER_PARRIED,
                float(self._moves[enemy] == PARRY),
                self._points[me] / self.touches,
                self._points[enemy] / self.touches,
                1.0 - self._tick / self.max_ticks,
            ],
            np.float32,
        )

    def _substitute(self, side: int) -> int:
        """What a fencer does who should decide now but brought no action."""
        if self.late == "repeat":
            return self._last[side]
        if self.late == "idle":
            return WAIT
        return PARRY if self._gap() <= REACH else RETREAT

    def _pay(self, winner: int) -> None:
        for side, name in enumerate(("red", "blue")):
            if name in self.controllers:
                self.reward(name, 1.0 if side == winner else -1.0)

    def _end(self) -> None:
        for side, name in enumerate(("red", "blue")):
            if name in self.controllers:
                lead = self._points[side] - self._points[1 - side]
                self.finish(
                    name,
                    score=(lead + self.touches) / (2 * self.touches),
                    result=int(np.sign(lead)),
                    touches=float(self._points[side]),
                    activeness=self._lunges[side] / max(self._decisions[side], 1),
                )
