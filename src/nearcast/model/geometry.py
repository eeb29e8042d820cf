"""Places and regions as frozen values: validated when made, no arithmetic here.

Points are (x, y) = (lon, lat). A value does not know its space: the same `Box` serves
the globe and a plane. `check_space` tests what only the space can tell, and everything
that stores places calls it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from nearcast.errors import ValidationError

__all__ = [
    "SPACES",
    "WIDEST_SHAPE",
    "Around",
    "Box",
    "Circle",
    "Location",
    "Point",
    "Polygon",
    "Region",
    "Ring",
    "Space",
    "check_space",
]

Space = Literal["globe", "planar"]
SPACES: tuple[Space, ...] = get_args(Space)
Ring: TypeAlias = tuple[tuple[float, float], ...]
#: How far a shape that follows somebody may reach: a quarter of the way round the globe.
WIDEST_SHAPE: dict[Space, float] = {"globe": 6_371_008.8 * math.pi / 2, "planar": 1e140}
GivenRing: TypeAlias = Iterable["Point | Sequence[float]"]
"""A ring as people write it: pairs or points, open or closed."""


def _number(value: object, field: str) -> float:
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's, too
        raise ValidationError(field, value, "give a number")
    if not isinstance(value, int | float):
        try:  # NumPy scalars and the like
            value = float(value.__float__())  # type: ignore[attr-defined]
        except (AttributeError, TypeError, ValueError):
            raise ValidationError(field, value, "give a number") from None
    try:
        number = float(value)
    except OverflowError:
        raise ValidationError(field, value, "give a number that fits a float64") from None
    if not math.isfinite(number):
        raise ValidationError(field, value, "give a finite number")
    return number + 0.0  # −0.0 becomes 0.0, so equal places have equal bytes


def _radius(value: object) -> float:
    radius = _number(value, "radius_m")
    if radius < 0:
        raise ValidationError("radius_m", value, "a radius is not negative")
    return radius


@dataclass(frozen=True, slots=True)
class Point:
    """A place: (x, y) = (lon, lat)."""

    x: float
    y: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", _number(self.x, "x"))
        object.__setattr__(self, "y", _number(self.y, "y"))

    @property
    def lon(self) -> float:
        """The longitude, on the globe."""
        return self.x

    @property
    def lat(self) -> float:
        """The latitude, on the globe."""
        return self.y


@dataclass(frozen=True, slots=True)
class Circle:
    """All places at most `radius_m` from (x, y): metres on the globe, units on a plane."""

    x: float
    y: float
    radius_m: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", _number(self.x, "x"))
        object.__setattr__(self, "y", _number(self.y, "y"))
        object.__setattr__(self, "radius_m", _radius(self.radius_m))


@dataclass(frozen=True, slots=True)
class Box:
    """A closed rectangle. On the globe, xmin > xmax crosses the antimeridian."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def __post_init__(self) -> None:
        for name in ("xmin", "ymin", "xmax", "ymax"):
            object.__setattr__(self, name, _number(getattr(self, name), name))
        if self.ymin > self.ymax:
            raise ValidationError("ymin", self.ymin, f"ymin must not exceed ymax ({self.ymax})")


@dataclass(frozen=True, slots=True)
class Polygon:
    """A closed area with straight edges in (x, y), and holes whose borders belong to it.

    Rings may be given open or closed, clockwise or not. On the globe a polygon crosses
    the antimeridian by going on past 180° (170 … 190), never by jumping back.
    """

    exterior: Ring
    holes: tuple[Ring, ...]

    def __init__(self, exterior: GivenRing, holes: Iterable[GivenRing] = ()) -> None:
        given: object = holes
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ValidationError("holes", given, "give a list of rings")
        object.__setattr__(self, "exterior", _ring(exterior, "exterior"))
        rings = tuple(_ring(hole, f"holes[{i}]") for i, hole in enumerate(holes))
        object.__setattr__(self, "holes", rings)
        _check_simple(self.exterior, self.holes)

    @classmethod
    def checked(cls, exterior: Ring, holes: tuple[Ring, ...]) -> Polygon:
        """The polygon of rings that another one had."""
        made = object.__new__(cls)
        object.__setattr__(made, "exterior", exterior)
        object.__setattr__(made, "holes", holes)
        return made

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The exterior, then the holes."""
        return (self.exterior, *self.holes)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """xmin, ymin, xmax, ymax."""
        xs = [x for x, _ in self.exterior]
        ys = [y for _, y in self.exterior]
        return min(xs), min(ys), max(xs), max(ys)


@dataclass(frozen=True, slots=True, repr=False)
class Around:
    """What follows its subscriber: the circle of `radius_m`, or a shape of any form.

    A shape is a polygon in metres about the subscriber, x to the east and y to the north (units,
    on a plane). It is drawn for somebody who looks north; with `turns` it is turned to the last
    heading. See `nearcast.model.placing` for where it lies on the map.

    >>> Around(shape=Polygon([(-50, 0), (50, 0), (50, 2000), (-50, 2000)]), turns=True).turns
    True
    """

    radius_m: float | None = None
    shape: Polygon | None = None
    turns: bool = False

    def __post_init__(self) -> None:
        if self.shape is None:
            if self.radius_m is None:
                raise ValidationError("radius_m", None, "give a radius_m, or a shape")
            object.__setattr__(self, "radius_m", _radius(self.radius_m))
        elif self.radius_m is not None:
            raise ValidationError("shape", self.shape, "give a radius_m or a shape, not both")
        elif type(self.shape) is not Polygon:
            remedy = "give a Polygon of (east, north) in metres about the subscriber"
            raise ValidationError("shape", self.shape, remedy)
        if not isinstance(self.turns, bool):
            raise ValidationError("turns", self.turns, "give True or False")
        if self.turns and self.shape is None:
            raise ValidationError("turns", True, "a circle looks the same all round: give a shape")

    def __repr__(self) -> str:
        if self.shape is None:
            return f"Around(radius_m={self.radius_m!r})"
        return f"Around(shape={self.shape!r}, turns={self.turns!r})"

    @property
    def reach_m(self) -> float:
        """How far it reaches from its subscriber: the radius, or the farthest corner's distance."""
        if self.shape is None:
            assert self.radius_m is not None
            return self.radius_m
        return max(math.hypot(x, y) for x, y in self.shape.exterior)


Region: TypeAlias = Circle | Box | Polygon | Around
Location: TypeAlias = Point | Box | Polygon


def _ring(points: object, field: str) -> Ring:
    if isinstance(points, str | bytes) or not isinstance(points, Iterable):
        raise ValidationError(field, points, "give a list of (x, y) pairs")
    ring: list[tuple[float, float]] = []
    for i, point in enumerate(points):
        if isinstance(point, Point):
            point = (point.x, point.y)
        if isinstance(point, str | bytes) or not isinstance(point, Sequence) or len(point) != 2:
            raise ValidationError(f"{field}[{i}]", point, "give a pair (x, y)")
        pair = (_number(point[0], f"{field}[{i}].x"), _number(point[1], f"{field}[{i}].y"))
        if not ring or ring[-1] != pair:
            ring.append(pair)
    if len(ring) > 1 and ring[0] == ring[-1]:
        ring.pop()
    if len(ring) < 3:
        raise ValidationError(field, tuple(ring), "a ring needs at least three different points")
    return tuple(ring)


def _check_simple(exterior: Ring, holes: tuple[Ring, ...]) -> None:
    import shapely  # at the first polygon, not at import: it costs 0.1 s

    rings = _within_reason(exterior, holes)
    shape = shapely.Polygon(*rings)
    if shapely.is_valid(shape) and shape.area > 0:
        return
    if shapely.convex_hull(shape).area == 0:
        raise ValidationError("exterior", exterior, "the points lie on one line: use a Box")
    reason = str(shapely.is_valid_reason(shape))
    if rings[0] is not exterior:  # the place that it names is another then
        reason = reason.partition("[")[0]
    raise ValidationError(
        "exterior", exterior, f"rings must not cross or touch along a line ({reason})"
    )


def _within_reason(exterior: Ring, holes: tuple[Ring, ...]) -> tuple[Ring, tuple[Ring, ...]]:
    """The rings, or, where areas would not be floats, the same rings of the size of 1."""
    largest = max(max(abs(x), abs(y)) for x, y in exterior)
    if 1e-100 < largest < 1e100:
        return exterior, holes
    power = -math.frexp(largest)[1]

    def scaled(ring: Ring) -> Ring:
        return tuple((math.ldexp(x, power), math.ldexp(y, power)) for x, y in ring)

    return scaled(exterior), tuple(scaled(hole) for hole in holes)


def check_space(place: Region | Location, space: Space, field: str) -> None:
    """Refuse a place that cannot exist in `space`, naming the field that is wrong."""
    if isinstance(place, Around):
        if place.shape is not None and not place.reach_m <= WIDEST_SHAPE[space]:
            remedy = f"no corner may be farther from the subscriber than {WIDEST_SHAPE[space]:.4g}"
            raise ValidationError(f"{field}.shape", place.reach_m, remedy)
        return
    if space == "planar":
        if isinstance(place, Box) and place.xmin > place.xmax:
            raise ValidationError(
                f"{field}.xmin", place.xmin, f"on a plane xmin must not exceed xmax ({place.xmax})"
            )
        return
    if isinstance(place, Point | Circle):
        _check_lonlat(place.x, place.y, f"{field}.x", f"{field}.y")
    elif isinstance(place, Box):
        _check_lonlat(place.xmin, place.ymin, f"{field}.xmin", f"{field}.ymin")
        _check_lonlat(place.xmax, place.ymax, f"{field}.xmax", f"{field}.ymax")
    else:
        xmin, ymin, xmax, ymax = place.bounds
        if ymin < -90 or ymax > 90:
            wrong = ymin if ymin < -90 else ymax
            raise ValidationError(field, wrong, "a latitude lies in −90 … 90")
        if xmin < -360 or xmax > 360 or xmax - xmin > 360:
            raise ValidationError(
                field, (xmin, xmax), "longitudes lie in −360 … 360 and span at most 360"
            )


def _check_lonlat(lon: float, lat: float, lon_field: str, lat_field: str) -> None:
    if not -90 <= lat <= 90:
        swapped = " (longitude and latitude swapped?)" if -90 <= lon <= 90 else ""
        raise ValidationError(lat_field, lat, f"a latitude lies in −90 … 90{swapped}")
    if not -180 <= lon <= 180:
        raise ValidationError(lon_field, lon, "a longitude lies in −180 … 180")
