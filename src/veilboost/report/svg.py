"""Building blocks of all drawings: elements, colours, and a frame with a title and a text alternative.

Attributes set colours, so that a file works by itself; classes let a page in dark mode choose others
(`templates/style.css`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Sequence
from html import escape

# Safe for colour-blind readers, with a contrast of at least 3 : 1 against white. Dashes and marks differ as well.
COLOURS = ("#1b6ca8", "#c2410c", "#2e7d32", "#7b3fa0", "#9a6700", "#00707d", "#b0185a", "#4d4d4d")
INK, GREY, GRID, PAPER = "#1a1a1a", "#555555", "#dddddd", "#ffffff"
FONT, TITLE = 12, 14
_WIDTH_OF_A_LETTER = 0.58  # relative to the font size, for DejaVu Sans, which is wide


def tag(name: str, content: str = "", /, **attributes: object) -> str:
    """An element; `class_` is class, `stroke_width` is stroke-width, numbers are rounded."""
    given = "".join(f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def text(
    x: float, y: float, words: str, *, anchor: str = "start", size: float = FONT, bold: bool = False, fill: str = INK
) -> str:
    kind, weight = "ink" if fill == INK else "grey", "bold" if bold else None
    look = {"font_size": size, "fill": fill, "class_": kind, "text_anchor": anchor, "font_weight": weight}
    return tag("text", escape(words), x=x, y=y, **look)


def width_of(words: str, size: float = FONT) -> float:
    """The approximate width of text."""
    return len(words) * size * _WIDTH_OF_A_LETTER


def wrapped(words: str, width: float, size: float = FONT) -> list[str]:
    """Wrap text into lines of at most this width, if words allow it."""
    lines: list[str] = []
    for word in words.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def drawing(parts: Sequence[str], width: float, height: float, title: str, description: str) -> str:
    """A complete SVG file, which can also be embedded in a page."""
    content = "\n".join(parts)
    own = "g" + hashlib.sha256(f"{title}{description}{content}".encode()).hexdigest()[:10]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="DejaVu Sans, Arial, Helvetica, sans-serif" role="img" '
        f'aria-labelledby="{own}t {own}d">\n<title id="{own}t">{escape(title)}</title>'
        f'<desc id="{own}d">{escape(description)}</desc>\n'
        f"{tag('rect', width=width, height=height, fill=PAPER, class_='paper')}\n{content}\n</svg>\n"
    )


def size_of(svg: str) -> tuple[float, float]:
    """Width and height of a drawing."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if found is None:
        raise ValueError("not a drawing of this module")
    return float(found[1]), float(found[2])


def heading(title: str, width: float) -> tuple[list[str], float]:
    """The lines of the title, and the y coordinate below them."""
    lines = wrapped(title, width - 24, TITLE)
    parts = [text(12, 20 + 18 * at, line, size=TITLE, bold=True) for at, line in enumerate(lines)]
    return parts, 8 + 18.0 * len(lines)


def legend(
    names: Sequence[str], width: float, y: float, key: str, dashed: Collection[str] = (), levels: Collection[str] = ()
) -> tuple[list[str], float]:
    """Names with their keys in rows below `y`; `key` is "line" or "box". Empty for a single name.

    Lines of `dashed` names are dashed; those of `levels` too, without marks.
    """
    if len(names) < 2:
        return [], y
    parts: list[str] = []
    x, line = 12.0, y + 16
    for at, name in enumerate(names):
        needs = 34 + width_of(name)
        if x + needs > width and x > 12:
            x, line = 12.0, line + 18
        if key == "line":
            parts.append(stroke(at, [(x, line - 4), (x + 24, line - 4)], dashed=name in dashed or name in levels))
            parts += [] if name in levels else [mark(at, x + 12, line - 4)]
        else:
            parts.append(tag("rect", x=x + 6, y=line - 10, width=12, height=12, **filled(at)))
        parts.append(text(x + 29, line, name))
        x += needs + 8
    return parts, line + 6


def filled(at: int) -> dict[str, str]:
    """Fill attributes of series `at`."""
    return {"fill": COLOURS[at % len(COLOURS)], "class_": f"f{at % len(COLOURS)}"}


def stroke(at: int, points: Sequence[tuple[float, float]], dashed: bool = False) -> str:
    """The line of series `at`."""
    again, nth = divmod(at, len(COLOURS))
    dash = "6 4" if dashed else (None, "8 3", "3 3", "10 3 3 3")[again % 4]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    look = {"stroke": COLOURS[nth], "stroke_width": 2, "stroke_dasharray": dash, "stroke_linejoin": "round"}
    return tag("polyline", points=path, fill="none", **look, class_=f"s{nth}")


def band(at: int, lower: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]]) -> str:
    """The area between two lines of series `at`."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*lower, *reversed(upper)))
    return tag("polygon", points=path, **filled(at), fill_opacity="0.15")


def mark(at: int, x: float, y: float, r: float = 3.6) -> str:
    """A point of series `at`: a disc, square, triangle, diamond or cross."""
    if at % 5 == 0:
        return tag("circle", cx=x, cy=y, r=r, **filled(at))
    corners = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in _corners(at % 5, r))
    return tag("polygon", points=corners, **filled(at))


def _corners(kind: int, r: float) -> Iterator[tuple[float, float]]:
    if kind == 4:
        a, b = r * 1.1, r * 0.4
        yield from ((-b, -a), (b, -a), (b, -b), (a, -b), (a, b), (b, b))
        yield from ((b, a), (-b, a), (-b, b), (-a, b), (-a, -b), (-b, -b))
        return
    count, turn, reach = {1: (4, math.pi / 4, 1.25), 2: (3, -math.pi / 2, 1.3), 3: (4, 0.0, 1.3)}[kind]
    for corner in range(count):
        angle = turn + 2 * math.pi * corner / count
        yield r * reach * math.cos(angle), r * reach * math.sin(angle)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))
