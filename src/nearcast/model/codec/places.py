"""Places as GeoJSON and WKT.

GeoJSON has points and polygons. A `Box` is written as the polygon of its corners with a
`bbox` member, cut in two at the antimeridian (RFC 7946, 5.2), and read back as a `Box`. A
polygon that goes on past 180° keeps its own coordinates; on the globe a MultiPolygon cut at
the antimeridian is read as the one polygon it was. `Circle` and `Around` have no GeoJSON, and
are objects of their own: ``{"type": "Circle", "coordinates": [lon, lat], "radius_m": r}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from nearcast.errors import ValidationError
from nearcast.model.geometry import (
    Around,
    Box,
    Circle,
    Location,
    Point,
    Polygon,
    Region,
    Space,
    check_space,
)

__all__ = [
    "Points",
    "box_rings",
    "joined",
    "location_from_json",
    "location_to_json",
    "members",
    "refuse_unknown",
    "region_from_json",
    "region_to_json",
]

#: A ring, open: its first point is not repeated at its end.
Points: TypeAlias = tuple[tuple[float, float], ...]

_T = TypeVar("_T")

_PLACE_KINDS = "a GeoJSON Point, Polygon or MultiPolygon cut at the antimeridian"
_REGION_KINDS = "a Circle, a Polygon, a MultiPolygon cut at the antimeridian, or Around"
_AREA_WKT = re.compile(r"\s*(MULTI)?POLYGON[\s\d.,()e+-]*", re.IGNORECASE | re.ASCII)


# --- GeoJSON, written ---------------------------------------------------------------------------


def location_to_json(place: Location) -> dict[str, Any]:
    """The GeoJSON geometry of a place."""
    if isinstance(place, Point):
        return {"type": "Point", "coordinates": [place.x, place.y]}
    if isinstance(place, Polygon):
        return {"type": "Polygon", "coordinates": [_closed(ring) for ring in place.rings]}
    parts = [[_closed(ring)] for ring in box_rings(place)]
    bbox = [place.xmin, place.ymin, place.xmax, place.ymax]
    if len(parts) == 1:
        return {"type": "Polygon", "bbox": bbox, "coordinates": parts[0]}
    return {"type": "MultiPolygon", "bbox": bbox, "coordinates": parts}


def region_to_json(region: Region) -> dict[str, Any]:
    """The GeoJSON geometry of a region, or our own object for a circle or `Around`."""
    if isinstance(region, Circle):
        centre = [region.x, region.y]
        return {"type": "Circle", "coordinates": centre, "radius_m": region.radius_m}
    if isinstance(region, Around):
        if region.shape is None:
            return {"type": "Around", "radius_m": region.radius_m}
        shape = location_to_json(region.shape)
        return {"type": "Around", "shape": shape, "turns": region.turns}
    return location_to_json(region)


def _closed(ring: Iterable[tuple[float, float]]) -> list[list[float]]:
    points = [[x, y] for x, y in ring]
    return [*points, list(points[0])]


def _corners(xmin: float, ymin: float, xmax: float, ymax: float) -> Points:
    return (xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)


def box_rings(box: Box) -> list[Points]:
    """The corners of a box, counterclockwise; across the antimeridian, of its two halves."""
    if box.xmin <= box.xmax:
        return [_corners(box.xmin, box.ymin, box.xmax, box.ymax)]
    return [
        _corners(box.xmin, box.ymin, 180.0, box.ymax),
        _corners(-180.0, box.ymin, box.xmax, box.ymax),
    ]


# --- GeoJSON, read --------------------------------------------------------------------------------


def location_from_json(given: object, space: Space, field: str) -> Location:
    """The place of a GeoJSON geometry, checked for the space."""
    geometry = members(given, field, _PLACE_KINDS)
    kind = geometry.get("type")
    if kind == "Point":
        refuse_unknown(geometry, ("type", "coordinates", "bbox"), field)
        _bbox(geometry, field)
        x, y = _position(geometry.get("coordinates"), f"{field}.coordinates")
        place: Location = _made(field, Point, x, y)
    elif kind in ("Polygon", "MultiPolygon"):
        place = _area_from_json(geometry, space, field)
    else:
        raise ValidationError(f"{field}.type", kind, f"give {_PLACE_KINDS}")
    check_space(place, space, field)
    return place


def region_from_json(given: object, space: Space, field: str) -> Region:
    """The region of a GeoJSON geometry, of a Circle or Around object, or of WKT text."""
    if isinstance(given, str):
        return _region_from_wkt(given, space, field)
    geometry = members(given, field, f"{_REGION_KINDS}, or WKT text")
    kind = geometry.get("type")
    if kind == "Circle":
        refuse_unknown(geometry, ("type", "coordinates", "radius_m"), field)
        x, y = _position(geometry.get("coordinates"), f"{field}.coordinates")
        region: Region = _made(field, Circle, x, y, geometry.get("radius_m"))
    elif kind == "Around":
        refuse_unknown(geometry, ("type", "radius_m", "shape", "turns"), field)
        region = _around(geometry, field)
    elif kind in ("Polygon", "MultiPolygon"):
        region = _area_from_json(geometry, space, field)
    else:
        raise ValidationError(f"{field}.type", kind, f"give {_REGION_KINDS}")
    check_space(region, space, field)
    return region


def _around(geometry: Mapping[str, Any], field: str) -> Around:
    given, shape = geometry.get("shape"), None
    if given is not None:
        at = f"{field}.shape"
        drawn = members(given, at, "a Polygon of metres east and north of the subscriber")
        if drawn.get("type") != "Polygon" or "bbox" in drawn:
            raise ValidationError(f"{at}.type", drawn.get("type"), "give a Polygon without a bbox")
        found = _area_from_json(drawn, "planar", at)
        assert isinstance(found, Polygon)
        shape = found
    turns = geometry.get("turns")
    return _made(field, Around, geometry.get("radius_m"), shape, False if turns is None else turns)


def _area_from_json(geometry: Mapping[str, Any], space: Space, field: str) -> Box | Polygon:
    refuse_unknown(geometry, ("type", "coordinates", "bbox"), field)
    at = f"{field}.coordinates"
    coordinates = _items(geometry.get("coordinates"), at)
    if geometry["type"] == "Polygon":
        parts = [_rings(coordinates, at)]
    else:
        parts = [_rings(part, f"{at}[{i}]") for i, part in enumerate(coordinates)]
    box = _bbox(geometry, field)
    if box is not None and parts == [[ring] for ring in box_rings(box)]:
        return box
    polygons = [_polygon(rings, field) for rings in parts]
    return polygons[0] if len(polygons) == 1 else joined(polygons, space, field)


def _bbox(geometry: Mapping[str, Any], field: str) -> Box | None:
    """The box a bbox spells; where it only repeats what the coordinates say, it is not used."""
    given = geometry.get("bbox")
    if given is None:
        return None
    if not isinstance(given, list | tuple) or len(given) != 4:
        raise ValidationError(f"{field}.bbox", given, "give [west, south, east, north]")
    return _made(f"{field}.bbox", Box, *given)


def _rings(given: object, field: str) -> list[Points]:
    rings: list[Points] = []
    for i, ring in enumerate(_items(given, field)):
        at = f"{field}[{i}]"
        points = tuple(_position(point, f"{at}[{j}]") for j, point in enumerate(_items(ring, at)))
        if len(points) < 4 or points[0] != points[-1]:
            raise ValidationError(at, ring, "a ring ends where it begins and has four positions")
        rings.append(points[:-1])
    if not rings:
        raise ValidationError(field, given, "give the exterior ring, then the holes")
    return rings


def _position(given: object, field: str) -> tuple[float, float]:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ValidationError(field, given, "give [lon, lat]; places have no altitude")
    point = _made(field, Point, *given)
    return point.x, point.y


def _items(given: object, field: str) -> Sequence[Any]:
    if not isinstance(given, list | tuple):
        raise ValidationError(field, given, "give a list")
    return given


def _polygon(rings: Sequence[Any], field: str) -> Polygon:
    return _made(f"{field}.coordinates", Polygon, rings[0], tuple(rings[1:]))


def _made(field: str, make: Callable[..., _T], *args: Any) -> _T:
    """A value, or its error seen from the member that holds it."""
    try:
        return make(*args)
    except ValidationError as error:
        raise error.inside(field) from None


# --- WKT, and polygons in several parts -----------------------------------------------------------


def _region_from_wkt(text: str, space: Space, field: str) -> Region:
    import numpy
    import shapely

    remedy = "write WKT such as POLYGON((0 0, 2 0, 2 1, 0 0))"
    if not _AREA_WKT.fullmatch(text):
        # Nothing else goes to the parser: nested collections would end the process.
        raise ValidationError(field, text, f"a region in text is a polygon; {remedy}")
    try:
        with numpy.errstate(all="ignore"):  # 1e999 is refused below, without a warning first
            shape = shapely.from_wkt(text)
    except shapely.errors.ShapelyError as error:
        reason = str(error).strip().splitlines()[0]
        raise ValidationError(field, text, f"{remedy} ({reason})") from None
    parts = [_polygon_from_shape(part, field) for part in shapely.get_parts(shape)]
    region = parts[0] if len(parts) == 1 else joined(parts, space, field)
    check_space(region, space, field)
    return region


def joined(parts: Sequence[Polygon], space: Space | None, field: str) -> Polygon:
    """The polygon that was cut at the antimeridian, its western parts moved on past 180°."""
    import shapely

    remedy = "an area has one part: send one for each"
    if space == "globe":
        shapes = []
        for part in parts:
            turn = 360.0 if part.bounds[0] == -180 else 0.0
            rings = [[(x + turn, y) for x, y in ring] for ring in part.rings]
            shapes.append(shapely.Polygon(rings[0], rings[1:]))
        whole = shapely.union_all(shapes)
        area = sum(shape.area for shape in shapes)
        if whole.geom_type == "Polygon" and abs(whole.area - area) <= 1e-9 * area:
            return _polygon_from_shape(whole, field)
        remedy = "an area has one part, or parts that join at the antimeridian: send one for each"
    raise ValidationError(field, f"MultiPolygon of {len(parts)} parts", remedy)


def _polygon_from_shape(shape: Any, field: str) -> Polygon:
    if shape.has_z:
        raise ValidationError(field, shape.wkt, "places have two coordinates: leave Z out")
    holes = tuple(tuple(ring.coords) for ring in shape.interiors)
    try:
        return Polygon(tuple(shape.exterior.coords), holes)
    except ValidationError as error:
        raise ValidationError(field, error.value, error.remedy) from None


# --- objects --------------------------------------------------------------------------------------


def members(given: object, field: str, wanted: str) -> Mapping[str, Any]:
    """The given object, if it is one."""
    if not isinstance(given, Mapping):
        raise ValidationError(field, given, f"give {wanted}")
    return given


def refuse_unknown(given: Mapping[str, Any], known: Sequence[str], field: str) -> None:
    """Refuse members nobody would read, instead of losing them in silence."""
    for name in given:
        if name not in known:
            where = f"{field}.{name}" if field else str(name)
            raise ValidationError(where, given[name], f"members here are {', '.join(known)}")
