"""A person at the keyboard: the terminal without line editing, and which key means what in which game.

The keys of every game stand in one table, :data:`CONTROLS`. A game that is not in it is played with the
digits if its action is one choice out of at most ten.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import (
    Arrays,
    Continuous,
    Discrete,
    Observation,
    Part,
    Role,
    action_dtype,
    action_shape,
)

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_SEQUENCE = re.compile(r"\x1b(?:\[|O)[0-9;]*([A-Za-z~])|[\s\S]")
_NAMES = {" ": "space", "\x1b": "escape", "\r": "enter", "\n": "enter", "\x03": "interrupt"}


class Keyboard:
    """Keys as they are pressed, without waiting; the terminal is restored on leaving, however that is.

    Ctrl-C still interrupts. Raises ConfigError on entering if there is no terminal.
    """

    def __init__(self) -> None:
        self._file = -1
        self._saved: list[Any] = []

    def __enter__(self) -> Keyboard:
        try:
            import termios
            import tty
        except ImportError:
            raise ConfigError("the keyboard can be read on a Unix terminal only") from None
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise ConfigError(
                "--against me needs a terminal: standard input and output must not be redirected"
            )
        self._file = sys.stdin.fileno()
        self._saved = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import termios

        termios.tcsetattr(self._file, termios.TCSAFLUSH, self._saved)

    def pressed(self) -> list[str]:
        """Return the names of the keys pressed since the last call, oldest first."""
        text = b""
        while select.select([self._file], [], [], 0)[0]:
            more = os.read(self._file, 1024)
            if not more:  # the terminal went away
                return ["q"]
            text += more
        return names(text.decode(errors="replace"))


def names(text: str) -> list[str]:
    """Turn what a terminal sends into names of keys: ``up``, ``space``, ``a``."""
    found = []
    for match in _SEQUENCE.finditer(text):
        if match[1] is not None:
            if match[1] in _ARROWS:
                found.append(_ARROWS[match[1]])
        else:
            found.append(_NAMES.get(match[0], match[0].lower()))
    return found


@dataclass(frozen=True, slots=True)
class Controls:
    """How a person plays a game.

    ``keys``     key -> action parts it sets (the others keep their idle value).
    ``help``     what the keys mean, in a few words.
    ``idle``     action parts when no key counts; parts left out are 0.
    ``hold``     seconds a key counts after it was pressed (terminals tell no release); infinite: until
                 another key.
    ``waits``    True for games without a clock: the game waits for a key at the person's own turn.
    """

    keys: Mapping[str, Mapping[str, Any]]
    help: str
    idle: Mapping[str, Any] = field(default_factory=dict)
    hold: float = 0.2
    waits: bool = False


_PONG = Controls(
    {"up": {"move": 0}, "down": {"move": 2}, "space": {"move": 1}},
    "up, down: move the bat",
    idle={"move": 1},
)

_ARROWS_PUSH = Controls(
    {"left": {"move": 1}, "right": {"move": 2}, "down": {"move": 3}, "up": {"move": 4}},
    "arrows: push that way",
    hold=0.2,
)

CONTROLS: dict[str, Controls] = {
    "pong": _PONG,
    "pong-image": _PONG,
    "cartpole": Controls(
        {"left": {"push": 0}, "right": {"push": 1}},
        "left, right: push the cart (it is pushed on until the other key)",
        hold=float("inf"),
    ),
    "pendulum": Controls(
        {"left": {"torque": 2.0}, "right": {"torque": -2.0}}, "left, right: turn the pendulum"
    ),
    "rps": Controls(
        {"r": {"throw": 0}, "p": {"throw": 1}, "s": {"throw": 2}},
        "r: rock, p: paper, s: scissors",
        waits=True,
    ),
    "connect-four": Controls(
        {str(column + 1): {"column": column} for column in range(7)},
        "1 to 7: drop a disc into that column",
        waits=True,
    ),
    "skirmish": Controls(
        {
            "up": {"order": 3},
            "down": {"order": 4},
            "right": {"order": 1},
            "left": {"order": 2},
            "space": {"order": 5},
        },
        "right, left: towards the enemy and back; up, down: sideways; space: attack who is near",
        hold=0.3,
    ),
    "duel": Controls(
        {"up": {"move": 2}, "down": {"move": 0}, "space": {"move": 3}, "p": {"move": 4}},
        "up: advance, down: retreat, space: lunge, p: parry",
        idle={"move": 1},
        hold=0.15,
    ),
    "mpe:simple_spread": _ARROWS_PUSH,
    "mpe:simple_tag": _ARROWS_PUSH,
    "mpe:simple_adversary": _ARROWS_PUSH,
}
TICKS_PER_SECOND = {
    "pong": 30.0, "pong-image": 30.0, "cartpole": 25.0, "pendulum": 20.0, "rps": 1.0,
    "connect-four": 2.0, "skirmish": 6.0, "duel": 8.0,
    "mpe:simple_spread": 6.0, "mpe:simple_tag": 6.0, "mpe:simple_adversary": 6.0,
    "mpe:simple_reference": 6.0, "mpe:simple_speaker_listener": 6.0,
}  # fmt: skip
DEFAULT_TICKS_PER_SECOND = 10.0


def controls_for(game: str, role: Role) -> Controls:
    """Return the keys of ``game`` (a reference without options). Raises ConfigError if it has none."""
    if game in CONTROLS:
        return CONTROLS[game]
    if len(role.actions) == 1:
        name, part = next(iter(role.actions.items()))
        if isinstance(part, Discrete) and part.num <= 10:
            return Controls(
                {str(choice): {name: choice} for choice in range(part.num)},
                f"0 to {part.num - 1}: {name}",
            )
    raise ConfigError(
        f"--against me: there are no keys for {game!r}; games with keys: {', '.join(CONTROLS)}, and "
        "any game whose action is one choice out of at most ten"
    )


class Person:
    """Turns keys into actions of one player. ``quits`` is True once q or Escape was pressed."""

    def __init__(self, keyboard: Any, controls: Controls, role: Role) -> None:
        self._keyboard = keyboard
        self.controls = controls
        self.role = role
        self.quits = False
        self._choice: Mapping[str, Any] | None = None
        self._until = 0.0

    def listen(self) -> None:
        """Take in what was pressed since the last call."""
        for key in self._keyboard.pressed():
            if key in ("q", "escape", "interrupt"):
                self.quits = True
            elif key in self.controls.keys:
                self._choice = self.controls.keys[key]
                self._until = time.monotonic() + self.controls.hold

    def action(self, observation: Observation) -> Arrays | None:
        """Return the action of now for one player; None if the game waits for a legal choice.

        A choice that is not legal becomes the first legal one, where the game does not wait.
        """
        self.listen()
        choice = self._choice
        if self.controls.waits:
            self._choice = None
            if choice is None or not self._is_legal(choice, observation):
                return None
        elif choice is not None and time.monotonic() >= self._until:
            choice = self._choice = None
        wanted = {**self.controls.idle, **(choice or {})}
        return {
            name: _value(part, wanted.get(name, 0), observation.legal.get(name))
            for name, part in self.role.actions.items()
        }

    def _is_legal(self, choice: Mapping[str, Any], observation: Observation) -> bool:
        masks = [(value, observation.legal.get(name)) for name, value in choice.items()]
        return all(mask is None or bool(mask[value]) for value, mask in masks)


def _value(part: Part, wanted: Any, mask: Any) -> Any:
    value = np.broadcast_to(np.asarray(wanted, action_dtype(part)), action_shape(part)).copy()
    if isinstance(part, Continuous):
        return np.clip(value, np.asarray(part.low, np.float32), np.asarray(part.high, np.float32))
    if isinstance(part, Discrete) and mask is not None and mask.any() and not mask[value]:
        return np.int64(np.argmax(mask))
    return value
