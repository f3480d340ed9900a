"""Pictures of a match in a terminal: half blocks, two pixels a character.

A game with drawing hints (:mod:`lamarckian.mdp.games.drawing`) is drawn by them; of any other frame the
numbers are listed. Nothing here knows a game.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
HOME = "\x1b[H"
TO_LINE_END = "\x1b[K"
TO_SCREEN_END = "\x1b[J"
MAX_CELLS = 120
"""Pictures are at most so many characters wide: more only costs time in the terminal."""


def hex_color(text: str) -> NDArray[np.uint8]:
    """Return ``#rrggbb`` as three numbers; white for anything else."""
    match = re.fullmatch(r"#([0-9a-fA-F]{6})", text)
    value = int(match[1], 16) if match else 0xFFFFFF
    return np.array([value >> 16 & 255, value >> 8 & 255, value & 255], np.uint8)


class Canvas:
    """``columns`` by ``2 * rows`` pixels, of which each character shows two, and text over them.

    Coordinates are those of a world ``width`` by ``height`` that fills the canvas.
    """

    def __init__(
        self, columns: int, rows: int, width: float, height: float, background: str
    ) -> None:
        self.columns, self.rows = columns, rows
        self.pixels = np.empty((2 * rows, columns, 3), np.uint8)
        self.pixels[:] = hex_color(background)
        self.letters: dict[tuple[int, int], tuple[str, NDArray[np.uint8]]] = {}
        self._scale = np.array([columns / width, 2 * rows / height])

    def rect(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """Fill a rectangle given by its top left corner; at least one pixel if it is inside."""
        left, top = np.array([x, y]) * self._scale
        right, bottom = np.array([x + width, y + height]) * self._scale
        rows = _span(top, bottom, 2 * self.rows)
        columns = _span(left, right, self.columns)
        self.pixels[rows, columns] = hex_color(color)

    def circle(self, x: float, y: float, radius: float, color: str, strength: float = 1.0) -> None:
        """Fill a disc; ``strength`` in [0, 1] mixes it with what lies below."""
        rows, columns = np.mgrid[0 : 2 * self.rows, 0 : self.columns]
        dx = (columns + 0.5) / self._scale[0] - x
        dy = (rows + 0.5) / self._scale[1] - y
        inside = dx**2 + dy**2 <= radius**2
        if not inside.any():  # smaller than a pixel
            row, column = int(y * self._scale[1]), int(x * self._scale[0])
            if not (0 <= row < 2 * self.rows and 0 <= column < self.columns):
                return
            inside[row, column] = True
        share = min(max(strength, 0.0), 1.0)
        mixed = self.pixels[inside] * (1.0 - share) + hex_color(color) * share
        self.pixels[inside] = mixed.astype(np.uint8)

    def line(self, x1: float, y1: float, x2: float, y2: float, width: float, color: str) -> None:
        """Draw a line ``width`` thick, at least a pixel."""
        start = np.array([x1, y1]) * self._scale
        end = np.array([x2, y2]) * self._scale
        steps = int(np.abs(end - start).max() * 2) + 1
        thick = max(1, round(width * float(self._scale.min())))
        points = start + (end - start) * np.linspace(0.0, 1.0, steps + 1)[:, None]
        corners = np.floor(points - (thick - 1) / 2).astype(int)
        for dx in range(thick):
            for dy in range(thick):
                columns, rows = corners[:, 0] + dx, corners[:, 1] + dy
                inside = (
                    (rows >= 0) & (rows < 2 * self.rows) & (columns >= 0) & (columns < self.columns)
                )
                self.pixels[rows[inside], columns[inside]] = hex_color(color)

    def text(self, x: float, y: float, text: str, color: str) -> None:
        """Write ``text`` centred at a point of the world; what leaves the canvas is cut off."""
        column = round(x * self._scale[0] - len(text) / 2)
        row = min(max(int(y * self._scale[1] / 2), 0), self.rows - 1)
        for offset, letter in enumerate(text):
            if 0 <= column + offset < self.columns and letter.isprintable():
                self.letters[row, column + offset] = (letter, hex_color(color))

    def lines(self, *, colored: bool) -> list[str]:
        """Return the rows as text, with 24-bit colours or with the blocks alone."""
        shown = []
        for row in range(self.rows):
            upper, lower = self.pixels[2 * row], self.pixels[2 * row + 1]
            cells = [
                self._cell(row, column, upper[column], lower[column], colored)
                for column in range(self.columns)
            ]
            shown.append(_join(cells))
        return shown

    def _cell(
        self,
        row: int,
        column: int,
        upper: NDArray[np.uint8],
        lower: NDArray[np.uint8],
        colored: bool,
    ) -> tuple[str, str]:
        """One character and the colours before it."""
        letter = self.letters.get((row, column))
        if colored:
            if letter is not None:
                return _colors(letter[1], upper), letter[0]
            return _colors(upper, lower), "▀"
        if letter is not None:
            return "", letter[0]
        bright = (_is_bright(upper), _is_bright(lower))
        return "", {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}[bright]


def draw(frame: Mapping[str, Any], drawing: Mapping[str, Any], columns: int, rows: int) -> Canvas:
    """Draw one frame of a game by its hints, as large as fits with square pixels."""
    width, height = float(drawing["width"]), float(drawing["height"])
    scale = min(min(columns, MAX_CELLS) / width, 2 * rows / height)
    canvas = Canvas(
        max(1, int(width * scale)),
        max(1, int(height * scale / 2)),
        width,
        height,
        str(drawing.get("background", "#000000")),
    )
    for item in drawing["items"]:
        value = frame.get(item["field"])
        if value is None:
            continue
        shape, color = item["shape"], item["color"]
        if shape == "text":
            canvas.text(item["x"], item["y"], str(value), color)
            continue
        for point in value:
            if shape == "rect":
                canvas.rect(point[0], point[1], item["width"], item["height"], color)
            elif shape == "circle":
                canvas.circle(point[0], point[1], item["radius"], color, *point[2:3])
            elif shape == "line":
                x1, y1, x2, y2 = point[:4]
                canvas.line(x1, y1, x2, y2, item["width"], color)
    return canvas


def list_numbers(frame: Mapping[str, Any], columns: int, rows: int) -> list[str]:
    """Return the frame's fields as aligned lines: what is shown of a game without hints."""
    cells = [(name, _brief(value)) for name, value in _flat("", frame)]
    width = max((len(name) for name, _ in cells), default=0)
    shown = [f"{name.ljust(width)}  {text}"[:columns] for name, text in cells[:rows]]
    if len(cells) > rows:
        shown[-1] = f"... and {len(cells) - rows + 1} more"
    return shown


class Screen:
    """The terminal's other screen, entered and left as a context; the old contents come back."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout
        self._colored = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Screen:
        self._stream.write(ENTER)
        self._stream.flush()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.write(LEAVE)
        self._stream.flush()

    def show(
        self, frame: Mapping[str, Any], drawing: Mapping[str, Any] | None, notes: list[str]
    ) -> None:
        """Draw a frame with ``notes`` below it."""
        size = shutil.get_terminal_size()
        rows = max(1, size.lines - len(notes) - 1)
        if drawing is None:
            lines = list_numbers(frame, size.columns, rows)
        else:
            lines = draw(frame, drawing, size.columns, rows).lines(colored=self._colored)
        below = [note[: size.columns] for note in notes]
        text = f"{TO_LINE_END}\r\n".join([*lines, *below])
        self._stream.write(f"{HOME}{text}{TO_LINE_END}{TO_SCREEN_END}")
        self._stream.flush()


def _span(low: float, high: float, size: int) -> slice:
    first = max(round(low), 0)
    last = max(round(high), round(low) + 1)
    return slice(min(first, size), max(min(last, size), 0))


def _colors(front: NDArray[np.uint8], back: NDArray[np.uint8]) -> str:
    r, g, b = front.tolist()
    x, y, z = back.tolist()
    return f"\x1b[38;2;{r};{g};{b};48;2;{x};{y};{z}m"


def _is_bright(color: NDArray[np.uint8]) -> int:
    red, green, blue = color.tolist()
    return int(0.3 * red + 0.59 * green + 0.11 * blue > 64)


def _join(cells: list[tuple[str, str]]) -> str:
    """Put a row together; colours are written only where they change."""
    parts: list[str] = []
    present = ""
    for colors, letter in cells:
        if colors != present:
            parts.append(colors)
            present = colors
        parts.append(letter)
    if present:
        parts.append("\x1b[0m")
    return "".join(parts)


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [pair for key, each in value.items() for pair in _flat(f"{prefix}{key}.", each)]
    return [(prefix.rstrip("."), value)]


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "-"
    if isinstance(value, list):
        inner = ", ".join(_brief(each) for each in value[:12])
        return f"[{inner}{', ...' if len(value) > 12 else ''}]"
    return str(value)
