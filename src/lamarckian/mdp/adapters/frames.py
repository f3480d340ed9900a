"""What a viewer can draw of a game that only shows arrays."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from lamarckian.mdp.core import Arrays, Input

MAX_NUMBERS = 256


def frame_of(inputs: Mapping[str, Input], arrays: Arrays, row: int) -> dict[str, Any]:
    """Return JSON-compatible data of one row: an image as base64 pixels, small arrays as numbers.

    ``pixels`` holds ``width``, ``height`` and ``data``: grey values row by row (mean of three
    channels, else the last one, which is the newest of a stack).
    ``values`` maps the other inputs to their numbers (at most 256 of each).
    """
    frame: dict[str, Any] = {"kind": "arrays", "values": {}}
    for name, item in inputs.items():
        array = arrays[name][row]
        if item.kind == "image" and "pixels" not in frame:
            channels = array if item.layout == "CHW" else np.moveaxis(array, -1, 0)
            plane = channels[-1] if len(channels) != 3 else channels.mean(0).astype(array.dtype)
            if plane.dtype != np.uint8:
                plane = (np.clip(plane, 0.0, 1.0) * 255).astype(np.uint8)
            height, width = plane.shape
            data = base64.b64encode(np.ascontiguousarray(plane).tobytes()).decode("ascii")
            frame["pixels"] = {"width": width, "height": height, "data": data}
        else:
            flat = np.asarray(array).reshape(-1)[:MAX_NUMBERS]
            frame["values"][name] = [round(float(x), 5) for x in flat]
    return frame
