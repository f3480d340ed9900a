"""Skirmish: two squads on a plane, many matches at once; units die, the match goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.behaviours import acting
from lamarckian.mdp.core import (
    Array,
    Arrays,
    Behaviour,
    Continuous,
    Discrete,
    Input,
    Observation,
    Part,
    Role,
)
from lamarckian.mdp.games import skirmish_bots, snapshot
from lamarckian.mdp.games.drawing import Drawing, circle, line, scene, text
from lamarckian.mdp.games.row_streams import RowStreams

IDLE, FORWARD, BACK, LEFT, RIGHT, ATTACK = range(6)
MARCH, STRIKE = 1, 2
_STEPS = np.array([[0, 0], [1, 0], [-1, 0], [0, -1], [0, 1], [0, 0]], np.float32)
NUM_ENTITY_FEATURES = 7
NUM_STATE_FEATURES = 5
IMAGE_SIZE = 16
SPEED = 1.0
REACH = 4.0
DAMAGE = 0.15
COOLDOWN = 2
WIDTH = 480.0


class Skirmish(BatchGame):
    """``units_per_side`` red units against as many blue ones, on a square of side ``arena``.

    Roles ``red`` and ``blue`` with equal spaces; blue sees the plane mirrored (``arena - x``),
    so that ``forward`` is towards the enemy's side for both. Blue starts as red's mirror
    image, so sides are fair.

    A tick: attacks first, all at once, then moves. An attack takes 0.15 of the target's health (at
    most what it has, shared among its attackers) and cannot be repeated for the next 2 ticks; it
    needs a living enemy within 4.0 of where the tick began. A move covers 1.0, within the arena. A
    unit without health is dead. A match ends when a side has no living unit (terminated; both at
    once is a draw), or is truncated after ``max_ticks``.

    Action parts: ``order`` discrete 6 (idle, forward, back, left, right, attack), masked: attack is
    legal if an enemy can be attacked now; ``target`` discrete 1 + U, masked: 0 nobody (legal only
    if there is no one to attack), 1 + n the enemy n; read only by an attack. With ``heading`` the
    moves are one order: idle, march, attack, and the continuous part ``heading`` ``[2]`` in [-1, 1]
    is the direction of the march (it is cut to length 1): a hybrid action.

    Inputs: ``own`` float32 ``[5 + U]``: position, health, cooldown, share of the time played,
    one-hot of the seat. ``others`` entities ``[2 U - 1, 7]``: team-mates by seat, then enemies:
    offset and distance (in units of ``sight``), health, is an enemy, may be attacked now, is ready
    to attack; ``others_mask``: living and within ``sight`` (default: the whole arena). With
    ``image`` also ``image`` uint8 ``[3, 16, 16]``: own, team-mates, living enemies within sight,
    brightness is health. Rows of the unseen are zero.

    Critic's ``state``: ``units`` float32 ``[2 U, 5]``: x, y, health, ready, alive, for the own side
    by seat, then the enemies; the row of a dead unit is all zeros (alive 0), whatever it last was.
    ``self`` float32 ``[U + 1]``: one-hot of the seat, share of the time played.

    Reward heads: ``damage``: damage dealt minus damage taken, zero-sum over a match; ``victory``:
    +1 or -1 for each unit in play when a side is destroyed. A unit that dies terminates there and
    gets no more. With ``dead_watch`` it stays until the match ends, may only idle, and shares the
    victory of its team: the explicit option for team reward after death.

    Outcomes: ``score`` = (own health - enemy health + U) / (2 U) at the match's end, and
    ``result``; both nan for a unit that dies before. Statistics: ``dealt``, ``kills`` (last blows
    count for each who struck), ``lifetime`` in ticks and ``activeness``, the share of attacks in
    all decisions.
    """

    bots: ClassVar[Mapping[str, Any]] = {"rush": skirmish_bots.rush, "random": skirmish_bots.random}
    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        line("attacks", 2, "#eceff4"),
        circle("red", 9, "#bf616a"),
        circle("blue", 9, "#88c0d0"),
        text("score", WIDTH / 2, 20, 16),
    )
    _SAVED = (
        "_place",
        "_health",
        "_cooldown",
        "_present",
        "_ticks",
        "_dealt",
        "_kills",
        "_attacks",
        "_lifetime",
        "_aims",
    )

    def __init__(
        self,
        num_games: int,
        *,
        units_per_side: int = 3,
        arena: float = 16.0,
        sight: float | None = None,
        max_ticks: int = 120,
        heading: bool = False,
        image: bool = False,
        dead_watch: bool = False,
    ) -> None:
        for name, value in (
            ("num_games", num_games),
            ("units_per_side", units_per_side),
            ("max_ticks", max_ticks),
        ):
            if value < 1:
                raise ConfigError(f"Skirmish {name}: expected at least 1, got {value}")
        if arena < 2 * REACH:
            raise ConfigError(f"Skirmish arena: expected at least {2 * REACH}, got {arena}")
        if sight is not None and sight < REACH:
            raise ConfigError(f"Skirmish sight: expected at least {REACH}, got {sight}")
        self.num_games = num_games
        self.units = units_per_side
        self.arena = float(arena)
        self.sight = float(arena * 2**0.5 if sight is None else sight)
        self.max_ticks = max_ticks
        self.heading = heading
        self.image = image
        self.dead_watch = dead_watch
        seat = self._role()
        self.roles: Mapping[str, Role] = {"red": seat, "blue": seat}
        shape = (num_games, 2, units_per_side)
        # Axis 1 is the side, red first. Places are in the common frame, not mirrored.
        self._place = np.zeros((*shape, 2), np.float32)
        self._health = np.ones(shape, np.float32)
        self._cooldown = np.zeros(shape, np.int64)
        self._present = np.ones(shape, np.bool_)
        self._ticks = np.zeros(num_games, np.int64)
        self._dealt = np.zeros(shape, np.float32)
        self._kills = np.zeros(shape, np.int64)
        self._attacks = np.zeros(shape, np.int64)
        self._lifetime = np.zeros(shape, np.int64)
        self._aims = np.zeros(shape, np.int64)
        self._seen: dict[str, Observation] = {}
        self._reachable = np.zeros((num_games, 2, units_per_side, units_per_side), np.bool_)
        self.streams = RowStreams(np.zeros(num_games, np.int64))

    def _role(self) -> Role:
        units = self.units
        others = 2 * units - 1
        inputs = {
            "own": Input((5 + units,)),
            "others": Input((others, NUM_ENTITY_FEATURES), kind="entities", mask="others_mask"),
            "others_mask": Input((others,), "bool", "mask"),
        }
        if self.image:
            inputs["image"] = Input((3, IMAGE_SIZE, IMAGE_SIZE), "uint8", "image")
        actions: dict[str, Part] = {
            "order": Discrete(3 if self.heading else 6),
            "target": Discrete(1 + units),
        }
        if self.heading:
            actions["heading"] = Continuous(2, (-1.0, -1.0), (1.0, 1.0))
        strike = STRIKE if self.heading else ATTACK
        return Role(
            inputs=inputs,
            actions=actions,
            rewards=("damage", "victory"),
            state={"units": Input((2 * units, NUM_STATE_FEATURES)), "self": Input((units + 1,))},
            masked=("order", "target"),
            seats=units,
            behaviours={"activeness": Behaviour(acting("order", strike), "cautious", "aggressive")},
        )

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if len(seeds) != self.num_games:
            raise ConfigError(f"Skirmish reset: expected {self.num_games} seeds, got {len(seeds)}")
        self.streams = RowStreams(seeds)
        self._restart(np.arange(self.num_games))
        self._look()

    def observe(self, role: str) -> Observation:
        return self._seen[role]

    def alive(self, role: str) -> NDArray[np.bool_]:
        return self._present[:, int(role == "blue")].reshape(-1).copy()

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        living = self._health > 0
        orders, targets = self._read(actions, "order"), self._read(actions, "target")
        strike = STRIKE if self.heading else ATTACK
        striking = living & (orders == strike)
        taken, dealt = self._fight(striking, targets, living)
        self._move(actions, orders, living)
        self._cooldown = np.maximum(self._cooldown - 1, 0)
        self._cooldown[self._aims > 0] = COOLDOWN

        self._ticks += 1
        self._attacks += striking
        self._lifetime += living
        self._dealt += dealt
        dying = living & (self._health <= 0)
        sides: NDArray[np.bool_] = np.any(self._health > 0, axis=2)
        over: NDArray[np.bool_] = ~np.all(sides, axis=1)
        timed_out = (self._ticks >= self.max_ticks) & ~over
        won = sides[:, 0].astype(np.float32) - sides[:, 1]
        paid = np.zeros((*living.shape, 2), np.float32)
        paid[..., 0] = dealt - taken
        for side, sign in ((0, 1.0), (1, -1.0)):
            shares = self._present[:, side] & (living[:, side] | self.dead_watch)
            paid[:, side, :, 1] = shares * (sign * won * over)[:, None]
        leaves = self._present & over[:, None, None]
        if not self.dead_watch:
            leaves |= dying
        stopped = self._present & timed_out[:, None, None] & ~leaves
        steps = self._report(paid, leaves, stopped, over | timed_out, won * over)
        self._present &= ~(leaves | stopped)
        ended = np.flatnonzero(over | timed_out)
        if stopped.any():
            self._look()
            for role, step in steps.items():
                rows = np.flatnonzero(step.truncated)
                seen = self._seen[role]
                step.final_rows = rows
                step.final = Observation(
                    *(
                        {name: array[rows].copy() for name, array in group.items()}
                        for group in (seen.inputs, seen.legal, seen.state)
                    )
                )
        if len(ended):
            self._restart(ended)
        self._look()
        return steps

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"game": "skirmish", "units": self.units}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)
        self._look()

    def frame(self, game: int) -> dict[str, Any] | None:
        scale = WIDTH / self.arena
        place, health = self._place[game] * scale, self._health[game]
        shown: list[list[list[float]]] = []
        for side in (0, 1):
            units = zip(place[side].tolist(), health[side].tolist(), strict=True)
            shown.append(
                [[round(x, 1), round(y, 1), round(life, 3)] for (x, y), life in units if life > 0]
            )
        attacks = []
        for side, seat in np.argwhere(self._aims[game] > 0):
            struck = place[1 - side, self._aims[game, side, seat] - 1]
            attacks.append([round(float(v), 1) for v in (*place[side, seat], *struck)])
        alive = (health > 0).sum(axis=1).tolist()
        return {
            "tick": int(self._ticks[game]),
            "red": shown[0],
            "blue": shown[1],
            "attacks": attacks,
            "score": f"{alive[0]} : {alive[1]}",
        }

    def _read(self, actions: Mapping[str, Arrays], part: str) -> NDArray[np.int64]:
        shape = (self.num_games, self.units)
        return np.stack(
            [np.asarray(actions[role][part], np.int64).reshape(shape) for role in self.roles], 1
        )

    def _fight(
        self, striking: NDArray[np.bool_], targets: NDArray[np.int64], living: NDArray[np.bool_]
    ) -> tuple[Array, Array]:
        """Apply all attacks at once; return damage taken and dealt, float32 ``[G, 2, U]``."""
        hits = (targets[..., None] - 1 == np.arange(self.units)) & striking[..., None]
        hits &= self._reachable
        self._aims = np.where(hits.any(axis=3), targets, 0)
        struck = hits.sum(axis=2)[:, ::-1].astype(np.float32)  # blows on each unit, by side
        before = self._health
        self._health = np.maximum(before - DAMAGE * struck, 0.0).astype(np.float32)
        self._health[self._health < 1e-6] = 0.0
        taken = before - self._health
        each = np.divide(taken, struck, out=np.zeros_like(taken), where=struck > 0)
        dealt = (hits * each[:, ::-1, None]).sum(axis=3)
        killed = living & (self._health == 0)
        self._kills += (hits & killed[:, ::-1, None]).sum(axis=3)
        return taken, dealt

    def _move(
        self, actions: Mapping[str, Arrays], orders: NDArray[np.int64], living: NDArray[np.bool_]
    ) -> None:
        if self.heading:
            way = np.stack(
                [
                    np.asarray(actions[role]["heading"], np.float32).reshape(
                        self.num_games, self.units, 2
                    )
                    for role in self.roles
                ],
                1,
            )
            length = np.sqrt((way * way).sum(axis=3, keepdims=True))
            way = way / np.maximum(length, 1.0) * (orders == MARCH)[..., None]
        else:
            way = _STEPS[orders]
        way = way * (SPEED * living)[..., None]
        way[:, 1, :, 0] *= -1.0
        self._place = np.clip(self._place + way, 0.0, self.arena).astype(np.float32)

    def _report(
        self,
        paid: Array,
        leaves: NDArray[np.bool_],
        stopped: NDArray[np.bool_],
        over: NDArray[np.bool_],
        won: Array,
    ) -> dict[str, RowStep]:
        steps = {}
        any_end = bool(leaves.any() or stopped.any())
        total = self._health.sum(axis=2)
        for side, (role, sign) in enumerate((("red", 1.0), ("blue", -1.0))):
            step = steps[role] = RowStep(
                paid[:, side].reshape(-1, 2),
                leaves[:, side].reshape(-1).copy(),
                stopped[:, side].reshape(-1).copy(),
            )
            if any_end:
                lead = total[:, side] - total[:, 1 - side]
                score = np.where(over, (lead + self.units) / (2 * self.units), np.nan)
                result = np.where(over, sign * won, np.nan)
                lifetime = self._lifetime[:, side]
                values = {
                    "score": np.repeat(score, self.units),
                    "result": np.repeat(result, self.units),
                    "dealt": self._dealt[:, side].reshape(-1),
                    "kills": self._kills[:, side].reshape(-1),
                    "lifetime": lifetime.reshape(-1),
                    "activeness": (self._attacks[:, side] / np.maximum(lifetime, 1)).reshape(-1),
                }
                step.outcomes = {name: value.astype(np.float32) for name, value in values.items()}
        return steps

    def _restart(self, games: NDArray[np.int64]) -> None:
        draws = self.streams.uniform(games, 2 * self.units).reshape(-1, self.units, 2)
        red = (draws * [0.2, 0.8] + [0.05, 0.1]) * self.arena
        self._place[games, 0] = red
        self._place[games, 1] = red * [-1.0, 1.0] + [self.arena, 0.0]
        self._health[games] = 1.0
        self._present[games] = True
        for counts in (self._cooldown, self._kills, self._attacks, self._lifetime, self._aims):
            counts[games] = 0
        self._dealt[games] = 0.0
        self._ticks[games] = 0

    def _look(self) -> None:
        """Work out what everybody sees."""
        for side, role in enumerate(self.roles):
            self._seen[role] = self._seen_by(side)

    def _seen_by(self, side: int) -> Observation:
        num, units = self.num_games, self.units
        order = [side, 1 - side]
        place = self._place[:, order].reshape(num, 2 * units, 2).copy()
        if side:
            place[..., 0] = self.arena - place[..., 0]
        health = self._health[:, order].reshape(num, 2 * units)
        ready = (self._cooldown[:, order] == 0).reshape(num, 2 * units)
        living = health > 0
        # Pairs [G, observer, observed]; the observers are the own side.
        offset = place[:, None] - place[:, :units, None]
        distance = np.sqrt((offset * offset).sum(axis=3))
        visible = living[:, None] & living[:, :units, None] & (distance <= self.sight)
        reach = visible & (distance <= REACH)
        reach[:, :, :units] = False
        reach &= (living & ready)[:, :units, None]
        self._reachable[:, side] = reach[:, :, units:]
        features = np.empty((num, units, 2 * units, NUM_ENTITY_FEATURES), np.float32)
        features[..., :2] = offset / self.sight
        features[..., 2] = distance / self.sight
        features[..., 3] = health[:, None]
        features[..., 4] = np.arange(2 * units) >= units
        features[..., 5] = reach
        features[..., 6] = ready[:, None]
        features *= visible[..., None]
        others = ~np.eye(units, 2 * units, dtype=np.bool_)
        shape = (num, units, 2 * units - 1)
        played = (self._ticks / self.max_ticks).astype(np.float32)[:, None]
        own = np.zeros((num, units, 5 + units), np.float32)
        own[..., :2] = place[:, :units] / self.arena
        own[..., 2] = health[:, :units]
        own[..., 3] = self._cooldown[:, side] / COOLDOWN
        own[..., 4] = played
        own[..., 5:] = np.eye(units)
        inputs = {
            "own": own.reshape(num * units, -1),
            "others": features[:, others].reshape(num * units, 2 * units - 1, NUM_ENTITY_FEATURES),
            "others_mask": visible[:, others].reshape(shape).reshape(num * units, -1),
        }
        if self.image:
            inputs["image"] = self._image(place, health, visible)
        target = np.empty((num, units, 1 + units), np.bool_)
        target[..., 1:] = reach[:, :, units:]
        target[..., 0] = ~target[..., 1:].any(axis=2)
        moves = np.ones((num, units, 3 if self.heading else 6), np.bool_)
        moves[..., -1] = ~target[..., 0]
        moves[..., 1:-1] = living[:, :units, None]
        legal = {
            "order": moves.reshape(num * units, -1),
            "target": target.reshape(num * units, -1),
        }
        central = np.zeros((num, 2 * units, NUM_STATE_FEATURES), np.float32)
        central[..., :2] = place / self.arena
        central[..., 2] = health
        central[..., 3] = ready
        central[..., 4] = 1.0
        central *= living[..., None]
        self_state = np.zeros((num, units, units + 1), np.float32)
        self_state[..., :units] = np.eye(units)
        self_state[..., units] = played
        state = {
            "units": np.repeat(central, units, axis=0),
            "self": self_state.reshape(num * units, -1),
        }
        return Observation(inputs, legal, state)

    def _image(self, place: Array, health: Array, visible: Array) -> Array:
        num, units = self.num_games, self.units
        image = np.zeros((num, units, 3, IMAGE_SIZE, IMAGE_SIZE), np.uint8)
        cell = np.minimum(place / self.arena * IMAGE_SIZE, IMAGE_SIZE - 1).astype(np.int64)
        channel = np.where(np.arange(2 * units) < units, 1, 2) - np.eye(units, 2 * units, dtype=int)
        games, observers, observed = np.nonzero(visible)
        value = np.round(255 * health[games, observed]).astype(np.uint8)
        where = (
            games,
            observers,
            channel[observers, observed],
            cell[games, observed, 1],
            cell[games, observed, 0],
        )
        np.maximum.at(image, where, value)
        return image.reshape(num * units, 3, IMAGE_SIZE, IMAGE_SIZE)
