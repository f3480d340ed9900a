"""Frames of a replay as columns of small integers, so that minutes of play fit into a mail.

A frame is JSON data whose shape hardly changes from tick to tick. A column holds what one place of
the frame was at every tick, in the shortest of these forms (``page/decode.js`` reads them back):

=====================  ==============================================================================
``{"c": value}``       the same value at every tick
``{"d": [..], "p": 2}`` numbers: the first, then differences, all in units of 10^-p
``{"k": [..], "i": [..]}`` few different values: a table, and the column of indices into it
``{"o": {name: ..}}``  mappings with the same keys: a column for each
``{"a": [..]}``        lists of one length: a column for each place
``{"l": .., "f": ..}`` lists of changing length: the column of lengths, then all items as one column
``{"g": [h, w], "b": ..}`` images of bytes: base64 of all ticks, each as difference to the one before;
                       also those that come as ``width``, ``height`` and base64 ``data``
``{"v": [..]}``        anything else, as it is
=====================  ==============================================================================
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = dict[str, Any]

_IMAGE_CELLS = 256
_EXACT = 2**50
_MOST_PLACES = 6


def encode(values: Sequence[Any]) -> Column:
    """Return the column of ``values``; numbers are rounded to about 1/5000 of their range.

    Numbers that are not finite become None. Raises TypeError for what is not JSON data.
    """
    return _encode([plain(value) for value in values])


def decode(column: Column, count: int) -> list[Any]:
    """Return the ``count`` values of a column: the reference for ``page/decode.js``."""
    if "c" in column:
        return [column["c"]] * count
    if "d" in column:
        scale = 10 ** column["p"]
        totals = itertools.accumulate(column["d"])
        return [total / scale if column["p"] else total for total in totals]
    if "k" in column:
        return [column["k"][index] for index in decode(column["i"], count)]
    if "o" in column:
        parts = {name: decode(part, count) for name, part in column["o"].items()}
        return [{name: part[tick] for name, part in parts.items()} for tick in range(count)]
    if "a" in column:
        places = [decode(part, count) for part in column["a"]]
        return [[place[tick] for place in places] for tick in range(count)]
    if "l" in column:
        lengths = decode(column["l"], count)
        items = iter(decode(column["f"], sum(lengths)))
        return [list(itertools.islice(items, length)) for length in lengths]
    if "g" in column:
        shape = (count, *column["g"])
        steps = np.frombuffer(base64.b64decode(column["b"]), np.uint8).reshape(shape)
        images: list[Any] = np.cumsum(steps, axis=0, dtype=np.uint8).tolist()
        return images
    return list(column["v"])


def _encode(values: list[Any]) -> Column:
    if not values:
        return {"v": []}
    first = values[0]
    if all(_same(value, first) for value in values):
        return {"c": first}
    if all(_is_number(value) for value in values):
        return _numbers(values)
    if all(isinstance(value, dict) for value in values):
        keys = first.keys()
        if keys == {"width", "height", "data"} and (pixels := _pixels(values)) is not None:
            return _bytes(pixels)
        if all(value.keys() == keys for value in values):
            return {"o": {key: _encode([value[key] for value in values]) for key in keys}}
    elif all(isinstance(value, list) for value in values):
        return _lists(values)
    elif all(value is None or isinstance(value, (str, bool)) for value in values):
        table = list(dict.fromkeys(values))
        if len(table) <= len(values) // 2:
            index = {value: position for position, value in enumerate(table)}
            return {"k": table, "i": _encode([index[value] for value in values])}
    return {"v": values}


def _lists(values: list[Any]) -> Column:
    length = len(values[0])
    if any(len(value) != length for value in values):
        items = list(itertools.chain.from_iterable(values))
        return {"l": _encode([len(value) for value in values]), "f": _encode(items)}
    image = _image(values)
    if image is not None:
        return image
    return {"a": [_encode([value[place] for value in values]) for place in range(length)]}


def _image(values: list[Any]) -> Column | None:
    rows = values[0]
    if not rows or not isinstance(rows[0], list) or len(rows) * len(rows[0]) < _IMAGE_CELLS:
        return None
    try:
        pixels = np.array(values)
    except ValueError:
        return None
    if pixels.ndim != 3 or pixels.dtype.kind != "i" or pixels.min() < 0 or pixels.max() > 255:
        return None
    return _bytes(pixels.astype(np.uint8))


def _pixels(values: list[Any]) -> NDArray[np.uint8] | None:
    """Read images that come as ``width``, ``height`` and base64 ``data``; None if they are none."""
    shape = values[0]["height"], values[0]["width"]
    try:
        flat = [np.frombuffer(base64.b64decode(each["data"]), np.uint8) for each in values]
        return np.stack([each.reshape(shape) for each in flat])
    except (KeyError, TypeError, ValueError):
        return None


def _bytes(pixels: NDArray[np.uint8]) -> Column:
    steps = np.diff(pixels, axis=0, prepend=np.zeros_like(pixels[:1]))
    return {"g": list(pixels.shape[1:]), "b": base64.b64encode(steps.tobytes()).decode()}


def _numbers(values: list[Any]) -> Column:
    span = max(values) - min(values)
    places = 0
    if not all(isinstance(value, int) or value.is_integer() for value in values):
        places = min(_MOST_PLACES, max(0, math.ceil(3.7 - math.log10(span)))) if span else 0
    scale = 10**places
    if max(abs(value) for value in values) * scale > _EXACT:
        return {"v": values}
    whole = [round(value * scale) for value in values]
    steps = [whole[0], *(after - before for before, after in itertools.pairwise(whole))]
    return {"d": steps, "p": places}


def _same(value: Any, other: Any) -> bool:
    # 1, 1.0 and True are equal but not the same JSON.
    return type(value) is type(other) and value == other


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return ``value`` as JSON data; numbers that are not finite become None. Raises TypeError."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    raise TypeError(f"replay: a frame holds a {type(value).__name__}, which is not JSON data")
