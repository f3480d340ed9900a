"""Drawing hints: how a viewer turns a game's frames into pictures without knowing the game.

A game class has ``drawing``, made once by :func:`scene`; each ``frame()`` holds only numbers. An item of a
scene names the field of the frame it draws; the field holds a list of points, so one item draws a whole
group. Coordinates grow to the right and downwards.

====== ==================================================== =====================================
shape  field of the frame                                   drawn as
====== ==================================================== =====================================
rect   ``[[x, y], ...]`` top left corners                   ``width`` by ``height``
circle ``[[x, y], ...]`` centres, optional third number:    ``radius``; opacity from the third
       strength in [0, 1]                                   number if there is one
line   ``[[x1, y1, x2, y2], ...]``                          ``width`` thick
text   a string or a number                                 at ``x``, ``y``, ``size`` high
====== ==================================================== =====================================
"""

from __future__ import annotations

from typing import Any

Drawing = dict[str, Any]


def scene(width: float, height: float, *items: Drawing, background: str = "#101418") -> Drawing:
    """Return the hints of a game whose world is ``width`` by ``height``."""
    return {"width": width, "height": height, "background": background, "items": list(items)}


def rect(field: str, width: float, height: float, color: str) -> Drawing:
    return {"shape": "rect", "field": field, "width": width, "height": height, "color": color}


def circle(field: str, radius: float, color: str) -> Drawing:
    return {"shape": "circle", "field": field, "radius": radius, "color": color}


def line(field: str, width: float, color: str) -> Drawing:
    return {"shape": "line", "field": field, "width": width, "color": color}


def text(field: str, x: float, y: float, size: float, color: str = "#d8dee9") -> Drawing:
    return {"shape": "text", "field": field, "x": x, "y": y, "size": size, "color": color}
