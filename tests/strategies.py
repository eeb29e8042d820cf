"""Hypothesis strategies shared by all tests.

Values come from small pools, so that equal values, shared borders and touching corners are
drawn often. On the globe all latitudes of the pools are north of the equator: then no shape
holds the antipode of another one, where the azimuthal projection has no bearing and a
distance would hang on the last bit; the antimeridian and the north pole are drawn often. For
the same reason radii there are never 0: a metre is far more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

# --- places -----------------------------------------------------------------------------------


def points(space: str) -> st.SearchStrategy[Point]:
    """Points on the pool's grid."""
    if space == "globe":
        return st.builds(Point, st.sampled_from(LONGITUDES), st.sampled_from(LATITUDES))
    return st.builds(Point, st.sampled_from(GRID), st.sampled_from(GRID))


@st.composite
def boxes(draw: st.DrawFn, space: str) -> Box:
    """Boxes; some are lines or points, and on the globe some cross the antimeridian."""
    first, second = draw(points(space)), draw(points(space))
    ymin, ymax = sorted((first.y, second.y))
    xmin, xmax = first.x, second.x
    if xmin > xmax and (space == "planar" or draw(st.booleans())):
        xmin, xmax = xmax, xmin
    return Box(xmin, ymin, xmax, ymax)


def circles(space: str) -> st.SearchStrategy[Circle]:
    """Circles round points of the grid."""
    return st.builds(
        lambda centre, radius: Circle(centre.x, centre.y, radius), points(space), radii(space)
    )


def radii(space: str) -> st.SearchStrategy[float]:
    """Radii and distances."""
    return st.sampled_from(RADII_M if space == "globe" else RADII)


@st.composite
def polygons(draw: st.DrawFn, space: str) -> Polygon:
    """Convex and concave polygons, some with holes; on the globe some pass 180."""
    exterior, *holes = draw(st.sampled_from(OUTLINES))
    x0 = draw(st.sampled_from(WEST_EDGES if space == "globe" else GRID))
    y0 = draw(st.sampled_from(SOUTH_EDGES if space == "globe" else GRID))
    scale = draw(st.sampled_from((1.0, 0.5)))

    def placed(ring: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(x0 + scale * x, y0 + scale * y) for x, y in ring]

    return Polygon(tuple(placed(exterior)), tuple(tuple(placed(hole)) for hole in holes))


def locations(space: str) -> st.SearchStrategy[Location]:
    """Where an event may be; points most often."""
    return st.one_of(points(space), points(space), boxes(space), polygons(space))


def fixed_regions(space: str) -> st.SearchStrategy[Circle | Box | Polygon]:
    """Regions that stay where they are."""
    return st.one_of(circles(space), boxes(space), polygons(space))


def regions(space: str) -> st.SearchStrategy[Region]:
    """Every kind of region, `Around` included."""
    return st.one_of(circles(space), boxes(space), polygons(space), st.builds(Around, radii(space)))


# --- values -----------------------------------------------------------------------------------


def numbers() -> st.SearchStrategy[float | int]:
    """Finite numbers."""
    return st.sampled_from(NUMBERS)


def values() -> st.SearchStrategy[Value]:
    """What an event's attribute may hold, NaN and infinities included."""
    odd = st.sampled_from((float("nan"), float("inf"), float("-inf"), -0.0))
    return st.one_of(numbers(), numbers(), st.sampled_from(STRINGS), st.booleans(), odd)


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, Value]:
    """Attributes of an event: usually of the type their name suggests, sometimes not."""
    usual: dict[str, st.SearchStrategy[Value]] = {name: numbers() for name in NUMERIC}
    usual |= {name: st.sampled_from(STRINGS) for name in TEXTUAL}
    usual |= {name: st.booleans() for name in LOGICAL}
    names = draw(st.lists(st.sampled_from(ATTRIBUTES), unique=True))
    odd = draw(st.sampled_from((False, False, True)))
    return {name: draw(values() if odd or name in MIXED else usual[name]) for name in names}


def keywords(max_size: int = 4) -> st.SearchStrategy[frozenset[str]]:
    """Sets of words, in different spellings of the same word."""
    spelt = st.sampled_from([*WORDS, *(word.upper() for word in WORDS), "full", "STRASSE"])
    return st.frozensets(spelt, max_size=max_size)


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


_NAMES = st.sampled_from(ATTRIBUTES)
_LITERALS: st.SearchStrategy[Value] = st.one_of(
    numbers(), numbers(), st.sampled_from(STRINGS), st.booleans()
)


def _of_type(name: str) -> st.SearchStrategy[Value]:
    """Literals that fit an attribute's usual type, most of the time."""
    if name in NUMERIC:
        return st.one_of(numbers(), numbers(), _LITERALS)
    if name in TEXTUAL:
        return st.one_of(st.sampled_from(STRINGS), st.sampled_from(STRINGS), _LITERALS)
    return _LITERALS


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """One comparison, the attribute on either side; or a bare boolean attribute."""
    name = draw(_NAMES)
    if name in LOGICAL and draw(st.booleans()):
        return named(name)
    value = draw(_of_type(name))
    equality = ("=", "<>")
    order = ("=", "<>", "<", "<=", ">", ">=")
    operator = draw(st.sampled_from(equality if isinstance(value, bool) else order))
    sides = [named(name), literal(value)]
    if draw(st.sampled_from((False, False, False, True))):
        sides.reverse()
    return f"{sides[0]} {operator} {sides[1]}"


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """BETWEEN, over numbers or strings; sometimes empty."""
    name = draw(_NAMES)
    pool: Sequence[Value] = STRINGS if name in TEXTUAL else NUMBERS
    low, high = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    negation = draw(st.sampled_from(("", "NOT ")))
    return f"{named(name)} {negation}BETWEEN {literal(low)} AND {literal(high)}"


@st.composite
def choices(draw: st.DrawFn) -> str:
    """IN, short or long, over values of one type or, now and then, of several."""
    name = draw(_NAMES)
    pool: Sequence[Value] = STRINGS if name in TEXTUAL else NUMBERS
    if name in MIXED:
        pool = (*NUMBERS[:4], *STRINGS[:4], True, False)
    chosen = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=10))
    negation = draw(st.sampled_from(("", "NOT ")))
    return f"{named(name)} {negation}IN ({', '.join(literal(value) for value in chosen)})"


@st.composite
def likes(draw: st.DrawFn) -> str:
    """LIKE with wildcards and escapes."""
    name = draw(st.sampled_from(TEXTUAL + MIXED))
    pattern = "".join(
        draw(st.lists(st.sampled_from(("a", "b", "%", "_", "\\%", "\\_", "\\\\", "é")), max_size=4))
    )
    negation = draw(st.sampled_from(("", "NOT ")))
    return f"{named(name)} {negation}LIKE {quoted(pattern)}"


@st.composite
def absences(draw: st.DrawFn) -> str:
    """IS NULL and IS NOT NULL."""
    return f"{named(draw(_NAMES))} IS {draw(st.sampled_from(('', 'NOT ')))}NULL"


@st.composite
def spatial(draw: st.DrawFn, space: str) -> str:
    """S_INTERSECTS, S_WITHIN and S_DWITHIN."""
    place = wkt(draw(locations(space)))
    if draw(st.sampled_from((False, False, False, True))):
        parts = draw(st.lists(polygons(space), min_size=1, max_size=2))
        place = "MULTIPOLYGON(" + ", ".join(_rings(part) for part in parts) + ")"
    operator = draw(st.sampled_from(("S_INTERSECTS", "S_WITHIN", "S_DWITHIN")))
    extra = f", {draw(radii(space))!r}" if operator == "S_DWITHIN" else ""
    return f"{operator}(location, {place}{extra})"


@st.composite
def wordings(draw: st.DrawFn) -> str:
    """A_CONTAINS over one or two words."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=2))
    return f"A_CONTAINS(keywords, ({', '.join(quoted(word) for word in words)}))"


def predicates(space: str) -> st.SearchStrategy[str]:
    """One predicate of any kind."""
    plain = comparisons()
    return st.one_of(
        plain, plain, plain, ranges(), choices(), likes(), absences(), spatial(space), wordings()
    )


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


@st.composite
def events(draw: st.DrawFn, space: str = "globe", id: str | None = None) -> Event:
    """Events; most have a location, some have times."""
    start, end, expires = draw(st.lists(st.none() | times(), min_size=3, max_size=3))
    if start is not None:
        end = None if end is None else max(start, end)
        expires = None if expires is None else max(start, expires)
    return Event(
        id=draw(ids("e")) if id is None else id,
        attributes=draw(attributes()),
        keywords=draw(keywords()),
        location=draw(st.one_of(locations(space), locations(space), st.none())),
        start=start,
        end=end,
        expires=expires,
    )


@st.composite
def subscriptions(
    draw: st.DrawFn, space: str = "globe", id: str | None = None, around: bool = False
) -> Subscription:
    """Subscriptions; `around=True` lets some of them follow their subscriber."""
    where = draw(st.none() | filters(space))
    region = draw(st.none() | (regions(space) if around else fixed_regions(space)))
    try:
        return Subscription(
            id=draw(ids("s")) if id is None else id,
            subscriber=draw(st.sampled_from((None, "ann", "bob"))),
            where=where,
            keywords=draw(st.one_of(st.just(frozenset()), keywords(max_size=2))),
            region=region,
            expires=draw(st.none() | times()),
        )
    except FilterTooLarge:
        assume(False)
        raise


def ids(prefix: str) -> st.SearchStrategy[str]:
    """Ids such as e7."""
    return st.integers(0, 99).map(lambda number: f"{prefix}{number}")


def event_lists(space: str = "globe", max_size: int = 8) -> st.SearchStrategy[list[Event]]:
    """Several events with different ids."""
    return st.lists(events(space), max_size=max_size, unique_by=lambda event: event.id)


def subscription_lists(
    space: str = "globe", max_size: int = 8, around: bool = False
) -> st.SearchStrategy[list[Subscription]]:
    """Several subscriptions with different ids."""
    return st.lists(
        subscriptions(space, around=around), max_size=max_size, unique_by=lambda each: each.id
    )
