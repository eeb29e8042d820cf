"""From subscriptions and events, one object at a time, to rows of integers and floats.

`bulk` does the same for whole Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index.clauses import Clauses, ClauseStore, Extra, table_of_one
from nearcast.index.events import EventBatch
from nearcast.kernels import arrange
from nearcast.kernels.plain import BOXED, NOWHERE
from nearcast.matcher.places import (
    Bounds,
    PlainPlace,
    index_boxes,
    plain_place,
    shape_floats,
)
from nearcast.model.events import Event, Value
from nearcast.model.filters import Filter
from nearcast.model.geometry import (
    Around,
    Box,
    Circle,
    Location,
    Point,
    Polygon,
    Space,
    check_space,
)
from nearcast.model.letters import letters_of, spans_of
from nearcast.model.placing import Facing, Placed, Whereabouts, placed
from nearcast.model.predicates import Clause, Residual, Simple, SpatialResidual
from nearcast.model.schema import UNKNOWN, Schema, X, Y, arranged
from nearcast.model.subscriptions import Subscription

__all__ = [
    "EncodedClause",
    "EncodedEvent",
    "Plain",
    "batch_of_one",
    "encode_event",
    "encode_plain",
    "encode_subscription",
    "encoded_row",
    "fixed_region",
    "place_of",
    "plain_of",
    "plain_query",
]


I4 = npt.NDArray[np.int32]
F8 = npt.NDArray[np.float64]


class EncodedClause(NamedTuple):
    """One clause row: predicates in the order in which they should be tested."""

    attr: I4
    low: F8
    high: F8
    extra: Extra | None


class EncodedEvent(NamedTuple):
    """One event: columns ascending with their values, word codes ascending."""

    attr: I4
    value: F8
    word: I4


_NO_WORDS = np.empty(0, np.int32)
_NUMBERS = frozenset((int, float))
#: Predicates beyond which it does not matter how long encoding takes.
_MANY = 1000
_NOWHERE = (0.0, 0.0, 0.0, 0.0)
_NO_PLACE: PlainPlace = (NOWHERE, 0.0, 0.0, 0.0, 0.0)


def fixed_region(
    subscription: Subscription, at: Whereabouts, space: Space
) -> Circle | Box | Polygon | Placed | None:
    """The region as it stands on the map; `Around` needs to be told where."""
    region = subscription.region
    if isinstance(region, Around):
        if at is None:
            raise ValidationError(
                "region", region, "Around follows a subscriber: say where with at=Point(…)"
            )
        if not isinstance(at, Point | Facing):
            raise ValidationError("at", at, "give a Point")
        check_space(Point(at.x, at.y), space, "at")
        check_space(region, space, "region")
        return placed(region, at)
    if region is not None:
        check_space(region, space, "region")
    return region


def encode_subscription(
    subscription: Subscription,
    schema: Schema,
    space: Space,
    at: Whereabouts = None,
    *,
    intern: bool = True,
) -> list[EncodedClause]:
    """The rows of a subscription: one a clause, two where its region crosses the antimeridian.

    Without `intern` the schema stays as it is, and clauses are left out that ask for a
    name, string or word it does not have: nothing encoded so far can satisfy them.
    """
    region = fixed_region(subscription, at, space)
    regions = () if region is None else (region,)
    simple = subscription.filter.simple
    if simple is not None and intern:
        predicates = _predicates(simple, schema)
        return _encode_parts(predicates, subscription.keywords, regions, (), schema, space, True)
    rows: list[EncodedClause] = []
    for clause in subscription.filter.clauses:
        _check_clause(clause, space)
        words = subscription.keywords | clause.words
        if intern or _is_known(clause, words, schema):
            rows += _encode_clause(clause, words, regions, schema, space, intern)
    return rows


#: A subscription of one clause that is nothing but intervals on known columns, and its place:
#: see `nearcast.kernels.plain`.
Plain: TypeAlias = tuple[F8, PlainPlace]


def plain_of(
    subscription: Subscription, schema: Schema, space: Space, at: Whereabouts = None
) -> Plain | None:
    """The intervals and the place of a subscription that consists of nothing else."""
    filter, region = subscription.filter, subscription.region
    if subscription.keywords:
        return None
    kept = filter.kept
    if kept is not None and kept[0] is schema.era:
        numbers = kept[1]
    else:
        numbers = _plain_numbers(filter, schema)
    place = _NO_PLACE if region is None else plain_place(region, space, at)
    return None if numbers is None or place is None else (numbers, place)


def _plain_numbers(filter: Filter, schema: Schema) -> F8 | None:
    """Columns, lows and highs of a filter of nothing but intervals on known ones; kept with it."""
    simple = filter.simple
    if simple is None or simple.equals:
        return None
    columns = [*map(schema.codes["number"].get, simple.names)]
    if None in columns or len(columns) > _MANY:
        return None
    found = np.empty((3, len(columns)))
    found[0], found[1], found[2] = columns, simple.low, simple.high
    filter.keep(schema.era, found)
    return found


def encode_plain(plain: Plain, schema: Schema) -> EncodedClause | None:
    """The row of a plain subscription without a circle, if there is nothing to learn from it."""
    made, known = _plain_row(plain, schema)
    return made if known else None


def plain_query(subscription: Subscription, schema: Schema, space: Space) -> Clauses | None:
    """A plain subscription as row 0 of a table to match with; None for others.

    A circle that does not fit into one box is for others, too.
    """
    plain = plain_of(subscription, schema, space)
    if plain is None:
        return None
    numbers, (kind, *place) = plain
    circle = None
    if kind > BOXED:
        circle = place[:3]
        boxes = index_boxes(Circle(*circle), space)
        if len(boxes) > 1:
            return None
        plain = numbers, (BOXED, *boxes[0])
    made, _ = _plain_row(plain, schema)
    return None if made is None else table_of_one(*made[:3], len(schema.columns), circle)


def _plain_row(plain: Plain, schema: Schema) -> tuple[EncodedClause | None, bool]:
    """The row of a plain subscription, None with a circle; whether there is nothing to learn."""
    numbers, (kind, *box) = plain
    if kind > BOXED:
        return None, False
    given = _Predicates(numbers[0].astype(np.int32), numbers[1], numbers[2], 0)
    bounds = (box[0], box[1], box[2], box[3]) if kind == BOXED else None
    return _arranged(given, bounds, None, schema)


def _is_known(clause: Clause, words: frozenset[str], schema: Schema) -> bool:
    """Whether the schema has every name, string and word that a clause asks for."""
    numbers, texts, flags = (schema.codes[t] for t in ("number", "string", "bool"))
    return (
        words <= schema.words.keys()
        and (not schema.letters or spans_of((), clause.residuals).keys() <= texts.keys())
        and all(interval.attribute in numbers for interval in clause.intervals)
        and all(
            equal.attribute in flags
            if isinstance(equal.value, bool)
            else equal.attribute in texts and equal.value in schema.strings
            for equal in clause.equals
        )
    )


def _check_clause(clause: Clause, space: Space) -> None:
    for region in clause.regions:
        check_space(region, space, "where")
    for residual in clause.residuals:
        if isinstance(residual, SpatialResidual):
            shapes = residual.shape if isinstance(residual.shape, tuple) else (residual.shape,)
            for shape in shapes:
                check_space(shape, space, "where")


def _encode_clause(
    clause: Clause,
    words: frozenset[str],
    regions: Sequence[Circle | Box | Polygon | Placed],
    schema: Schema,
    space: Space,
    learn: bool,
) -> list[EncodedClause]:
    simple = Simple(*clause.numbers(), clause.equals)
    predicates = _predicates(simple, schema, clause.residuals)
    every = (*regions, *clause.regions)
    return _encode_parts(predicates, words, every, clause.residuals, schema, space, learn)


def _encode_parts(
    predicates: _Predicates,
    words: frozenset[str],
    every: Sequence[Circle | Box | Polygon | Placed],
    residuals: tuple[Residual, ...],
    schema: Schema,
    space: Space,
    learn: bool,
) -> list[EncodedClause]:
    """The rows of a clause, whose place meets every region."""
    codes = [schema.word(word) for word in words] if words else []
    ClauseStore.check_clause(predicates.attr.size + 2 * bool(every), len(codes))
    shapes = () if len(every) == 1 and isinstance(every[0], Box) else every
    extra = None
    if codes or shapes or residuals:
        extra = Extra(codes, [shape_floats(shape) for shape in shapes], residuals)
    if not every:
        return [_learnt(predicates, None, extra, schema, learn)]
    boxes = index_boxes(every[0], space)
    if len(every) > 1:
        boxes = min((index_boxes(region, space) for region in every), key=_area)
    return [_learnt(predicates, box, extra, schema, learn) for box in boxes]


class _Predicates(NamedTuple):
    """Intervals on columns, as they come; the last `flags` are of bools."""

    attr: I4
    low: F8
    high: F8
    flags: int


def _predicates(
    simple: Simple, schema: Schema, residuals: tuple[Residual, ...] = ()
) -> _Predicates:
    names, low, high, given = simple
    known = schema.codes["number"]
    columns = [*map(known.get, names)]
    if None in columns:
        columns = [schema.column(name, "number") for name in names]
    if schema.letters and (spans := spans_of(given, residuals)):
        columns += [schema.letters_column(name) for name in spans]
        ends = np.array([*spans.values()])
        low, high = np.append(low, ends[:, 0]), np.append(high, ends[:, 1])
    flags = 0
    if given:
        equals = sorted(given, key=lambda equal: isinstance(equal.value, bool))
        values = []
        for equal in equals:
            if isinstance(equal.value, bool):
                columns.append(schema.column(equal.attribute, "bool"))
                values.append(float(equal.value))
                flags += 1
            else:
                columns.append(schema.column(equal.attribute, "string"))
                values.append(float(schema.string(equal.value)))
        low, high = np.append(low, values), np.append(high, values)
    return _Predicates(np.array(columns, np.int32), low, high, flags)


def _learnt(
    given: _Predicates, box: Bounds | None, extra: Extra | None, schema: Schema, learn: bool
) -> EncodedClause:
    made, known = _arranged(given, box, extra, schema)
    if learn and not known:
        for column, a, b in zip(
            made.attr.tolist(), made.low.tolist(), made.high.tolist(), strict=True
        ):
            schema.learn(column, a, b)
        made, _ = _arranged(given, box, extra, schema)
    return made


def _arranged(
    given: _Predicates, box: Bounds | None, extra: Extra | None, schema: Schema
) -> tuple[EncodedClause, bool]:
    """A clause in the order of shares, and whether all its ends lie in the domains so far."""
    size = given.attr.size if box is None else 2 + given.attr.size
    attr, low, high = np.empty(size, np.int32), np.empty(size), np.empty(size)
    known = arrange.arrange_one(
        *given, *(box or _NOWHERE), schema.low, schema.high, attr, low, high
    )
    return EncodedClause(attr, low, high, extra), known


def _area(boxes: list[tuple[float, float, float, float]]) -> float:
    return sum((xmax - xmin) * (ymax - ymin) for xmin, ymin, xmax, ymax in boxes)


def place_of(location: Location | None, space: Space) -> tuple[float, float] | None:
    """A point's coordinates as they are encoded; None for no point."""
    if location is None:
        return None
    check_space(location, space, "location")
    if not isinstance(location, Point):
        return None
    if space == "globe" and location.x == 180.0:
        return -180.0, location.y
    return location.x, location.y


def encode_event(event: Event, schema: Schema, space: Space, *, intern: bool) -> EncodedEvent:
    """An event in the schema's codes.

    Names and strings the schema does not know are left out, since nobody asks for them;
    with `intern` they are entered, so that a later subscription can.
    """
    place = place_of(event.location, space)
    attributes = event.attributes
    values: list[Value] = [] if place is None else [*place]
    values += attributes.values()
    numbers = _NUMBERS.issuperset(map(type, values))
    if intern:
        _intern(event, schema, numbers)
    if numbers:
        attr, pick = schema.layout(tuple(attributes), place is not None)
    else:
        columns: list[int] = [] if place is None else [X, Y]
        _encode_mixed(attributes, schema, columns, values)
        attr, pick = arranged(columns)
    value = np.array(pick(values), np.float64)
    if intern:
        schema.learn_values(attr, value)
    words = schema.words
    word = sorted(words[w] for w in event.keywords if w in words) if event.keywords else ()
    return EncodedEvent(attr, value, np.array(word, np.int32) if word else _NO_WORDS)


def _encode_mixed(
    attributes: Mapping[str, Value], schema: Schema, columns: list[int], values: list[Value]
) -> None:
    """Append the columns of attributes of any type; put codes for values that are no numbers."""
    numbers, texts, flags = (schema.codes[t] for t in ("number", "string", "bool"))
    lettered: list[tuple[int, float]] = []
    for name, value in attributes.items():
        if isinstance(value, bool):
            columns.append(flags.get(name, UNKNOWN))
        elif isinstance(value, str):
            values[len(columns)] = schema.strings.get(value, -1)
            columns.append(texts.get(name, UNKNOWN))
            if schema.letters and columns[-1] != UNKNOWN:
                lettered.append((schema.letters_column(name), letters_of(value)))
        else:
            columns.append(numbers.get(name, UNKNOWN))
    for column, number in lettered:
        columns.append(column)
        values.append(number)


def _intern(event: Event, schema: Schema, numbers: bool) -> None:
    """Enter names, strings and words of an event, of which it may be known to have only numbers."""
    attributes = event.attributes
    known = schema.codes["number"].keys()
    if not (numbers and attributes.keys() <= known):
        for name, value in attributes.items():
            if isinstance(value, bool):
                schema.column(name, "bool")
            elif isinstance(value, str):
                schema.column(name, "string")
                schema.string(value)
            else:
                schema.column(name, "number")
    for word in event.keywords:
        schema.word(word)


def batch_of_one(event: EncodedEvent, columns: int) -> EventBatch:
    """A batch of one event, without copying it."""
    attr, value, word = event
    return EventBatch(_run_of(attr.size), attr, value, _run_of(word.size), word, columns)


def encoded_row(batch: EventBatch, row: int) -> EncodedEvent:
    """One event of a batch; the arrays are the batch's own."""
    values = slice(int(batch.start[row]), int(batch.start[row + 1]))
    words = slice(int(batch.word_start[row]), int(batch.word_start[row + 1]))
    return EncodedEvent(batch.attr[values], batch.value[values], batch.word[words])


@lru_cache(maxsize=256)
def _run_of(size: int) -> npt.NDArray[np.int64]:
    """The offsets of one run; nobody writes to them."""
    return np.array((0, size), np.int64)
