"""Why a subscription matches an event, or does not: every test of every clause, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearcast.clock import format_micros
from nearcast.index.clauses import ClauseStore
from nearcast.kernels import geometry
from nearcast.matcher.places import shape_floats
from nearcast.matcher.residual import Place, residuals_hold, shape_meets
from nearcast.model.events import Event
from nearcast.model.geometry import Point, Space
from nearcast.model.schema import Schema, X

__all__ = ["Check", "ClauseExplanation", "Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Check:
    """One test: what was asked, whether it held, what the event has."""

    wanted: str
    held: bool
    found: str

    def __str__(self) -> str:
        return f"{'✓' if self.held else '✗'} {self.wanted}: {self.found}"


@dataclass(frozen=True, slots=True)
class ClauseExplanation:
    """All tests of one clause."""

    checks: tuple[Check, ...]

    @property
    def matched(self) -> bool:
        """Whether the clause holds."""
        return all(check.held for check in self.checks)

    @property
    def decisive(self) -> Check | None:
        """The first test that failed."""
        return next((check for check in self.checks if not check.held), None)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole story of one subscription and one event; readable with `str`."""

    subscription_id: str
    event_id: str
    validity: Check | None
    clauses: tuple[ClauseExplanation, ...]

    @property
    def matched(self) -> bool:
        """Whether the subscription wants the event."""
        valid = self.validity is None or self.validity.held
        return valid and any(clause.matched for clause in self.clauses)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        verb = "matches" if self.matched else "does not match"
        yield f"{self.subscription_id} {verb} {self.event_id}"
        if self.validity is not None:
            yield f"  {self.validity}"
        if not self.clauses:
            yield "  ✗ the filter contradicts itself: no event can satisfy it"
        for number, clause in enumerate(self.clauses, 1):
            if len(self.clauses) > 1:
                state = "holds" if clause.matched else "fails"
                yield f"  clause {number} of {len(self.clauses)} {state}"
            for check in clause.checks:
                yield f"    {check}"
            if not clause.checks:
                yield "    ✓ no restriction"


def explain(
    subscription_id: str,
    event: Event,
    store: ClauseStore,
    rows: list[int],
    schema: Schema,
    space: Space,
    expires: int | None,
    now: int | None,
) -> Explanation:
    """Evaluate the clauses of a subscription one test at a time."""
    validity = None
    if expires is not None and now is not None:
        validity = Check(
            f"valid until {format_micros(expires)}", now < expires, f"it is {format_micros(now)}"
        )
    place = (
        None if event.location is None else Place(shape_floats(event.location), space == "globe")
    )
    told = []
    for row, boxes in _clauses(store, rows):
        checks = [
            *_place_checks(store, row, boxes, event, place),
            *_predicate_checks(store, row, event, schema),
            *_word_checks(store, row, event, schema),
            *_residual_checks(store, row, event, place),
        ]
        told.append(ClauseExplanation(tuple(checks)))
    # A shape cut at the antimeridian stands in two rows that are told in the same words.
    return Explanation(subscription_id, event.id, validity, tuple(dict.fromkeys(told)))


def _clauses(store: ClauseStore, rows: list[int]) -> Iterator[tuple[int, list[Any]]]:
    """Each row with its box; the two halves of a box cut at the antimeridian come as one."""
    at = 0
    while at < len(rows):
        row, boxes = rows[at], _boxes(store, rows[at])
        if at + 1 < len(rows) and _halves(store, row, rows[at + 1]):
            boxes += _boxes(store, rows[at + 1])
            at += 1
        yield row, boxes
        at += 1


def _boxes(store: ClauseStore, row: int) -> list[Any]:
    t = store.table
    at = int(t.start[row])
    if t.count[row] < 2 or t.attr[at] != X:
        return []
    return [np.array([t.low[at], t.low[at + 1], t.high[at], t.high[at + 1]])]


def _halves(store: ClauseStore, row: int, other: int) -> bool:
    """Whether two rows differ only in the side of the antimeridian that their boxes touch."""
    west, east = _boxes(store, row), _boxes(store, other)
    if not (west and east) or store.shapes(row) or store.shapes(other):
        return False
    touching = west[0][0] == -180.0 and east[0][2] == 180.0
    level = bool((west[0][[1, 3]] == east[0][[1, 3]]).all())
    return touching and level and _beside_box(store, row) == _beside_box(store, other)


def _beside_box(store: ClauseStore, row: int) -> tuple[object, ...]:
    """What a row with a box asks for beside it."""
    t = store.table
    run = slice(int(t.start[row]) + 2, int(t.start[row]) + int(t.count[row]))
    numbers = (t.attr[run].tolist(), t.low[run].tolist(), t.high[run].tolist())
    return (*numbers, store.words(row).tolist(), store.residuals.get(row, ()))


def _place_checks(
    store: ClauseStore, row: int, boxes: list[Any], event: Event, place: Place | None
) -> Iterator[Check]:
    if not boxes:
        return
    # The box of a row with shapes is only where an index looks for them.
    shapes: list[tuple[int, list[Any]]] = [(k, [f]) for k, f in store.shapes(row)]
    for kind, parts in shapes or [(geometry.BOX, boxes)]:
        wanted = _shape_text(kind, _whole(parts))
        if place is None:
            yield Check(wanted, False, "the event has no location")
            continue
        held = any(shape_meets(kind, floats, place) for floats in parts)
        yield Check(wanted, held, _where(kind, parts[0], place, event))


def _whole(parts: list[Any]) -> Any:
    """A shape, or the box of two halves: it begins in the east and ends in the west."""
    if len(parts) == 1:
        return parts[0]
    west, east = parts
    return np.array([east[0], east[1], west[2], west[3]])


def _shape_text(kind: int, f: Any) -> str:
    if kind == geometry.CIRCLE:
        return f"location within {f[2]:g} m of ({f[0]:g}, {f[1]:g})"
    if kind == geometry.BOX:
        return f"location in the box ({f[0]:g}, {f[1]:g}) – ({f[2]:g}, {f[3]:g})"
    if kind == geometry.PLACED:
        return f"location in the shape of {_corners(f[3:])} points about ({f[0]:g}, {f[1]:g})"
    return f"location in the polygon of {_corners(f)} points"


def _corners(polygon: Any) -> int:
    return sum(int(n) for n in polygon[1 : 1 + int(polygon[0])])


def _where(kind: int, floats: Any, place: Place, event: Event) -> str:
    if isinstance(event.location, Point):
        here = f"the event is at ({event.location.x:g}, {event.location.y:g})"
        if kind == geometry.CIRCLE and place.globe:
            away = geometry.haversine_m(floats[0], floats[1], event.location.x, event.location.y)
            return f"{here}, {away:.0f} m away"
        if kind == geometry.CIRCLE:
            away = math.dist((floats[0], floats[1]), (event.location.x, event.location.y))
            return f"{here}, {away:g} away"
        if kind == geometry.PLACED:
            east, north = geometry.seen_from(*floats[:2], *place.floats, place.globe)
            return f"{here}, {east:.6g} to the east and {north:.6g} to the north"
        return here
    return f"the event covers a {type(event.location).__name__.lower()}"


def _predicate_checks(
    store: ClauseStore, row: int, event: Event, schema: Schema
) -> Iterator[Check]:
    t = store.table
    start = int(t.start[row])
    for k in range(start, start + int(t.count[row])):
        column = int(t.attr[k])
        if column < 2:
            continue
        name, type_ = schema.columns[column]
        if type_ == "letters":  # what follows from a test of the string
            continue
        low, high = float(t.low[k]), float(t.high[k])
        value = event.attributes.get(name)
        if value is None:
            found = "the event has no such attribute"
            held = False
        else:
            found = f"the event has {value!r}"
            held = _type_of(value) == type_
            if held:
                code = schema.strings.get(value, -1) if isinstance(value, str) else value
                held = low <= float(code) <= high
            else:
                found += f", a {_type_of(value)}"
        yield Check(_interval_text(name, type_, low, high, schema), held, found)


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"


def _interval_text(name: str, type_: str, low: float, high: float, schema: Schema) -> str:
    if type_ == "string":
        return f"{name} = {schema.string_of(int(low))!r}"
    if type_ == "bool":
        return f"{name} = {'TRUE' if low else 'FALSE'}"
    if low == high:
        return f"{name} = {low:.17g}"
    if low == -math.inf and high == math.inf:
        return f"{name} is a number"
    below, above = _bound(high, "<", "≤", math.inf), _bound(low, ">", "≥", -math.inf)
    if low == -math.inf:
        return f"{name} {below}"
    if high == math.inf:
        return f"{name} {above}"
    return f"{name} {above} and {below}"


def _bound(value: float, strict: str, closed: str, toward: float) -> str:
    """An end as a person would write it: `< 3300`, not `≤ 3299.9999999999995`."""
    beyond = math.nextafter(value, toward)
    if len(repr(beyond)) < len(repr(value)) - 4:
        return f"{strict} {beyond:.17g}"
    return f"{closed} {value!r}"


def _word_checks(store: ClauseStore, row: int, event: Event, schema: Schema) -> Iterator[Check]:
    for code in store.words(row).tolist():
        word = schema.word_of(code)
        held = word in event.keywords
        found = "it is there" if held else f"the event has {_listed(event.keywords)}"
        yield Check(f"keyword {word!r}", held, found)


def _listed(words: frozenset[str]) -> str:
    if not words:
        return "no keywords"
    shown = ", ".join(sorted(words)[:8])
    return shown if len(words) <= 8 else f"{shown} and {len(words) - 8} more"


def _residual_checks(
    store: ClauseStore, row: int, event: Event, place: Place | None
) -> Iterator[Check]:
    for residual in store.residuals.get(row, ()):
        name = getattr(residual, "attribute", None)
        if name is None:
            found = "by the event's place or words"
        elif name in event.attributes:
            found = f"the event has {event.attributes[name]!r}"
        else:
            found = "the event has no such attribute"
        yield Check(str(residual), residuals_hold((residual,), event, place), found)
