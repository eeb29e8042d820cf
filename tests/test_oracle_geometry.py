"""The oracle's geometry against shapely and pyproj."""

from __future__ import annotations

import math
from fractions import Fraction

import pyproj
import pytest
import shapely
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from shapely.affinity import translate

from nearcast.errors import ValidationError
from nearcast.model.geometry import Box, Circle, Location, Point, Polygon
from tests import oracle_geometry as geometry
from tests import strategies

SPHERE = pyproj.Geod(a=6371008.8, b=6371008.8)
TURNS = (-720, -360, 0, 360, 720)
longitudes = st.floats(-180, 180)
latitudes = st.floats(-89.9, 89.9)


def to_shapely(place: Location) -> shapely.Geometry:
    if isinstance(place, Point):
        return shapely.Point(place.x, place.y)
    rings = geometry.corners(place)
    if isinstance(place, Box):
        first, opposite = rings[0][0], rings[0][2]  # from 180 to −180 is no width either
        if first == opposite:
            return shapely.Point(first)
        if first[0] == opposite[0] or first[1] == opposite[1]:
            return shapely.LineString([first, opposite])
    return shapely.Polygon(rings[0], rings[1:])


def turned(shape: shapely.Geometry, turn: int) -> shapely.Geometry:
    return translate(shape, turn)


def covered(inner: shapely.Geometry, outer: shapely.Geometry) -> bool:
    """Whether nothing of `inner` lies outside; GEOS' `covers` errs where a hole touches a border
    that both share."""
    return bool(outer.covers(inner)) or bool(inner.difference(outer).is_empty)


@st.composite
def ragged(draw: st.DrawFn) -> Polygon:
    """Polygons with any corners over whole numbers, in order of their bearing from (1/2, 1/3);
    now and then with a hole that is a smaller copy."""
    whole = st.tuples(st.integers(-4, 4), st.integers(-4, 4))
    corners = draw(st.lists(whole, min_size=3, max_size=8, unique=True))
    corners.sort(key=lambda corner: math.atan2(corner[1] - 1 / 3, corner[0] - 1 / 2))
    hole = [(0.5 + (x - 0.5) / 4, 0.375 + (y - 0.375) / 4) for x, y in corners]
    try:
        return Polygon(tuple(corners), (tuple(hole),) if draw(st.booleans()) else ())
    except ValidationError:
        assume(False)
        raise


plane_places = st.one_of(strategies.locations("planar"), ragged())


@settings(max_examples=300, deadline=None)
@given(plane_places, plane_places)
def test_relations_on_a_plane_are_those_of_shapely(first, second):
    one, two = to_shapely(first), to_shapely(second)
    assert geometry.places_meet(first, second, "planar") == one.intersects(two)
    assert geometry.place_within(first, [second], "planar") == covered(one, two)
    squared = geometry.distance_squared(geometry.exact(first), geometry.exact(second))
    assert math.isclose(math.sqrt(squared), one.distance(two), rel_tol=1e-12, abs_tol=1e-12)


@settings(max_examples=200, deadline=None)
@given(plane_places, st.lists(plane_places, min_size=2, max_size=4))
def test_several_places_cover_what_their_union_covers(first, others):
    inner = rest = to_shapely(first)
    for place in others:  # one by one: GEOS errs with unions of points, lines and areas
        rest = rest.difference(to_shapely(place))
    if isinstance(inner, shapely.Point):
        within = rest.is_empty
    else:
        left = rest.area if inner.area else rest.length
        assume(left == 0 or left > 1e-9)  # no slivers of rounding, where slanted edges cross
        within = left == 0
    assert geometry.place_within(first, others, "planar") == within


def all_round(places: list[Location]) -> shapely.Geometry:
    return shapely.union_all([turned(to_shapely(p), turn) for p in places for turn in TURNS])


@settings(max_examples=150, deadline=None)
@given(strategies.locations("globe"), strategies.locations("globe"))
@example(Box(-180, 1, -180, 2), Box(180, 1, -180, 1))
@example(Box(180, 2, -180, 2), Point(-180, 1))
@example(Box(180, 2, -180, 2), Box(180, 1, -180, 3))
@example(Box(170, 0, -170, 1), Box(-180, 0, 180, 1))
def test_relations_on_the_globe_are_those_of_shapely_over_all_turns(first, second):
    one, two = to_shapely(first), to_shapely(second)
    meet = any(turned(one, turn).intersects(two) for turn in TURNS)
    assert geometry.places_meet(first, second, "globe") == meet
    assert geometry.place_within(first, [second], "globe") == covered(one, all_round([second]))


@given(plane_places, st.floats(-5, 5), st.floats(-5, 5))
def test_points_in_places_with_any_coordinates(place, x, y):
    assert geometry.places_meet(Point(x, y), place, "planar") == to_shapely(place).intersects(
        shapely.Point(x, y)
    )


@given(ragged())
def test_the_centroid_is_that_of_shapely(polygon):
    centre = to_shapely(polygon).centroid
    assert geometry.centroid(polygon) == pytest.approx((centre.x, centre.y), abs=1e-9)


def test_the_centroid_of_a_box_is_its_middle_even_across_the_antimeridian():
    assert geometry.centroid(Box(170, -10, -160, 30)) == (185, 10)
    assert geometry.centroid(Box(1, 2, 1, 4)) == (1, 3)
    assert geometry.centroid(Point(7, 8)) == (7, 8)


@given(longitudes, latitudes, longitudes, latitudes)
def test_haversine_is_the_great_circle_of_pyproj(lon1, lat1, lon2, lat2):
    expected = SPHERE.inv(lon1, lat1, lon2, lat2)[2]
    # Near the antipode the haversine formula loses half of its digits.
    close = 1e-6 if expected < 20_000_000 else 1.0
    assert geometry.haversine(lon1, lat1, lon2, lat2) == pytest.approx(expected, abs=close)


def test_haversine_by_hand():
    quarter = math.pi / 2 * geometry.EARTH_RADIUS_M
    assert geometry.haversine(0, 0, 90, 0) == pytest.approx(quarter)
    assert geometry.haversine(13, 90, -50, 0) == pytest.approx(quarter)
    assert geometry.haversine(0, -90, 77, 90) == pytest.approx(2 * quarter)
    assert geometry.haversine(179.5, 0, -179.5, 0) == pytest.approx(quarter / 90)
    assert geometry.haversine(5, 5, 5, 5) == 0


@given(longitudes, latitudes, longitudes, latitudes)
def test_the_projection_is_that_of_pyproj(lon0, lat0, lon, lat):
    assume(geometry.haversine(lon0, lat0, lon, lat) < 19_900_000)
    projection = pyproj.Proj(proj="aeqd", R=6371008.8, lon_0=lon0, lat_0=lat0)
    found = geometry.azimuthal_equidistant(lon0, lat0)(lon, lat)
    assert found == pytest.approx(projection(lon, lat), abs=1e-3)


@given(longitudes, latitudes, longitudes, latitudes)
def test_the_projection_keeps_distances_from_its_centre(lon0, lat0, lon, lat):
    x, y = geometry.azimuthal_equidistant(lon0, lat0)(lon, lat)
    assert math.hypot(x, y) == pytest.approx(geometry.haversine(lon0, lat0, lon, lat))


def test_the_centre_of_a_projection_is_its_origin():
    assert geometry.azimuthal_equidistant(12.5, 41.9)(12.5, 41.9) == (0, 0)


def distance_in_the_projection(first: Location, second: Location) -> float:
    """Metres between two places by shapely and pyproj; not for what lies on the far side."""
    lon, lat = geometry.centroid(first)
    one, two = to_shapely(first), to_shapely(second)
    if any(turned(one, turn).intersects(two) for turn in TURNS):
        return 0.0
    projection = pyproj.Proj(proj="aeqd", R=6371008.8, lon_0=lon, lat_0=lat)

    def project(xy):
        return list(zip(*projection(xy[:, 0], xy[:, 1]), strict=True))

    one, two = (
        shapely.transform(shapely.segmentize(borders(shape), 1.0), project) for shape in (one, two)
    )
    xy = shapely.get_coordinates([one, two])
    assume(float(abs(xy[:, 0] + 1j * xy[:, 1]).max()) < 10_007_557)
    return float(one.distance(two))


def borders(shape: shapely.Geometry) -> shapely.Geometry:
    """All rings of a shape: where no places meet, nothing else is nearest."""
    return shape.boundary if isinstance(shape, shapely.Polygon) else shape


@settings(max_examples=150, deadline=None)
@given(strategies.circles("globe"), strategies.locations("globe"))
def test_circles_meet_what_lies_near_in_the_projection(circle, place):
    apart = distance_in_the_projection(Point(circle.x, circle.y), place)
    assume(apart == 0 or abs(apart - circle.radius_m) > 0.01)
    assert geometry.place_in_region(place, circle, "globe") == (apart <= circle.radius_m)


extents = st.one_of(strategies.boxes("globe"), strategies.polygons("globe"))


@settings(max_examples=150, deadline=None)
@given(extents, strategies.locations("globe"))
@example(Box(-60, 40, 60, 60), Point(0, 61))
@example(Box(-60, 40, 60, 60), Box(-1, 58, 1, 61))
@example(Box(10, 80, 130, 85), Box(60, 86, 70, 87))
@example(Box(170, -10, -150, 20), Polygon([(-150, 30), (-120, 21), (-120, 40)]))
def test_the_distance_of_shapes_is_taken_in_the_projection_of_the_first(first, second):
    apart = distance_in_the_projection(first, second)
    assert geometry.globe_distance(first, second) == pytest.approx(apart, abs=0.01)


@given(strategies.circles("planar"), plane_places)
def test_circles_on_a_plane_are_closed(circle, place):
    apart = to_shapely(place).distance(shapely.Point(circle.x, circle.y))
    assume(apart == circle.radius_m or abs(apart - circle.radius_m) > 1e-9)
    assert geometry.place_in_region(place, circle, "planar") == (apart <= circle.radius_m)


# --- by hand ------------------------------------------------------------------------------------


def polygon(*corners, hole=None):
    return Polygon(corners, () if hole is None else (hole,))


FRAME = polygon((0, 0), (9, 0), (9, 9), (0, 9), hole=((3, 3), (6, 3), (6, 6), (3, 6)))


@pytest.mark.parametrize(
    ("place", "meets", "within"),
    [
        (Point(4, 4), False, False),
        (Point(3, 4), True, True),
        (Point(0, 0), True, True),
        (Point(9, 4), True, True),
        (Point(9.0001, 4), False, False),
        (Box(4, 4, 5, 5), False, False),
        (Box(4, 4, 6, 5), True, False),
        (Box(3, 3, 6, 6), True, False),
        (Box(6, 0, 9, 9), True, True),
        (Box(1, 1, 8, 8), True, False),
        (Box(1, 1, 8, 1), True, True),
        (Box(1, 4, 8, 4), True, False),
        (Box(9, 9, 12, 12), True, False),
        (Box(-5, -5, 20, 20), True, False),
        (FRAME, True, True),
        (polygon((0, 0), (9, 0), (9, 9), (0, 9)), True, False),
    ],
)
def test_a_polygon_with_a_hole(place, meets, within):
    assert geometry.places_meet(place, FRAME, "planar") is meets
    assert geometry.places_meet(FRAME, place, "planar") is meets
    assert geometry.place_within(place, [FRAME], "planar") is within


def test_the_border_is_exact_to_the_last_bit():
    triangle = polygon((0, 0), (3, 0), (3, 1))
    on = Fraction(0.3) / 3
    y = float(on)
    assert geometry.places_meet(Point(0.3, y), triangle, "planar") == (Fraction(y) <= on)
    assert not geometry.places_meet(Point(0.3, math.nextafter(y, 1)), triangle, "planar")
    assert geometry.places_meet(Point(0.3, math.nextafter(y, 0)), triangle, "planar")


@pytest.mark.parametrize(
    ("lon", "region", "expected"),
    [
        (180, Box(170, -1, 180, 1), True),
        (-180, Box(170, -1, 180, 1), True),
        (180, Box(-180, -1, -170, 1), True),
        (175, Box(170, -1, -170, 1), True),
        (-175, Box(170, -1, -170, 1), True),
        (0, Box(170, -1, -170, 1), False),
        (-170, Box(170, -1, -170, 1), True),
        (math.nextafter(-170, 0), Box(170, -1, -170, 1), False),
        (math.nextafter(-180, 0), Box(170, -1, 180, 1), False),
        (-175, polygon((170, -1), (190, -1), (190, 1), (170, 1)), True),
        (175, polygon((-190, -1), (-170, -1), (-170, 1), (-190, 1)), True),
        (1, polygon((-360, -1), (-358, -1), (-358, 1), (-360, 1)), True),
        (-1, polygon((358, -1), (360, -1), (360, 1), (358, 1)), True),
        (179, Circle(-179, 0, 223_000), True),
        (179, Circle(-179, 0, 222_000), False),
    ],
)
def test_the_antimeridian(lon, region, expected):
    assert geometry.place_in_region(Point(lon, 0), region, "globe") is expected


def test_shapes_two_turns_apart_are_the_same():
    west = polygon((-360, 0), (-358, 0), (-358, 2), (-360, 2))
    east = polygon((359, 0), (360, 0), (360, 2), (359, 2))
    assert geometry.places_meet(west, east, "globe")
    assert not geometry.places_meet(west, east, "planar")


def test_what_goes_all_the_way_round_has_no_seam():
    band = polygon((-180, -90), (0, -80), (180, -90), (180, 90), (-180, 90))
    for world in (Box(-180, -90, 180, 90), band):
        assert geometry.place_within(Box(170, 0, -170, 1), [world], "globe")
        assert geometry.place_within(polygon((170, 0), (190, 0), (190, 1)), [world], "globe")
        assert not geometry.place_within(Box(170, 0, -170, 1), [world], "planar")
    assert not geometry.place_within(Box(170, 0, -170, 1), [Box(-180, -90, 180, 0.5)], "globe")
    assert not geometry.place_within(Box(-1, -90, 1, 1), [band], "globe")


WEST, EAST = polygon((0, 0), (4, 0), (6, 3), (0, 3)), polygon((4, 0), (9, 0), (9, 3), (6, 3))


@pytest.mark.parametrize(
    ("place", "parts", "within"),
    [
        (Box(1, 1, 8, 2), [WEST, EAST], True),
        (Box(1, 1, 8, 2), [WEST], False),
        (Box(1, 1, 8, 3.5), [WEST, EAST], False),
        (Box(1, 1, 8, 2), [WEST, polygon((4.1, 0), (9, 0), (9, 3), (6.1, 3))], False),
        (Box(1, 1, 8, 1), [WEST, EAST], True),  # no area
        (Box(1, 1, 8, 1), [WEST, polygon((5, 0), (9, 0), (9, 3), (6, 3))], False),
        (Point(5, 1.5), [WEST, EAST], True),  # on the seam
        (FRAME, [FRAME, WEST], True),
        (polygon((0, 0), (9, 0), (9, 9), (0, 9)), [FRAME, Box(3, 3, 6, 6)], True),
        (polygon((0, 0), (9, 0), (9, 9), (0, 9)), [FRAME, Box(3, 3, 6, 5)], False),
        (Box(3, 3, 6, 6), [FRAME], False),
        (Box(0, 0, 4, 4), [Box(0, 0, 3, 2), Box(2, 0, 4, 3), Box(1, 1, 4, 4)], False),
        (Box(0, 0, 4, 4), [Box(0, 0, 3, 2), Box(2, 0, 4, 3), Box(0, 2, 4, 4)], True),
    ],
)
def test_touching_places_cover_together(place, parts, within):
    assert geometry.place_within(place, parts, "planar") is within
    if all(abs(x) < 90 for x, _ in geometry.corners(place)[0]):
        assert geometry.place_within(place, parts, "globe") is within


def test_the_halves_of_a_cut_at_the_antimeridian_cover_together():
    halves = [Box(170, 0, 180, 9), Box(-180, 0, -170, 9)]
    for place in (Box(175, 1, -175, 2), polygon((175, 1), (185, 1), (185, 2))):
        assert geometry.place_within(place, halves, "globe")
        assert not geometry.place_within(place, halves[:1], "globe")
    assert not geometry.place_within(Box(175, 1, -169, 2), halves, "globe")


@pytest.mark.parametrize("pole", [-90, 90])
def test_a_circle_at_a_pole_reaches_every_meridian(pole):
    near, far = math.copysign(89.1, pole), math.copysign(88.9, pole)
    for lon in (-180, -91, 0, 17, 180):
        circle = Circle(33, pole, 111_195)
        assert geometry.place_in_region(Point(lon, near), circle, "globe")
        assert not geometry.place_in_region(Point(lon, far), circle, "globe")


def test_a_circle_of_no_radius_is_a_point():
    assert geometry.place_in_region(Point(12.5, 41.9), Circle(12.5, 41.9, 0), "globe")
    assert not geometry.place_in_region(Point(12.5, 41.90001), Circle(12.5, 41.9, 0), "globe")
    assert geometry.place_in_region(Box(1, 1, 2, 2), Circle(2, 2, 0), "planar")


def test_an_extended_place_meets_a_circle_by_its_nearest_edge():
    one_degree = geometry.haversine(0, 0, 1, 0)
    box = Box(1, -1, 2, 1)
    assert geometry.place_in_region(box, Circle(0, 0, one_degree + 20), "globe")
    assert not geometry.place_in_region(box, Circle(0, 0, one_degree - 20), "globe")
    assert geometry.place_in_region(Box(3, 3, 4, 4), Circle(0, 3, 3), "planar")
    assert not geometry.place_in_region(Box(3, 3, 4, 4), Circle(0, 3, 2.9), "planar")


def test_a_circle_in_a_hole_does_not_meet_the_polygon():
    assert not geometry.place_in_region(FRAME, Circle(4.5, 4.5, 1.4), "planar")
    assert geometry.place_in_region(FRAME, Circle(4.5, 4.5, 1.5), "planar")
    assert not geometry.place_in_region(FRAME, Circle(4.5, 4.5, 150_000), "globe")
    assert geometry.place_in_region(FRAME, Circle(4.5, 4.5, 170_000), "globe")


METRES_PER_DEGREE = math.radians(1) * geometry.EARTH_RADIUS_M


def test_a_shape_that_holds_the_centre_of_another_is_at_no_distance():
    """In the projection its edges run elsewhere: by them it would lie south of the other."""
    wide, inside = Box(-60, 40, 60, 60), Box(-0.1, 59.7, 0.1, 59.9)
    assert geometry.globe_distance(inside, wide) == geometry.globe_distance(wide, inside) == 0
    assert geometry.globe_distance(Box(-180, -85, 180, 85), Point(90, 20)) == 0


def test_edges_are_parallels_and_not_great_circles():
    wide = Box(-60, 40, 60, 60)
    apart = geometry.globe_distance(Point(0, 61), wide)
    assert apart == pytest.approx(METRES_PER_DEGREE, rel=1e-3)
    assert geometry.globe_distance(Point(0, 39), wide) == pytest.approx(apart, rel=1e-3)
    assert geometry.globe_distance(Box(-0.1, 61, 0.1, 62), wide) == pytest.approx(apart, rel=1e-2)


def test_on_the_far_side_the_nearer_ends_count():
    quarter = 90 * METRES_PER_DEGREE
    assert geometry.globe_distance(Point(0, 0), Box(178, -2, -178, 2)) == pytest.approx(
        (180 - math.sqrt(8)) * METRES_PER_DEGREE,
        rel=1e-3,  # by a corner
    )
    assert geometry.globe_distance(Point(0, 0), Box(180, -2, 180, 2)) > 1.97 * quarter
    assert geometry.globe_distance(Box(-1, -1, 1, 1), Box(180, -2, 180, 2)) > 1.95 * quarter
    # Part of it on this side: what passes the antipode still is no line through the middle.
    across = Polygon([(91, -50), (180, -0.1), (269, -50), (269, -40), (180, 0.1), (91, -40)])
    assert geometry.globe_distance(Point(0, 0), across) > 0.98 * quarter
