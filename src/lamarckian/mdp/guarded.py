"""A batch game whose failures are told in full: which game, which call, which seeds, which tick, where.

What a game returns is compared with its roles at every tick by shape and key, and by type in the first
ticks; whatever it raises becomes one GameError. Coroutine games have the same from their matches.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import GameError, LamarckianError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Arrays, Observation, Role, mask_size

CAREFUL_TICKS = 64
"""Types are compared with the declaration during so many ticks after a reset."""

Result = TypeVar("Result")


class GuardedGame(BatchGame):
    """Passes everything on to ``game``, which ``name`` names in errors."""

    def __init__(self, game: BatchGame, name: str) -> None:
        self.game = game
        self.name = name
        self.roles = game.roles
        self.num_games = game.num_games
        self.frames_per_decision = game.frames_per_decision
        self.exact_state = game.exact_state
        self.bots = game.bots  # type: ignore[misc]
        self.drawing = getattr(game, "drawing", None)
        self.ticks = 0
        self._seeds = np.zeros(0, np.int64)
        self._rows = {name: game.num_games * role.seats for name, role in game.roles.items()}
        self._shapes = {name: self._declared(name, role) for name, role in game.roles.items()}

    def _declared(self, name: str, role: Role) -> list[tuple[str, str, tuple[int, ...], str]]:
        """What an observation must hold: (group, key, shape, type)."""
        rows = self._rows[name]
        out = [("inputs", key, (rows, *i.shape), i.dtype) for key, i in role.inputs.items()]
        out += [("state", key, (rows, *i.shape), i.dtype) for key, i in role.state.items()]
        out += [("legal", key, (rows, mask_size(role.actions[key])), "bool") for key in role.masked]
        return out

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self._seeds = np.array(seeds)
        self.ticks = 0
        self._call("reset()", lambda: self.game.reset(seeds))

    def observe(self, role: str) -> Observation:
        seen = self._call(f"observe({role!r})", lambda: self.game.observe(role))
        if not isinstance(seen, Observation):
            raise self._wrong(f"observe({role!r})", "an Observation", type(seen).__name__)
        groups = {"inputs": seen.inputs, "state": seen.state, "legal": seen.legal}
        for group, key, shape, dtype in self._shapes[role]:
            array = groups[group].get(key)
            if getattr(array, "shape", None) != shape:
                self._complain(role, group, key, shape, dtype, array, sorted(groups[group]))
            if self.ticks < CAREFUL_TICKS and not np.can_cast(array.dtype, dtype, "same_kind"):  # type: ignore[union-attr]
                self._complain(role, group, key, shape, dtype, array, sorted(groups[group]))
        return seen

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        steps = self._call("step()", lambda: self.game.step(actions))
        self.ticks += 1
        for role, declared in self.roles.items():
            step = steps.get(role) if isinstance(steps, Mapping) else None
            if not isinstance(step, RowStep):
                raise self._wrong("step()", f"a RowStep for role {role!r}", type(step).__name__)
            rows = self._rows[role]
            for key, array, shape in (
                ("rewards", step.rewards, (rows, declared.num_rewards)),
                ("terminated", step.terminated, (rows,)),
                ("truncated", step.truncated, (rows,)),
            ):
                if getattr(array, "shape", None) != shape:
                    got = f"{getattr(array, 'shape', type(array).__name__)}"
                    raise self._wrong(f"step(), {key} of role {role!r}", f"shape {shape}", got)
            if len(step.final_rows) and step.final is None:
                raise self._wrong(
                    f"step(), role {role!r}", "the final observation of truncated rows", "none"
                )
        return steps

    def alive(self, role: str) -> NDArray[np.bool_]:
        return self._call(f"alive({role!r})", lambda: self.game.alive(role))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return self.game.state()

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        self.game.load_state(data, arrays)

    def frame(self, game: int) -> dict[str, Any] | None:
        return self.game.frame(game)

    def close(self) -> None:
        self.game.close()

    def _call(self, what: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except LamarckianError:
            raise
        except Exception as error:
            raise GameError(
                f"{self._where(what)}: raised {type(error).__name__}: {error}{_place(error)}"
            ) from error

    def _where(self, what: str) -> str:
        seeds = ", ".join(str(seed) for seed in self._seeds[:3].tolist())
        more = ", ..." if len(self._seeds) > 3 else ""
        return f"{self.name}, tick {self.ticks} after the reset with seeds {seeds}{more}, {what}"

    def _wrong(self, what: str, expected: str, got: str) -> GameError:
        return GameError(f"{self._where(what)}: expected {expected}, got {got}")

    def _complain(
        self,
        role: str,
        group: str,
        key: str,
        shape: tuple[int, ...],
        dtype: str,
        array: Any,
        present: list[str],
    ) -> None:
        name = {"inputs": "input", "state": "state", "legal": "legal mask of"}[group]
        if array is None:
            got = f"none; there are {', '.join(present) or 'no others'}"
        else:
            got = f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"
        raise self._wrong(f"observe({role!r}), {name} {key!r}", f"{dtype} {shape}", got)


def _place(error: BaseException) -> str:
    """Where an exception was raised, as ``(game.py line 3, in step)``."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f" ({Path(last.filename).name} line {last.lineno}, in {last.name})"
