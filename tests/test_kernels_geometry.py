"""The geometry kernels against rational arithmetic, the oracle and shapely."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import shapely
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nearcast import Event, Matcher, Subscription
from nearcast.kernels import geometry
from nearcast.matcher.places import shape_floats
from nearcast.model.geometry import Box, Circle, Location, Point, Polygon
from tests import oracle_geometry
from tests.strategies import boxes, points, polygons

EXAMPLES = settings(max_examples=80, deadline=None)
METRES_PER_DEGREE = math.radians(1) * geometry.EARTH_RADIUS_M


def sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def assume_comparable(*values: float) -> None:
    """Leave out numbers beside which the others are nothing: their products are no floats."""
    assume(all(value == 0 or abs(value) > 1e-140 for value in values))


def nudged(value: float, steps: int) -> float:
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.inf if steps > 0 else -math.inf)
    return value


# --- orientation ------------------------------------------------------------------------------

STEPS = st.integers(-2, 2)
PLAIN = st.floats(-1e6, 1e6)


def turn(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    a, b, c = ((Fraction(x), Fraction(y)) for x, y in ((ax, ay), (bx, by), (cx, cy)))
    return sign((a[0] - c[0]) * (b[1] - c[1]) - (a[1] - c[1]) * (b[0] - c[0]))


@EXAMPLES
@given(PLAIN, PLAIN, PLAIN, PLAIN, st.floats(-3, 3), STEPS, STEPS)
@example(0.1, 0.1, 0.3, 0.3, 0.5, 0, 1)
@example(1e6, 1e-6, -1e6, -1e-6, 0.5, 0, 0)
def test_orientation_is_exact_near_a_line(ax, ay, bx, by, t, dx, dy) -> None:
    cx, cy = nudged(ax + t * (bx - ax), dx), nudged(ay + t * (by - ay), dy)
    assume_comparable(ax, ay, bx, by, cx, cy)
    assert geometry.orient(ax, ay, bx, by, cx, cy) == turn(ax, ay, bx, by, cx, cy)


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**-600, 2.0**-300, 1.0, 2.0**500, 2.0**1000])
def test_orientation_of_the_huge_and_the_tiny(scale) -> None:
    left, right, line = (1, 1, 3, 2, 2, 2), (1, 1, 3, 2, 2, 1), (1, 1, 3, 3, 2, 2)
    for corners in (left, right, line):
        scaled = tuple(scale * value for value in corners)
        assert geometry.orient(*scaled) == turn(*corners)


# --- points in polygons -----------------------------------------------------------------------


@EXAMPLES
@given(polygons("planar"), st.integers(0, 20), st.floats(0, 1), STEPS, STEPS, st.floats(0.1, 7))
def test_points_near_a_border(polygon, edge, t, dx, dy, scale) -> None:
    scaled = Polygon(
        [(x * scale, y * scale) for x, y in polygon.exterior],
        [[(x * scale, y * scale) for x, y in hole] for hole in polygon.holes],
    )
    edges = [
        (ring[i], ring[(i + 1) % len(ring)]) for ring in scaled.rings for i in range(len(ring))
    ]
    (ax, ay), (bx, by) = edges[edge % len(edges)]
    x, y = nudged(ax + t * (bx - ax), dx), nudged(ay + t * (by - ay), dy)
    assume_comparable(x, y)
    shape = oracle_geometry.exact(scaled)
    wanted = oracle_geometry.contains_point(shape, (Fraction(x), Fraction(y)))
    kind, floats = shape_floats(scaled)
    assert geometry.point_in_shape(kind, np.array(floats), 0, x, y, False) == wanted


# --- circles on a plane -----------------------------------------------------------------------


def apart(x1: float, y1: float, x2: float, y2: float) -> Fraction:
    return (Fraction(x2) - Fraction(x1)) ** 2 + (Fraction(y2) - Fraction(y1)) ** 2


@pytest.mark.parametrize(
    "scale", [2.0**-1060, 2.0**-600, 2.0**-340, 2.0**-20, 1.0, 0.1, 1e10, 2.0**460, 2.0**1010]
)
@pytest.mark.parametrize(("a", "b", "c"), [(3, 4, 5), (20, 21, 29), (0, 7, 7), (119, 120, 169)])
def test_borders_of_circles_are_exact_at_any_size(a, b, c, scale) -> None:
    for x1, y1 in ((0.0, 0.0), (scale, -scale)):
        x2, y2, radius = x1 + a * scale, y1 - b * scale, c * scale
        for r in (radius, nudged(radius, 1), nudged(radius, -1), 2 * radius, radius / 2):
            wanted = apart(x1, y1, x2, y2) <= Fraction(r) ** 2
            assert geometry.within(x1, y1, x2, y2, r, False) == wanted


@EXAMPLES
@given(PLAIN, PLAIN, st.floats(0, 1e3), st.floats(0, math.tau), STEPS)
@example(0.1, 0.2, 0.3, 0.0, 0)
@example(1e6, 1e6, 1e-9, 1.0, 0)
def test_borders_of_circles_are_exact(x, y, radius, angle, step) -> None:
    x2, y2 = x + radius * math.cos(angle), nudged(y + radius * math.sin(angle), step)
    assume_comparable(x2 - x, y2 - y, radius)
    wanted = apart(x, y, x2, y2) <= Fraction(radius) ** 2
    assert geometry.within(x, y, x2, y2, radius, False) == wanted


@pytest.mark.parametrize(
    ("ends", "radius", "wanted"),
    [
        ((0, 0, 1e200, 1e200), 1e200, False),
        ((0, 0, 1e200, 1e200), 1.5e200, True),
        ((0, 0, 9e-201, 9e-201), 1e-200, False),
        ((0, 0, 7e-201, 7e-201), 1e-200, True),
        ((-1.7e308, 0, 1.7e308, 0), 1.7e308, False),
        ((1e300, 0, 1e300, 3e-300), 3e-300, True),
        ((1e300, 0, 1e300, 3e-300), 2.9e-300, False),
        ((1, 1, 1, 1), 0, True),
        # The differences of these are no floats, and what is rounded off decides.
        ((0.43788759365057206, 0.49581224138185065, 2.3308445025757263, 2.308665415409843),
         2.6210155454767605, False),
        ((0.7705231398308006, 0.5396174484497788, 8.602897789205496, 2.3217612806301458),
         8.032566793170531, True),
        ((0, 0, 5e-324, 0), 0, False),
    ],
)  # fmt: skip
def test_circles_whose_squares_no_float_can_hold(ends, radius, wanted) -> None:
    assert geometry.within(*map(float, ends), float(radius), False) == wanted


@EXAMPLES
@given(PLAIN, PLAIN, st.floats(0, 1e6), st.floats(0, math.tau))
def test_the_square_of_a_circle_holds_it(x, y, radius, angle) -> None:
    px, py = x + radius * math.cos(angle), y + radius * math.sin(angle)
    xmin, ymin, xmax, ymax = geometry.square_bounds(x, y, radius)
    if apart(x, y, px, py) <= Fraction(radius) ** 2:
        assert xmin <= px <= xmax
        assert ymin <= py <= ymax


@EXAMPLES
@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(0, 2.5e7), st.floats(0, math.tau))
@example(0.0, 89.0, 111_195.0, 3.0)
@example(180.0, 0.0, 1e7, 1.0)
def test_the_bounds_of_a_cap_hold_it(lon, lat, radius, bearing) -> None:
    angle, phi = radius / geometry.EARTH_RADIUS_M * 0.999_999, math.radians(lat)
    s = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * math.cos(bearing)
    lat2 = math.degrees(math.asin(max(-1.0, min(1.0, s))))
    east = math.sin(bearing) * math.sin(angle) * math.cos(phi)
    turned = math.degrees(math.atan2(east, math.cos(angle) - math.sin(phi) * s))
    lon2 = (lon + turned + 540) % 360 - 180
    if geometry.within(lon, lat, lon2, lat2, radius, True):
        xmin, ymin, xmax, ymax = geometry.cap_bounds(lon, lat, radius)
        assert ymin <= lat2 <= ymax
        assert any(xmin <= lon2 + 360 * k <= xmax for k in (-1, 0, 1))


# --- shapes -----------------------------------------------------------------------------------


def places(space: str) -> st.SearchStrategy[Location]:
    return st.one_of(points(space), boxes(space), polygons(space))


def areas(space: str) -> st.SearchStrategy[Box | Polygon]:
    return st.one_of(boxes(space), polygons(space))


def encoded(place: Location) -> tuple[int, np.ndarray, int]:
    kind, floats = shape_floats(place)
    return kind, np.array(floats), 0


@pytest.mark.parametrize("space", ["globe", "planar"])
@EXAMPLES
@given(data=st.data())
def test_shapes_meet_and_cover_as_the_oracle_says(space, data) -> None:
    outer, inner = data.draw(areas(space)), data.draw(places(space))
    ends = (*encoded(outer), *encoded(inner), space == "globe")
    assert geometry.shapes_meet(*ends) == oracle_geometry.places_meet(inner, outer, space)
    assert geometry.shape_covers(*ends) == oracle_geometry.place_within(inner, [outer], space)


@EXAMPLES
@given(areas("planar"), places("planar"))
def test_distances_between_shapes(first, second) -> None:
    wanted = oracle_geometry.distance_squared(
        oracle_geometry.exact(first), oracle_geometry.exact(second)
    )
    found = geometry.shapes_distance(*encoded(first), *encoded(second), False)
    assert found == pytest.approx(math.sqrt(wanted), abs=1e-12)
    assert (found == 0) == (wanted == 0)
    shapes = [shapely.polygons(oracle_geometry.corners(p)[0]) for p in (first, second)
              if isinstance(p, Box)]  # fmt: skip
    if len(shapes) == 2:
        assert found == pytest.approx(shapes[0].distance(shapes[1]), abs=1e-12)


@EXAMPLES
@given(areas("globe"), places("globe"))
def test_distances_on_the_globe(first, second) -> None:
    found = geometry.shapes_distance(*encoded(first), *encoded(second), True)
    assert found == pytest.approx(oracle_geometry.globe_distance(first, second), rel=1e-9, abs=1e-3)


def somewhere(rng: random.Random) -> Box | Polygon | Point:
    """A place of any size near the antimeridian, a pole, the prime meridian or anywhere."""
    lon = rng.choice([180, 0, 90, rng.uniform(-180, 180)]) + rng.choice([0, rng.uniform(-3, 3)])
    lat = rng.choice([90, -90, 0, rng.uniform(-90, 90)]) + rng.choice([0, rng.uniform(-3, 3)])
    size = rng.choice([0, 0.01, 1, 3, 20, 100])
    wide, high = size * rng.uniform(0, 2), size * rng.uniform(0, 1)
    west = (lon - wide / 2 + 540) % 360 - 180
    south, north = max(-90, min(90, lat - high / 2)), min(90, max(-90, lat + high / 2))
    if size == 0:
        return Point(west, south)
    if rng.random() < 0.5 or not south < north:
        return Box(west, south, (west + wide + 180) % 360 - 180, max(south, north))
    middle = rng.uniform(south, north)
    return Polygon([(west, south), (west + wide, middle), (west + wide / 3, north)])


def test_distances_of_places_of_any_size_anywhere() -> None:
    rng = random.Random(7)
    touching = 0
    for _ in range(400):
        first, second = somewhere(rng), somewhere(rng)
        wanted = oracle_geometry.globe_distance(first, second)
        found = geometry.shapes_distance(*encoded(first), *encoded(second), True)
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-3), (first, second)
        touching += wanted == 0
    assert touching > 10


def test_edges_are_cut_to_a_degree_as_shapely_does() -> None:
    rng = random.Random(8)
    for _ in range(50):
        place = somewhere(rng)
        if isinstance(place, Point):
            continue
        kind, floats, _ = encoded(place)
        cut = geometry.segmentized(geometry.as_polygon(kind, floats, 0))
        ring = shapely.segmentize(shapely.LinearRing(oracle_geometry.corners(place)[0]), 1.0)
        wanted = shapely.get_coordinates(ring)[:-1]
        if isinstance(place, Box) and 0 in (place.ymax - place.ymin, place.xmax - place.xmin):
            continue  # shapely leaves out edges without length
        assert cut[2:].reshape(-1, 2) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("space", ["globe", "planar"])
@EXAMPLES
@given(data=st.data())
def test_shapes_cover_together_as_the_oracle_says(space, data) -> None:
    parts = data.draw(st.lists(areas(space), min_size=2, max_size=4))
    kinds, floats, _ = zip(*map(encoded, parts), strict=True)
    offsets = np.cumsum([0] + [each.size for each in floats])[:-1]
    shapes = np.array(kinds), np.concatenate(floats), offsets
    for inner in (data.draw(places(space)), data.draw(places(space)), parts[0]):
        found = geometry.shapes_cover(*shapes, *encoded(inner), space == "globe")
        assert found == oracle_geometry.place_within(inner, parts, space)


@EXAMPLES
@given(st.floats(-180, 180), STEPS, st.floats(-180, 180))
def test_the_ends_of_a_box_across_the_antimeridian_are_exact(end, steps, other) -> None:
    lon = min(180.0, max(-180.0, nudged(end, steps)))
    for box in (Box(other, 0, end, 1), Box(end, 0, other, 1)):
        for place in (Point(lon, 0.5), Box(lon, 0, lon, 1), Box(lon, 0, end, 1)):
            ends = (*encoded(box), *encoded(place), True)
            wanted = oracle_geometry.places_meet(place, box, "globe")
            assert geometry.shapes_meet(*ends) == wanted, (box, place)


def test_a_hole_is_no_part_but_its_border_is() -> None:
    ring = Polygon([(0, 0), (9, 0), (9, 9), (0, 9)], [[(3, 3), (6, 3), (6, 6), (3, 6)]])
    inside, across, filling = Box(4, 4, 5, 5), Box(4, 4, 7, 5), Box(3, 3, 6, 6)
    for place, meets, covered in (
        (inside, False, False),
        (across, True, False),
        (filling, True, False),
        (Box(1, 1, 8, 8), True, False),
        (Box(0, 0, 9, 3), True, True),
        (Box(3, 3, 3, 6), True, True),
        (Point(3, 3), True, True),
        (Point(4, 4), False, False),
    ):
        ends = (*encoded(ring), *encoded(place), False)
        assert geometry.shapes_meet(*ends) == meets
        assert geometry.shape_covers(*ends) == covered
    assert geometry.shapes_distance(*encoded(ring), *encoded(inside), False) == 1


@pytest.mark.parametrize(
    ("first", "second", "metres"),
    [
        ((0, 0), (0, 90), math.pi / 2 * geometry.EARTH_RADIUS_M),
        ((0, 0), (180, 0), math.pi * geometry.EARTH_RADIUS_M),
        ((179.5, 0), (-179.5, 0), math.radians(1) * geometry.EARTH_RADIUS_M),
        ((0, 0), (90, 45), math.pi / 2 * geometry.EARTH_RADIUS_M),
        ((-30, 60), (150, 45), math.radians(75) * geometry.EARTH_RADIUS_M),
        ((10, 90), (-120, 90), 0),
        ((5, 5), (5, 5), 0),
    ],
)
def test_metres_along_great_circles(first, second, metres) -> None:
    found = geometry.haversine_m(*map(float, (*first, *second)))
    assert found == pytest.approx(metres, abs=1e-6)


@pytest.mark.parametrize(
    ("here", "there", "meets"),
    [
        (Circle(0, 0, 1000), Box(178, -2, -178, 2), False),
        (Circle(0, 0, 1000), Box(180, -2, 180, 2), False),
        (Circle(0, 90, 1), Box(90, -90, 180, -60), False),
        (Circle(180, -75, 1_712_730.6), Box(-0.11, 69.1, 0.11, 80.9), False),
        (
            Circle(180, 74.41, 10_000_001),
            Polygon([(-0.047, -74.483), (0.081, -74.419), (-0.034, -74.329)]),
            False,
        ),
        (
            Circle(0, 90, 1),
            Polygon([(-180, -90), (180, -90), (180, -75), (0, -65), (-180, -75)]),
            False,
        ),
        (Circle(0, 0, 19_900_000), Box(179, -2, 180, 2), True),  # by a corner
        (Circle(0, 0, 1), Box(-179, -80, 179, 80), True),  # from one far side to the other
        (Circle(90, 20, 1), Box(-180, -85, 180, 85), True),
        (Circle(90, 86, 1), Box(-180, -85, 180, 85), False),
    ],
)
def test_shapes_that_are_large_or_on_the_far_side_of_the_globe(here, there, meets) -> None:
    """Round the antipode a shape lies round the rim of the map, and seems to hold the centre."""
    event = Event(id="e", location=there)
    assert oracle_geometry.place_in_region(there, here, "globe") == meets
    for index in ("scan", "pivot"):
        matcher = Matcher(index=index)
        matcher.add_subscriptions([Subscription(id="s", region=here)])
        assert matcher.match_event(event) == ["s"] * meets
        assert matcher.explain("s", event).matched == meets


def test_circles_beside_large_shapes_as_the_oracle_says() -> None:
    """The edges of a box are parallels: far from its corners they are where the box says."""
    rng = random.Random(6)
    large: list[Box | Polygon] = [
        Box(-180, 80, 180, 85),
        Box(-170, 60, 170, 70),
        Box(-90, 40, 90, 60),
        Box(100, -89.5, -100, -80),
        Box(-20, -1, 20, 1),
        Polygon([(0, 0), (90, 60), (0, 70)]),
        Polygon([(150, -60), (250, -50), (250, -40)]),
    ]
    circles: dict[str, Circle] = {}
    for k, place in enumerate(large):
        (ring,) = oracle_geometry.corners(place)
        for i in range(25):
            (ax, ay), (bx, by) = rng.choice([*zip(ring, ring[1:] + ring[:1], strict=True)])
            t, radius = rng.random(), rng.choice([1000, 50_000, 500_000])
            north = radius / METRES_PER_DEGREE * rng.uniform(-2, 2)
            lon = (ax + t * (bx - ax) + 180) % 360 - 180
            lat = max(-90, min(90, ay + t * (by - ay) + north))
            circles[f"{k}-{i:02}"] = Circle(lon, lat, radius)
    subscriptions = [Subscription(id=id, region=circle) for id, circle in circles.items()]
    wanted = [
        [
            id
            for id, near in circles.items()
            if oracle_geometry.place_in_region(place, near, "globe")
        ]
        for place in large
    ]
    for index in ("scan", "pivot"):
        matcher = Matcher(index=index)
        matcher.add_subscriptions(subscriptions)
        for k, place in enumerate(large):
            assert matcher.match_event(Event(id="e", location=place)) == sorted(wanted[k])
    matcher = Matcher(index="pivot")
    matcher.add_events([Event(id=str(k), location=place) for k, place in enumerate(large)])
    for each in subscriptions:
        found = [str(k) for k in range(len(large)) if each.id in wanted[k]]
        assert matcher.match_subscription(each) == found


@pytest.mark.parametrize(
    ("circle", "place"),
    [
        # Between the ends of a piece of a parallel a straight line runs nearer to the pole …
        (Circle(20.5, 61, METRES_PER_DEGREE - 50), Box(0, 50, 40, 60)),
        # … and far from the centre, nearer to it than the piece of a meridian is.
        (Circle(10, 0, 80 * METRES_PER_DEGREE - 200), Box(90, -0.5, 100, 0.5)),
        (Circle(170, 0, 80 * METRES_PER_DEGREE - 200), Box(80, -0.5, 90, 0.5)),
    ],
)
def test_circles_that_reach_a_piece_only_by_its_straight_line_are_found(circle, place) -> None:
    assert oracle_geometry.place_in_region(place, circle, "globe")
    event, subscription = Event(id="e", location=place), Subscription(id="s", region=circle)
    for index in ("scan", "pivot"):
        matcher = Matcher(index=index)
        matcher.add_subscriptions([subscription])
        matcher.add_events([event])
        assert matcher.match_event(event) == ["s"]
        assert matcher.match_subscription(subscription) == ["e"]


def test_shapes_near_the_antipode_as_the_oracle_says() -> None:
    rng = random.Random(5)
    regions = [
        Circle(
            rng.choice([0, 180, rng.uniform(-180, 180)]),
            rng.choice([90, -90, -75, rng.uniform(-90, 90)]),
            rng.uniform(1, 2.1e7),
        )
        for _ in range(60)
    ]
    subscriptions = [Subscription(id=f"s{k:02}", region=each) for k, each in enumerate(regions)]
    matcher = Matcher(index="pivot")
    matcher.add_subscriptions(subscriptions)
    for near in regions:
        west = (near.x + 360 + rng.choice([0, rng.uniform(-9, 9)])) % 360 - 180
        south = min(max(-near.y + rng.choice([0, rng.uniform(-9, 9)]), -90), 89)
        wide, high = rng.choice([(0, 0), (1, 0.5), (20, 9)])
        there = Box(west, south, (west + wide + 180) % 360 - 180, min(90, south + high))
        wanted = [
            each.id
            for each, region in zip(subscriptions, regions, strict=True)
            if oracle_geometry.place_in_region(there, region, "globe")
        ]
        assert matcher.match_event(Event(id="e", location=there)) == wanted
