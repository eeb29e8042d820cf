"""Hypothesis strategies shared by all tests.

Values come from small pools, so that equal values, shared borders and touching corners are
drawn often. On the globe all latitudes of the pools are north of the equator: then no shape
holds the antipode of another one, where the azimuthal projection has no bearing and a
distance would hang on the last bit; the antimeridian and the north pole are drawn often. For
the same reason radii there are never 0: a metre is far more than rounding. Strategies are
cached: Hypothesis spends more time on making and checking them than on drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from hypothesis import assume
from hypothesis import strategies as st

from nearcast.errors import FilterTooLarge
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Around, Box, Circle, Location, Point, Polygon, Region
from nearcast.model.subscriptions import Subscription

# --- pools ------------------------------------------------------------------------------------

NUMBERS: tuple[float | int, ...] = (-1, 0, 0.5, 1, 2, 2.5, 3, 10, 1e300, -1e-300, 2**53)
STRINGS = ("", "a", "ab", "abc", "b", "A", "it's", "50%", "a_c", "back\\slash", "é", "日本", "🙂")
WORDS = ("sale", "phone", "Straße", "ｆｕｌｌ", "new", "café")
NUMERIC, TEXTUAL, LOGICAL, MIXED = ("price", "size"), ("brand", "name"), ("open",), ("any", "a b")
ATTRIBUTES = NUMERIC + TEXTUAL + LOGICAL + MIXED

LONGITUDES = (-180.0, -179.0, -178.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 178.0, 179.0, 180.0)
LATITUDES = (1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 89.0, 90.0)
RADII_M = (1.0, 50_000.0, 111_000.0, 112_000.0, 160_000.0, 400_000.0, 9_000_000.0)
GRID = (-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0)
RADII = (0.0, 0.5, 1.0, 2.0, 7.0)

HOUR = 3_600_000_000
TIMES = tuple(1_700_000_000_000_000 + hour * HOUR + extra for hour in range(4) for extra in (0, 1))

# Polygons of at most 4 × 4 units; none has an edge whose distance from a point of the grid is a
# whole number unless the edge is parallel to an axis, so rounding never decides.
OUTLINES: tuple[Sequence[Sequence[tuple[float, float]]], ...] = (
    [[(0, 0), (1, 0), (0, 1)]],
    [[(0, 0), (3, 1), (1, 3)]],
    [[(1, 0), (2, 1), (1, 2), (0, 1)]],
    [[(0, 0), (2, 0), (2, 2), (0, 2)]],
    [[(0, 0), (3, 0), (3, 1), (1, 1), (1, 3), (0, 3)]],
    [[(0, 0), (4, 0), (4, 3), (3, 3), (3, 1), (1, 1), (1, 3), (0, 3)]],
    [[(0, 0), (2, 1), (4, 0), (3, 2), (4, 4), (2, 3), (0, 4), (1, 2)]],
    [[(0, 0), (4, 0), (4, 4), (0, 4)], [(1, 1), (1, 3), (3, 3), (3, 1)]],
    [[(0, 0), (4, 0), (4, 4), (0, 4)], [(0, 2), (2, 1), (2, 3)]],
    [
        [(0, 0), (4, 0), (4, 4), (0, 4)],
        [(0.5, 0.5), (1.5, 0.5), (0.5, 1.5)],
        [(2, 2), (2, 3.5), (3.5, 3.5)],
    ],
)
WEST_EDGES = (-360.0, -182.0, -180.0, -1.0, 0.0, 1.0, 177.0, 178.0, 179.0, 356.0)
SOUTH_EDGES = (1.0, 2.0, 86.0)

_ONE_IN_FOUR = st.sampled_from((False, False, False, True))
_NEGATION = st.sampled_from(("", "NOT "))
_NUMBERS, _STRINGS = st.sampled_from(NUMBERS), st.sampled_from(STRINGS)

# --- places -----------------------------------------------------------------------------------


@cache
def points(space: str) -> st.SearchStrategy[Point]:
    """Points on the pool's grid."""
    if space == "globe":
        return st.builds(Point, st.sampled_from(LONGITUDES), st.sampled_from(LATITUDES))
    return st.builds(Point, st.sampled_from(GRID), st.sampled_from(GRID))


@cache
def boxes(space: str) -> st.SearchStrategy[Box]:
    """Boxes; some are lines or points, and on the globe some cross the antimeridian."""

    def box(first: Point, second: Point, ordered: bool) -> Box:
        xmin, xmax = first.x, second.x
        if ordered or space == "planar":
            xmin, xmax = min(xmin, xmax), max(xmin, xmax)
        return Box(xmin, min(first.y, second.y), xmax, max(first.y, second.y))

    return st.builds(box, points(space), points(space), st.booleans())


@cache
def circles(space: str) -> st.SearchStrategy[Circle]:
    """Circles round points of the grid."""
    return st.builds(
        lambda centre, radius: Circle(centre.x, centre.y, radius), points(space), radii(space)
    )


@cache
def radii(space: str) -> st.SearchStrategy[float]:
    """Radii and distances."""
    return st.sampled_from(RADII_M if space == "globe" else RADII)


@cache
def polygons(space: str) -> st.SearchStrategy[Polygon]:
    """Convex and concave polygons, some with holes; on the globe some pass 180."""
    return st.builds(
        _placed,
        st.sampled_from(range(len(OUTLINES))),
        st.sampled_from(WEST_EDGES if space == "globe" else GRID),
        st.sampled_from(SOUTH_EDGES if space == "globe" else GRID),
        st.sampled_from((1.0, 0.5)),
    )


@cache
def _placed(outline: int, x0: float, y0: float, scale: float) -> Polygon:
    rings = [tuple((x0 + scale * x, y0 + scale * y) for x, y in ring) for ring in OUTLINES[outline]]
    return Polygon(rings[0], tuple(rings[1:]))


@cache
def locations(space: str) -> st.SearchStrategy[Location]:
    """Where an event may be; points most often."""
    return st.one_of(points(space), points(space), boxes(space), polygons(space))


@cache
def fixed_regions(space: str) -> st.SearchStrategy[Circle | Box | Polygon]:
    """Regions that stay where they are."""
    return st.one_of(circles(space), boxes(space), polygons(space))


@cache
def shapes(space: str) -> st.SearchStrategy[Around]:
    """Shapes that follow their subscriber: outlines about them, in units or odd metres.

    On the globe none has an edge along a meridian of the pools, where rounding would decide.
    """

    def around(outline: int, x0: float, y0: float, scale: float, turns: bool) -> Around:
        rings = [
            [((x + x0) * scale, (y + y0) * scale) for x, y in ring] for ring in OUTLINES[outline]
        ]
        return Around(shape=Polygon(rings[0], rings[1:]), turns=turns)

    scales, off = ((1.0, 0.5), 0.0) if space == "planar" else ((997.3, 61_001.7, 402_003.1), 0.017)
    return st.builds(
        around, st.integers(0, len(OUTLINES) - 1), st.sampled_from((off - 2, off - 1, off)),
        st.sampled_from((off - 2, off, off + 1)), st.sampled_from(scales), st.booleans(),
    )  # fmt: skip


def headings() -> st.SearchStrategy[float]:
    """Degrees: quarter turns, and any others."""
    return st.sampled_from((0.0, 90.0, 180.0, 270.0, -90.0, 360.0, 17.3, 123.4, -200.7, 719.1))


@cache
def regions(space: str) -> st.SearchStrategy[Region]:
    """Every kind of region, `Around` included."""
    return st.one_of(circles(space), boxes(space), polygons(space), st.builds(Around, radii(space)))


# --- values -----------------------------------------------------------------------------------


@cache
def numbers() -> st.SearchStrategy[float | int]:
    """Finite numbers."""
    return st.sampled_from(NUMBERS)


@cache
def values() -> st.SearchStrategy[Value]:
    """What an event's attribute may hold, NaN and infinities included."""
    odd = st.sampled_from((float("nan"), float("inf"), float("-inf"), -0.0))
    return st.one_of(numbers(), numbers(), st.sampled_from(STRINGS), st.booleans(), odd)


@cache
def attributes() -> st.SearchStrategy[dict[str, Value]]:
    """Attributes of an event: usually of the type their name suggests, sometimes not."""
    usual: dict[str, st.SearchStrategy[Value]] = dict.fromkeys(NUMERIC, numbers())
    usual |= dict.fromkeys(TEXTUAL, st.sampled_from(STRINGS))
    usual |= dict.fromkeys(LOGICAL, st.booleans())
    usual |= dict.fromkeys(MIXED, values())
    odd = dict.fromkeys(ATTRIBUTES, values())
    regular = st.fixed_dictionaries({}, optional=usual)
    return st.one_of(regular, regular, st.fixed_dictionaries({}, optional=odd))


@cache
def keywords(max_size: int = 4) -> st.SearchStrategy[frozenset[str]]:
    """Sets of words, in different spellings of the same word."""
    spelt = st.sampled_from([*WORDS, *(word.upper() for word in WORDS), "full", "STRASSE"])
    return st.frozensets(spelt, max_size=max_size)


@cache
def times() -> st.SearchStrategy[int]:
    """Instants, some of them equal, some a microsecond apart."""
    return st.sampled_from(TIMES)


# --- filters, as CQL2 text ----------------------------------------------------------------------


def quoted(text: str) -> str:
    """A CQL2 string literal."""
    return "'" + text.replace("'", "''") + "'"


def named(attribute: str) -> str:
    """An attribute's name as CQL2 text."""
    return attribute if attribute.isidentifier() else f'"{attribute}"'


def literal(value: Value) -> str:
    """A value as CQL2 text."""
    if isinstance(value, str):
        return quoted(value)
    return str(value).upper() if isinstance(value, bool) else repr(value)


def wkt(place: Location) -> str:
    """A place as CQL2 text: WKT, or BBOX."""
    if isinstance(place, Point):
        return f"POINT({place.x!r} {place.y!r})"
    if isinstance(place, Box):
        return f"BBOX({place.xmin!r}, {place.ymin!r}, {place.xmax!r}, {place.ymax!r})"
    return f"POLYGON{_rings(place)}"


def _rings(polygon: Polygon) -> str:
    rings = (", ".join(f"{x!r} {y!r}" for x, y in (*ring, ring[0])) for ring in polygon.rings)
    return "(" + ", ".join(f"({ring})" for ring in rings) + ")"


def _values_for(name: str) -> st.SearchStrategy[Value]:
    """Literals that fit an attribute's usual type, most of the time."""
    anything = st.one_of(_NUMBERS, _STRINGS, st.booleans())
    if name in NUMERIC:
        return st.one_of(_NUMBERS, _NUMBERS, anything)
    return st.one_of(_STRINGS, _STRINGS, anything) if name in TEXTUAL else anything


def _pool_for(name: str) -> st.SearchStrategy[Value]:
    """Literals that have an order among them."""
    return _STRINGS if name in TEXTUAL else _NUMBERS


@cache
def comparisons() -> st.SearchStrategy[str]:
    """One comparison, the attribute on either side; or a bare boolean attribute."""

    def text(name: str, value: Value, operator: str, mirrored: bool) -> str:
        if isinstance(value, bool) and operator not in ("=", "<>"):
            operator = "="
        left, right = named(name), literal(value)
        return f"{right} {operator} {left}" if mirrored else f"{left} {operator} {right}"

    operators = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))
    return st.one_of(
        *(
            st.builds(text, st.just(name), _values_for(name), operators, _ONE_IN_FOUR)
            for name in ATTRIBUTES
        ),
        st.sampled_from(LOGICAL),
    )


@cache
def ranges() -> st.SearchStrategy[str]:
    """BETWEEN, over numbers or strings; sometimes empty."""

    def text(name: str, negation: str, low: Value, high: Value) -> str:
        return f"{named(name)} {negation}BETWEEN {literal(low)} AND {literal(high)}"

    return st.one_of(
        *(
            st.builds(text, st.just(name), _NEGATION, _pool_for(name), _pool_for(name))
            for name in ATTRIBUTES
        )
    )


@cache
def choices() -> st.SearchStrategy[str]:
    """IN, short or long, over values of one type or, now and then, of several."""

    def text(name: str, negation: str, chosen: list[Value]) -> str:
        return f"{named(name)} {negation}IN ({', '.join(literal(value) for value in chosen)})"

    several = st.sampled_from((*NUMBERS[:4], *STRINGS[:4], True, False))
    return st.one_of(
        *(
            st.builds(text, st.just(name), _NEGATION, st.lists(pool, min_size=1, max_size=10))
            for name in ATTRIBUTES
            for pool in (several if name in MIXED else _pool_for(name),)
        )
    )


@cache
def likes() -> st.SearchStrategy[str]:
    """LIKE with wildcards and escapes."""

    def text(name: str, negation: str, pieces: list[str]) -> str:
        return f"{named(name)} {negation}LIKE {quoted(''.join(pieces))}"

    pieces = st.sampled_from(("a", "b", "%", "_", "\\%", "\\_", "\\\\", "é"))
    return st.builds(
        text, st.sampled_from(TEXTUAL + MIXED), _NEGATION, st.lists(pieces, max_size=4)
    )


@cache
def absences() -> st.SearchStrategy[str]:
    """IS NULL and IS NOT NULL."""
    return st.builds("{} IS {}NULL".format, st.sampled_from(ATTRIBUTES).map(named), _NEGATION)


@cache
def spatial(space: str) -> st.SearchStrategy[str]:
    """S_INTERSECTS, S_WITHIN and S_DWITHIN."""

    def several(parts: list[Polygon]) -> str:
        return "MULTIPOLYGON(" + ", ".join(_rings(part) for part in parts) + ")"

    single = locations(space).map(wkt)
    multiple = st.lists(polygons(space), min_size=1, max_size=2).map(several)
    shapes = st.one_of(single, single, multiple)
    return st.one_of(
        st.builds("S_INTERSECTS(location, {})".format, shapes),
        st.builds("S_WITHIN(location, {})".format, shapes),
        st.builds("S_DWITHIN(location, {}, {!r})".format, shapes, radii(space)),
    )


@cache
def wordings() -> st.SearchStrategy[str]:
    """A_CONTAINS over one or two words."""

    def text(words: list[str]) -> str:
        return f"A_CONTAINS(keywords, ({', '.join(map(quoted, words))}))"

    return st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(text)


@cache
def predicates(space: str) -> st.SearchStrategy[str]:
    """One predicate of any kind."""
    plain = comparisons()
    return st.one_of(
        plain, plain, plain, ranges(), choices(), likes(), absences(), spatial(space), wordings()
    )


@cache
def filters(space: str, max_leaves: int = 6) -> st.SearchStrategy[str]:
    """CQL2 text: predicates under nested AND, OR and NOT."""

    def joined(operator: str) -> Callable[[list[str]], str]:
        return lambda parts: "(" + f" {operator} ".join(parts) + ")"

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            several.map(joined("AND")), several.map(joined("OR")), inner.map("NOT ({})".format)
        )

    return st.recursive(predicates(space), grown, max_leaves=max_leaves)


# --- events and subscriptions ---------------------------------------------------------------------


@cache
def events(space: str = "globe", id: str | None = None) -> st.SearchStrategy[Event]:
    """Events; most have a location, some have times."""
    return st.builds(
        _event,
        ids("e") if id is None else st.just(id),
        attributes(),
        keywords(),
        st.one_of(locations(space), locations(space), st.none()),
        *([st.none() | times()] * 3),
    )


def _event(
    id: str,
    attributes: dict[str, Value],
    keywords: frozenset[str],
    location: Location | None,
    start: int | None,
    end: int | None,
    expires: int | None,
) -> Event:
    if start is not None:
        end = None if end is None else max(start, end)
        expires = None if expires is None else max(start, expires)
    return Event(id, attributes, keywords, location, start, end, expires)


@cache
def subscriptions(
    space: str = "globe", id: str | None = None, around: bool = False
) -> st.SearchStrategy[Subscription]:
    """Subscriptions; `around=True` lets some of them follow their subscriber."""
    return st.builds(
        _subscription,
        ids("s") if id is None else st.just(id),
        st.sampled_from((None, "ann", "bob")),
        st.none() | filters(space),
        st.one_of(st.just(frozenset[str]()), keywords(max_size=2)),
        st.none() | (regions(space) if around else fixed_regions(space)),
        st.none() | times(),
    )


def _subscription(
    id: str,
    subscriber: str | None,
    where: str | None,
    keywords: frozenset[str],
    region: Region | None,
    expires: int | None,
) -> Subscription:
    try:
        return Subscription(id, subscriber, where, keywords, region, expires)
    except FilterTooLarge:
        assume(False)
        raise


@cache
def ids(prefix: str) -> st.SearchStrategy[str]:
    """Ids such as e7."""
    return st.integers(0, 99).map(lambda number: f"{prefix}{number}")


@cache
def event_lists(space: str = "globe", max_size: int = 8) -> st.SearchStrategy[list[Event]]:
    """Several events with different ids."""
    return st.lists(events(space), max_size=max_size, unique_by=lambda event: event.id)


@cache
def subscription_lists(
    space: str = "globe", max_size: int = 8, around: bool = False
) -> st.SearchStrategy[list[Subscription]]:
    """Several subscriptions with different ids."""
    return st.lists(
        subscriptions(space, around=around), max_size=max_size, unique_by=lambda each: each.id
    )
