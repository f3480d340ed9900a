"""Gymnasium observation spaces as named inputs, with checking and copying compiled once.

Spaces are recognised by the name of their class, so that gymnasium, gym and look-alikes all work and
none of them is imported here. A nested Dict or Tuple becomes flat names joined by ``/`` (``nested/a``);
a lone observation is called ``observation``.

What leaves this module is float32, uint8, int64 or bool: float64 is cast at this border.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import UnsupportedSpace
from lamarckian.mdp.core import Array, Arrays, Input

Layout = Literal["auto", "CHW", "HWC", "flat"]
Path = tuple[str | int, ...]

CHANNELS = (1, 3, 4)
MASK_KEY = "action_mask"
_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


class SpaceMismatch(ValueError):
    """Data contradict the declared space; the message names the key, what was expected and what came."""


def kind_of(space: Any) -> str:
    """Return the name of the space class that ``space`` is, or derives from; "" for an unknown one."""
    for base in type(space).__mro__:
        if base.__name__ in _KINDS:
            return base.__name__
    return ""


def unsupported(what: str, path: Path, space: Any) -> UnsupportedSpace:
    """Return the error that names the path of a space nobody here can express."""
    where = "/".join(map(str, path)) or "(root)"
    return UnsupportedSpace(
        f"{what} space {where}: {type(space).__name__} is not supported; expected {', '.join(_KINDS)}. "
        "Wrap the environment so that it shows a padded array instead"
    )


def children_of(space: Any, kind: str) -> list[tuple[str | int, Any]]:
    """Return ``(key, space)`` of a Dict, ``(index, space)`` of a Tuple."""
    if kind == "Dict":
        return list(space.spaces.items())
    return list(enumerate(space.spaces))


def name_of(path: Path, alone: str) -> str:
    """Join a path by ``/``; the root is called ``alone``."""
    return "/".join(map(str, path)) or alone


def describe(value: Any) -> str:
    """Say what a value is in an error message: dtype and shape, or its type."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    if value is None:
        return "None"
    return f"{type(value).__name__} {value!r:.60}"


@dataclass(slots=True)
class Leaf:
    """One array of an observation: where it lies in the native structure and what it becomes."""

    name: str
    path: Path
    item: Input
    shape: tuple[int, ...]
    source: np.dtype[Any]
    start: NDArray[np.int64] | int = 0
    low: Array | None = None
    high: Array | None = None

    def expected(self) -> str:
        return f"{self.source} {self.shape}"

    def convert(self, value: Any, lead: tuple[int, ...] = ()) -> Array:
        """Check ``value`` (``[*lead, ...]``) and return it in the declared dtype and shape.

        Raises SpaceMismatch for a wrong shape, a missing value, a lossy dtype, or a category out of
        range.
        """
        if value is None:
            raise SpaceMismatch(f"{self.name!r}: expected {self.expected()}, got None")
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.asarray(None, object)
        if array.dtype.kind not in "fiub" or array.shape != lead + self.shape:
            raise SpaceMismatch(f"{self.name!r}: expected {self.expected()}, got {describe(value)}")
        if self.item.kind == "category":
            ranks = array.astype(np.int64) - self.start
            if bool(np.any((ranks < 0) | (ranks >= self.item.num_categories))):
                raise SpaceMismatch(
                    f"{self.name!r}: expected a category in [{self.start}, "
                    f"{np.asarray(self.start) + self.item.num_categories - 1}], got {describe(value)}"
                )
            return np.asarray(ranks).reshape(lead + self.item.shape)
        cast = array.astype(self.source)
        if not np.can_cast(array.dtype, self.source, "same_kind") and not np.array_equal(
            cast, array
        ):
            raise SpaceMismatch(
                f"{self.name!r}: expected {self.expected()}, got {describe(value)}, which does not fit "
                "that dtype without loss"
            )
        return cast.astype(self.item.dtype, copy=False).reshape(lead + self.item.shape)

    def out_of_bounds(self, value: Array) -> str | None:
        """Name the first number outside the declared Box, or None."""
        if self.low is None or self.high is None:
            return None
        flat = np.asarray(value, np.float64).reshape(self.low.shape)
        outside = (flat < self.low) | (flat > self.high)
        if not outside.any():
            return None
        where = tuple(int(i[0]) for i in np.nonzero(outside))
        return (
            f"{self.name!r}{list(where)}: expected within [{self.low[where]:.6g}, "
            f"{self.high[where]:.6g}], got {flat[where]:.6g}"
        )


Writer = Callable[[Any, int], None]
Reader = Callable[[Any], Any]


class ObservationPlan:
    """How observations of one space become named arrays.

    ``inputs``    name -> Input, as a role declares them.
    ``leaves``    the same, with their place in the native structure.
    ``mask_key``  True if the observation carries ``action_mask`` beside ``observation``; it is then a
                  legal mask and not an input.

    Raises UnsupportedSpace naming the path of a space that cannot be expressed.
    """

    def __init__(self, space: Any, layout: Layout = "auto", split_mask: bool = True) -> None:
        self.space = space
        self.mask_key = (
            split_mask
            and kind_of(space) == "Dict"
            and MASK_KEY in space.spaces
            and len(space.spaces) > 1
        )
        self.leaves: list[Leaf] = []
        self._layout = layout
        self._root = space
        if self.mask_key:
            for key, child in space.spaces.items():
                if key != MASK_KEY:
                    self._collect(child, (key,))
        else:
            self._collect(space, ())
        self.inputs: dict[str, Input] = {leaf.name: leaf.item for leaf in self.leaves}
        if len(self.inputs) != len(self.leaves):
            names = [leaf.name for leaf in self.leaves]
            twice = next(name for name in names if names.count(name) > 1)
            raise UnsupportedSpace(
                f"observation space: two arrays are both called {twice!r}; rename one key"
            )
        if not self.leaves:
            raise UnsupportedSpace("observation space: it holds no array")

    def _collect(self, space: Any, path: Path) -> None:
        kind = kind_of(space)
        if kind in ("Dict", "Tuple"):
            for key, child in children_of(space, kind):
                self._collect(child, (*path, key))
            return
        name = name_of(path, "observation")
        if kind == "Box":
            self.leaves.append(self._box(space, name, path))
        elif kind == "Discrete":
            item = Input((), "int64", "category", num_categories=int(space.n))
            start = int(getattr(space, "start", 0))
            self.leaves.append(Leaf(name, path, item, (), np.dtype(np.int64), start))
        elif kind == "MultiDiscrete":
            nvec = np.asarray(space.nvec, np.int64)
            first = np.asarray(getattr(space, "start", np.zeros_like(nvec)), np.int64)
            item = Input(nvec.shape, "int64", "category", num_categories=int(nvec.max()))
            self.leaves.append(Leaf(name, path, item, nvec.shape, np.dtype(np.int64), first))
        elif kind == "MultiBinary":
            shape = tuple(int(size) for size in space.shape)
            self.leaves.append(Leaf(name, path, Input(shape), shape, np.dtype(np.int8)))
        else:
            raise unsupported("observation", path, space)

    def _box(self, space: Any, name: str, path: Path) -> Leaf:
        shape = tuple(int(size) for size in space.shape)
        source = np.dtype(space.dtype)
        if source.kind not in "fiub":
            raise unsupported("observation", path, space)
        dtype = "uint8" if source == np.uint8 else "float32"
        layout = self._layout
        if len(shape) == 3 and layout == "auto" and dtype == "uint8":
            layout = _infer_layout(name, shape)
        if len(shape) == 3 and layout in ("CHW", "HWC"):
            item = Input(shape, dtype, "image", layout=layout)
        else:
            item = Input(shape or (1,), dtype)
        return Leaf(
            name,
            path,
            item,
            shape,
            source,
            low=np.asarray(space.low, np.float64),
            high=np.asarray(space.high, np.float64),
        )

    def allocate(self, num: int) -> Arrays:
        """Return zeroed arrays, name -> ``[num, ...]``."""
        return {
            name: np.zeros((num, *item.shape), item.dtype) for name, item in self.inputs.items()
        }

    def writer(self, arrays: Arrays) -> Writer:
        """Return ``write(observation, row)``, which checks, casts and copies into ``arrays[name][row]``.

        ``write`` raises SpaceMismatch. The data are copied: an environment may reuse its arrays.
        """
        leaves = {leaf.path: leaf for leaf in self.leaves}

        def compile_space(space: Any, path: Path) -> Writer:
            kind = kind_of(space)
            if kind not in ("Dict", "Tuple"):
                return _leaf_writer(leaves[path], arrays[leaves[path].name])
            children = [
                (key, compile_space(child, (*path, key)))
                for key, child in children_of(space, kind)
                if not (self.mask_key and path == () and key == MASK_KEY)
            ]
            return _branch_writer(name_of(path, "observation"), kind, children)

        return compile_space(self._root, ())

    def views(self, observation: Any, num: int) -> Arrays:
        """Return the arrays of a batched observation, leading axis ``num``; no copy where dtypes agree.

        Raises SpaceMismatch.
        """
        arrays: Arrays = {}
        for leaf in self.leaves:
            value = observation
            try:
                for key in leaf.path:
                    value = value[key]
            except (KeyError, IndexError, TypeError) as error:
                raise SpaceMismatch(f"{leaf.name!r}: missing from the observation") from error
            if (
                type(value) is np.ndarray
                and value.dtype == leaf.item.dtype
                and value.shape == (num, *leaf.item.shape)
                and leaf.item.kind != "category"
            ):
                arrays[leaf.name] = value
            else:
                arrays[leaf.name] = leaf.convert(value, (num,))
        return arrays


def _infer_layout(name: str, shape: tuple[int, ...]) -> Literal["CHW", "HWC"]:
    if shape[2] in CHANNELS:
        return "HWC"
    if shape[0] in CHANNELS:
        return "CHW"
    smallest = min(shape)
    if shape[2] == smallest and shape[0] != smallest:
        return "HWC"
    if shape[0] == smallest and shape[2] != smallest:
        return "CHW"
    raise UnsupportedSpace(
        f"observation space {name}: cannot tell which axis of {shape} is the channel; "
        "give the option layout: HWC, CHW or flat"
    )


def _leaf_writer(leaf: Leaf, array: Array) -> Writer:
    if leaf.item.kind == "category":

        def write_category(value: Any, row: int) -> None:
            array[row] = leaf.convert(value)

        return write_category

    rows = [array[i].reshape(leaf.shape) for i in range(array.shape[0])]
    shape = leaf.shape
    # A dtype that proved safe once is safe for ever: then a step costs two comparisons and a copy.
    accepted = [leaf.source]
    ndarray = np.ndarray

    def write(value: Any, row: int) -> None:
        if type(value) is ndarray and value.dtype is accepted[0] and value.shape == shape:
            rows[row][...] = value
            return
        rows[row][...] = leaf.convert(value).reshape(shape)
        if type(value) is ndarray and np.can_cast(value.dtype, leaf.source, "same_kind"):
            accepted[0] = value.dtype

    return write


def _branch_writer(name: str, kind: str, children: list[tuple[str | int, Writer]]) -> Writer:
    def write(value: Any, row: int) -> None:
        for key, child in children:
            try:
                inner = value[key]
            except (KeyError, IndexError, TypeError) as error:
                raise SpaceMismatch(
                    f"{name!r}: expected a {kind} with {[key for key, _ in children]}, "
                    f"missing {key!r}, got {_keys(value)}"
                ) from error
            child(inner, row)

    return write


def _keys(value: Any) -> str:
    return f"keys {list(value)}" if isinstance(value, Mapping) else describe(value)
