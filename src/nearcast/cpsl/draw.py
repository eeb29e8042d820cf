"""A pattern as a picture: the graph of its expressions, equal ones drawn once, as SVG.

Plain events stand at the bottom, each operator above what it waits for, the whole pattern on
top. An arrow goes from an operand up to its operator and says which operand it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import Any

from nearcast.clock import format_micros
from nearcast.cpsl import ast
from nearcast.model.cql2_literals import number_text
from nearcast.model.durations import format_seconds

__all__ = ["draw", "graph", "parts"]

_CHARACTER, _LINE, _PADDING = 7.3, 17, 9  # the measures of 12 px monospace text
_COLUMN_GAP, _ROW_GAP, _MARGIN = 28, 46, 16
_WRAP, _MOST_LINES = 30, 6
_STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1b1b1b}"
    ".name{font-weight:bold;fill:#7a3e00}.edge{fill:none;stroke:#667;stroke-width:1.3}"
    ".role{font-size:10px;fill:#556}rect{stroke:#445;stroke-width:1.2;rx:6}"
    ".event{fill:#eef4ff}.operator{fill:#fff4e0}.negation{fill:#ffe9e9}.root{stroke-width:2.6}"
)


@dataclass(slots=True)
class _Box:
    """One expression: what is written in it, what it stands on, and where it is."""

    kind: str
    lines: list[str]
    names: list[str] = field(default_factory=list)
    operands: list[tuple[int, str]] = field(default_factory=list)
    level: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        longest = max(map(len, [*self.lines, " ".join(self.names)]))
        roles = sum(len(role) + 1 for _, role in self.operands)  # below it, side by side
        return max(longest, roles) * _CHARACTER + 2 * _PADDING

    @property
    def height(self) -> float:
        return (len(self.lines) + bool(self.names)) * _LINE + 2 * _PADDING


def draw(pattern: ast.Pattern) -> str:
    """The pattern's graph as an SVG document. O(nodes log nodes)."""
    boxes = _boxes(pattern)
    width, height = _arrange(boxes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{_escaped(str(pattern))}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" style="fill:white;stroke:none"/>',
    ]
    for number, box in enumerate(boxes):
        parts += [_edge(boxes[below], box, role, n) for n, (below, role) in enumerate(box.operands)]
        parts.append(_shown(box, root=number == 0))
    return "\n".join([*parts, "</svg>", ""])


def graph(pattern: ast.Pattern) -> dict[str, Any]:
    """The same boxes, where they stand, for somebody else to draw; the whole pattern first."""
    boxes = _boxes(pattern)
    width, height = _arrange(boxes)
    return {
        "width": round(width), "height": round(height),
        "boxes": [
            {
                "kind": box.kind, "lines": box.lines, "names": box.names,
                "operands": [[number, role] for number, role in box.operands],
                "x": round(box.x, 1), "y": round(box.y, 1),
                "width": round(box.width, 1), "height": round(box.height, 1),
            }
            for box in boxes
        ],
    }  # fmt: skip


def parts(pattern: ast.Pattern) -> list[str]:
    """What each box of the graph stands for, as a pattern's text of its own."""
    found: dict[ast.Expression, int] = {}
    _boxes(pattern, found)
    return [str(ast.Pattern(each, _needed(each, pattern))) for each in found]


def _needed(expression: ast.Expression, pattern: ast.Pattern) -> tuple[ast.Definition, ...]:
    """The definitions that an expression speaks of, in the pattern's order."""
    names: set[str] = set()
    pending = [expression]
    while pending:
        for each in ast.walk(pending.pop()):
            if isinstance(each, ast.Reference) and each.name not in names:
                names.add(each.name)
                pending.append(pattern.definition(each.name))
    return tuple(each for each in pattern.definitions if each.name in names)


# --- the graph ----------------------------------------------------------------------------------


def _boxes(pattern: ast.Pattern, numbers: dict[ast.Expression, int] | None = None) -> list[_Box]:
    """The distinct expressions, the whole pattern first; variables stand for what they name.

    `numbers` is filled with them, in the order of their boxes.
    """
    bodies = {definition.name: definition.body for definition in pattern.definitions}
    numbers = {} if numbers is None else numbers
    boxes: list[_Box] = []

    def place(expression: ast.Expression) -> int:
        if isinstance(expression, ast.Reference):
            number = place(bodies[expression.name])
            name = f"${expression.name};"
            if name not in boxes[number].names:
                boxes[number].names.append(name)
            return number
        if expression not in numbers:
            numbers[expression] = len(boxes)
            box = _Box(_kind(expression), _label(expression))
            boxes.append(box)
            below = zip(ast.children(expression), _roles(expression), strict=True)
            box.operands = [(place(child), role) for child, role in below]
            box.level = 1 + max([boxes[n].level for n, _ in box.operands], default=-1)
        return numbers[expression]

    place(pattern.expression)
    return boxes


def _kind(expression: ast.Expression) -> str:
    if isinstance(expression, ast.Primitive):
        return "event"
    return "negation" if isinstance(expression, ast.Negation) else "operator"


def _roles(expression: ast.Expression) -> tuple[str, ...]:
    match expression:
        case ast.And(parts=parts) | ast.Or(parts=parts):
            return ("",) * len(parts)
        case ast.Concurrent():
            return ("", "")
        case ast.Negation(window=window):
            return (*("after", "before")[: len(ast.parts_of(window))], "none of")
        case ast.HappenAfter(window=window):
            return (*("after", "then")[: len(ast.parts_of(window))], "this")
        case ast.Temporal(window=window):
            return (*("after", "before")[: len(ast.parts_of(window))], "this")
        case _:
            return (
                ("of", "this")[-len(ast.children(expression)) :] if ast.children(expression) else ()
            )


def _label(expression: ast.Expression) -> list[str]:
    if isinstance(expression, ast.Primitive):
        lines = [line for each in expression.predicates for line in wrap(str(each), _WRAP)]
    else:
        lines = wrap(_operator(expression), _WRAP)
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], "…"]


def _operator(expression: ast.Expression) -> str:
    match expression:
        case ast.Temporal(symbol=symbol, window=ast.Fixed(at=at, length=length)):
            return f"{symbol} ({format_micros(at)}; {format_seconds(length)} s)"
        case ast.Temporal(symbol=symbol, window=ast.Following(length=length)):
            return f"{symbol} (…; {format_seconds(length)} s)"
        case ast.Temporal(symbol=symbol):
            return f"{symbol} (…; …)"
        case ast.HappenIn(symbol=symbol, region=region):
            return f"{symbol} ({region})"
        case ast.Distance(symbol=symbol, op=op, metres=metres, place=place):
            where = str(place) if isinstance(place, ast.Region) else "…"
            return f"{symbol} ({where}; {op}; {number_text(metres)} m)"
        case ast.Overlap(symbol=symbol, place=place) | ast.SamePlace(symbol=symbol, place=place):
            return f"{symbol} ({place if isinstance(place, ast.Region) else '…'})"
        case ast.Count(symbol=symbol, n=n):
            return f"{symbol} ({n})"
        case ast.Period(symbol=symbol, length=length):
            return f"{symbol} ({format_seconds(length)} s)"
        case ast.Sliding(symbol=symbol, n=n, length=length, step=step):
            return f"{symbol} ({n}; {format_seconds(length)} s; {step})"
        case ast.Dwell(symbol=symbol, region=region, length=length, margin=margin):
            return f"{symbol} ({region}; {format_seconds(length)} s; {number_text(margin)} m)"
        case ast.Approach(symbol=symbol, region=region, metres=metres, margin=margin):
            return f"{symbol} ({region}; {number_text(metres)} m; {number_text(margin)} m)"
        case ast.Crossing(symbol=symbol, region=region, margin=margin):
            return f"{symbol} ({region}; {number_text(margin)} m)"
        case _:
            return expression.symbol


# --- the layout ---------------------------------------------------------------------------------


def _arrange(boxes: list[_Box]) -> tuple[float, float]:
    """Give every box its place: levels from the top, each centred under what stands on it."""
    levels: dict[int, list[int]] = {}
    for number, box in enumerate(boxes):
        levels.setdefault(box.level, []).append(number)
    above: dict[int, list[int]] = {}
    for number, box in enumerate(boxes):
        for below, _ in box.operands:
            above.setdefault(below, []).append(number)
    rank: dict[int, float] = {}
    y = float(_MARGIN)
    rows = []
    for level in sorted(levels, reverse=True):
        row = levels[level]
        centres = {n: [rank[up] for up in above.get(n, ())] for n in row}
        row.sort(key=lambda n: (sum(centres[n]) / len(centres[n]) if centres[n] else 0.0, n))
        rank |= {n: (at + 0.5) / len(row) for at, n in enumerate(row)}
        rows.append(row)
        for n in row:
            boxes[n].y = y
        y += max(boxes[n].height for n in row) + _ROW_GAP
    widths = [sum(boxes[n].width for n in row) + _COLUMN_GAP * (len(row) - 1) for row in rows]
    total = max(widths)
    for row, width in zip(rows, widths, strict=True):
        x = _MARGIN + (total - width) / 2
        for n in row:
            boxes[n].x = x
            x += boxes[n].width + _COLUMN_GAP
    return total + 2 * _MARGIN, y - _ROW_GAP + _MARGIN


# --- the marks ----------------------------------------------------------------------------------


def _shown(box: _Box, *, root: bool) -> str:
    classes = f"{box.kind} root" if root else box.kind
    lines = [
        f'<rect class="{classes}" x="{box.x:.1f}" y="{box.y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}"/>'
    ]
    told = [(" ".join(box.names), ' class="name"')] * bool(box.names)
    told += [(line, "") for line in box.lines]
    for number, (line, style) in enumerate(told):
        y = box.y + _PADDING + _LINE * (number + 0.75)
        lines.append(
            f'<text{style} xml:space="preserve" x="{box.x + _PADDING:.1f}" y="{y:.1f}">'
            f"{_escaped(line)}</text>"
        )
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Text for XML, which has no control characters."""
    return escape(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text))


def _edge(below: _Box, above: _Box, role: str, number: int) -> str:
    x0, y0 = below.x + below.width / 2, below.y
    share = (number + 1) / (len(above.operands) + 1)
    x1, y1 = above.x + above.width * share, above.y + above.height
    middle = (y0 + y1) / 2
    path = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1 + 2:.1f}"
    drawn = f'<path class="edge" marker-end="url(#tip)" d="{path}"/>'
    if role:
        drawn += f'\n<text class="role" x="{x1 + 4:.1f}" y="{y1 + 14:.1f}">{role}</text>'
    return drawn
