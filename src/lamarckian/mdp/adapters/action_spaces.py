"""Gymnasium action spaces as named parts, and native legal-action masks as one mask per part.

Names are formed as for observations: ``a/b`` for a nested part, ``action`` for a lone one. Like there,
spaces are recognised by the name of their class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import UnsupportedSpace
from lamarckian.mdp.adapters.spaces import (
    Path,
    SpaceMismatch,
    children_of,
    describe,
    kind_of,
    name_of,
    unsupported,
)
from lamarckian.mdp.core import (
    Array,
    Arrays,
    Continuous,
    Discrete,
    MultiDiscrete,
    Part,
    mask_size,
)


class ActionPlan:
    """How action parts become native actions, for one row or for a batch.

    ``parts``  name -> part, as a role declares them. MultiBinary is a MultiDiscrete of twos; a Box of any
    shape is flattened and given back in its shape, dtype and bounds.

    Raises UnsupportedSpace naming the path of a space that cannot be expressed.
    """

    def __init__(self, space: Any) -> None:
        self.space = space
        self.parts: dict[str, Part] = {}
        self._native = self._compile(space, ())
        if not self.parts:
            raise UnsupportedSpace("action space: it holds no part")

    def batch(self, actions: Arrays) -> Any:
        """Return the native batched action: nested like the space, every leaf with leading N.

        Raises SpaceMismatch for a non-finite number.
        """
        return self._native[0](actions)

    def rows(self, actions: Arrays) -> Sequence[Any]:
        """Return one native action per row; arrays are views of fresh copies."""
        return self._native[1](self._native[0](actions))

    def _compile(
        self, space: Any, path: Path
    ) -> tuple[Callable[[Arrays], Any], Callable[[Any], Sequence[Any]]]:
        kind = kind_of(space)
        if kind == "Dict":
            keys = list(space.spaces)
            inner = [self._compile(space.spaces[key], (*path, key)) for key in keys]
            return (
                lambda actions: {key: f(actions) for key, (f, _) in zip(keys, inner)},
                lambda batch: [
                    dict(zip(keys, values))
                    for values in zip(*(g(batch[key]) for key, (_, g) in zip(keys, inner)))
                ],
            )
        if kind == "Tuple":
            inner = [
                self._compile(child, (*path, index)) for index, child in children_of(space, kind)
            ]
            return (
                lambda actions: tuple(f(actions) for f, _ in inner),
                lambda batch: list(zip(*(g(item) for item, (_, g) in zip(batch, inner)))),
            )
        return self._leaf(space, kind, path), list

    def _leaf(self, space: Any, kind: str, path: Path) -> Callable[[Arrays], Any]:
        name = name_of(path, "action")
        if name in self.parts:
            raise UnsupportedSpace(f"action space: two parts are both called {name!r}")
        if kind == "Discrete":
            self.parts[name] = Discrete(int(space.n))
            first = int(getattr(space, "start", 0))
            return lambda actions: np.asarray(actions[name], np.int64) + first
        if kind in ("MultiDiscrete", "MultiBinary"):
            shape = tuple(int(size) for size in space.shape)
            size = int(np.prod(shape))
            nvec = np.asarray(space.nvec).ravel() if kind == "MultiDiscrete" else np.full(size, 2)
            self.parts[name] = MultiDiscrete(tuple(int(num) for num in nvec))
            start = np.asarray(getattr(space, "start", np.zeros(shape)), np.int64).reshape(-1)
            dtype = np.dtype(space.dtype)
            return lambda actions: (
                (np.asarray(actions[name]) + start).astype(dtype).reshape(-1, *shape)
            )
        if kind == "Box":
            return self._box(space, name, path)
        raise unsupported("action", path, space)

    def _box(self, space: Any, name: str, path: Path) -> Callable[[Arrays], Any]:
        shape = tuple(int(size) for size in space.shape)
        dtype = np.dtype(space.dtype)
        if dtype.kind not in "fiu":
            raise unsupported("action", path, space)
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        try:
            self.parts[name] = Continuous(
                low.size, tuple(float(x) for x in low), tuple(float(x) for x in high)
            )
        except UnsupportedSpace as error:
            raise UnsupportedSpace(f"action space {name}: {error}") from error
        # Bounds in the space's own dtype: float32 arithmetic can end one unit outside a float64 bound.
        work = dtype if dtype.kind == "f" else np.dtype(np.float64)
        floor, ceiling = low.astype(work), high.astype(work)

        def native(actions: Arrays) -> Array:
            numbers: Array = np.asarray(actions[name]).astype(work)
            if not np.isfinite(numbers).all():
                raise SpaceMismatch(f"action {name!r}: expected finite numbers, got {numbers}")
            numbers = np.clip(numbers, floor, ceiling)
            if dtype.kind != "f":
                numbers = np.rint(numbers).astype(dtype)
            native_numbers: Array = numbers.reshape(-1, *shape)
            return native_numbers

        return native


class MaskPlan:
    """How a native legal-action mask becomes one boolean mask per discrete part.

    Accepted for a lone part: an array, or for MultiDiscrete the tuple of arrays Gymnasium uses; for Dict
    and Tuple actions the same nested like the space, where a missing part means that all is legal.
    """

    def __init__(self, actions: ActionPlan) -> None:
        self.sizes = {
            name: mask_size(part)
            for name, part in actions.parts.items()
            if not isinstance(part, Continuous)
        }
        self._nested = kind_of(actions.space) in ("Dict", "Tuple")

    def allocate(self, num: int) -> Arrays:
        """Return all-legal masks, part -> bool ``[num, size]``."""
        return {name: np.ones((num, size), np.bool_) for name, size in self.sizes.items()}

    def write(self, mask: Any, legal: Arrays, row: int) -> None:
        """Write one player's mask into ``legal[part][row]``; raises SpaceMismatch."""
        for name, size in self.sizes.items():
            value = mask
            for key in name.split("/") if self._nested else ():
                try:
                    value = value[key] if isinstance(value, Mapping) else value[int(key)]
                except (KeyError, IndexError, TypeError, ValueError):
                    value = None
                    break
            legal[name][row] = True if value is None else _mask_row(name, value, size)

    def batch(self, mask: Any, num: int) -> Arrays:
        """Return masks of a batch, part -> bool ``[num, size]``; raises SpaceMismatch."""
        if self._nested:
            raise SpaceMismatch("action_mask: batched masks of nested actions are not supported")
        (name,) = self.sizes
        array = np.asarray(mask)
        if array.shape != (num, self.sizes[name]):
            raise SpaceMismatch(
                f"action_mask: expected {(num, self.sizes[name])}, got {describe(mask)}"
            )
        return {name: array.astype(np.bool_)}


def _mask_row(name: str, value: Any, size: int) -> NDArray[np.bool_]:
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], np.ndarray):
        value = np.concatenate([np.ravel(item) for item in value])
    array = np.ravel(np.asarray(value))
    if array.shape != (size,) or array.dtype.kind not in "biuf":
        raise SpaceMismatch(
            f"action_mask of {name!r}: expected {size} flags, got {describe(value)}"
        )
    return array.astype(np.bool_)
