"""Safe and impact regions: Lemmas 1 to 4 for every method, in both spaces, everywhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.kernels.geometry import point_in_polygon
from nearcast.mobility import kernels
from nearcast.mobility.grid import lattice_of
from nearcast.mobility.methods import METHODS
from nearcast.mobility.plane import EARTH_RADIUS_M, Plane, distance
from nearcast.mobility.safe_region import Cells, SafeRegion
from nearcast.mobility.shapes import gap_of, outline_of
from nearcast.mobility.situation import Built
from nearcast.model.geometry import Box, Point, Polygon
from tests.moving import looker, near, situation, within

PLACES = [
    ("planar", 0.0, 0.0),
    ("planar", 1e6, -3e5),
    ("globe", 8.5, 47.4),
    ("globe", 179.999, 10.0),
    ("globe", -180.0, -45.0),
    ("globe", 20.0, 89.999),
    ("globe", 0.0, -90.0),
]


def spots(space, x, y, rng, reach, count) -> list[Any]:
    """Random places round (x, y): mostly near."""
    far = reach * rng.random(count) ** 0.7
    angle = 2 * math.pi * rng.random(count)
    return [
        near(space, x, y, float(d * math.sin(a)), float(d * math.cos(a)))
        for d, a in zip(far, angle, strict=True)
    ]


def built(name, space, x, y, radius, obstacles, **more) -> Built:
    return METHODS[name](situation(space, x, y, radius, **more), looker(space, obstacles))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("space", "x", "y"), PLACES)
def test_lemmas(name, space, x, y):
    rng = np.random.default_rng(5)
    radius = 2000.0
    for crowd, density in ((0, 1e-13), (6, 1e-12), (40, 1e-11)):
        events = [(a, b, radius) for a, b in spots(space, x, y, rng, 30_000.0, crowd)]
        events = [e for e in events if distance(space, x, y, e[0], e[1]) > radius]
        for speed in (12.0, 0.0):
            found = built(name, space, x, y, radius, events, density=density, speed=speed)
            check_lemmas(found, space, x, y, radius, events, rng)


def check_lemmas(found: Built, space, x, y, radius, events, rng):
    diagonal = found.shape.cell * 1.5 if isinstance(found.shape, Cells) else 1.0
    tried = spots(space, x, y, rng, 40_000.0, 150) + spots(space, x, y, rng, 3000.0, 50)
    inside = [p for p in tried if found.shape.contains(*p)]
    for p in inside:  # Definition 1, and Lemma 2: the safe region lies in the impact region
        assert all(distance(space, p[0], p[1], e[0], e[1]) > radius for e in events)
        assert found.impact.covers(*p)
    for p in inside[:40]:  # Definition 2, closed
        for q in spots(space, p[0], p[1], rng, radius * 0.99, 5):
            if distance(space, p[0], p[1], q[0], q[1]) <= radius:
                assert found.impact.covers(*q)
    if found.shape.contains(x, y):  # Lemma 1: so is the notification region
        for q in spots(space, x, y, rng, radius * 0.99, 20):
            if distance(space, x, y, *q) <= radius:
                assert found.impact.covers(*q)
    if isinstance(found.shape, Cells) and not found.shape.discs:
        # Lemma 4, up to a cell: no matching event is deep in the impact region
        for e in events:
            if found.impact.covers(e[0], e[1]):
                ring = [near(space, e[0], e[1], diagonal * a, diagonal * b)
                        for a in (-1.5, 0, 1.5) for b in (-1.5, 0, 1.5)]  # fmt: skip
                assert not all(found.impact.covers(*q) for q in ring) or _no_cell_within(
                    found.shape, space, e, radius
                )


def _no_cell_within(shape: Cells, space, event, radius) -> bool:
    """No cell's centre is within the radius of the event (its nearest point is beyond it)."""
    u, v = shape.plane.to_map(event[0], event[1])
    side = 1 << shape.order
    reach = math.ceil(radius / shape.cell) + 1
    column, row = int((u - shape.x0) // shape.cell), int((v - shape.y0) // shape.cell)
    from nearcast.mobility.safe_region import spread_bits

    for i in range(max(column - reach, 0), min(column + reach + 1, side)):
        for j in range(max(row - reach, 0), min(row + reach + 1, side)):
            if not shape.holds_cell(spread_bits(i) | spread_bits(j) << 1):
                continue
            dx = max(abs(u - shape.x0 - (i + 0.5) * shape.cell) - shape.cell / 2, 0.0)
            dy = max(abs(v - shape.y0 - (j + 0.5) * shape.cell) - shape.cell / 2, 0.0)
            if math.hypot(dx, dy) <= radius:
                return False
    return True


@pytest.mark.parametrize("name", ["igm", "idgm", "disc"])
def test_lemma_3_a_larger_region_has_a_larger_impact_region(name):
    rng = np.random.default_rng(2)
    events = [(*p, 500.0) for p in spots("planar", 0.0, 0.0, rng, 20_000.0, 15)]
    events = [e for e in events if math.hypot(e[0], e[1]) > 500]
    options = {"density": 3e-11, "heading": None}
    small = built(name, "planar", 0.0, 0.0, 500.0, events, beta=0.1, **options)
    large = built(name, "planar", 0.0, 0.0, 500.0, events, beta=2.0, **options)
    tried = spots("planar", 0.0, 0.0, rng, 15_000.0, 2000)
    within = [p for p in tried if small.shape.contains(*p)]
    if name == "disc":  # it draws its grid by the size, so cells differ at the rim
        within = [p for p in within if math.hypot(*p) < 0.7 * small.size]
    assert within
    assert all(large.shape.contains(*p) for p in within)
    impact = [p for p in tried if small.impact.covers(*p)]
    assert sum(large.impact.covers(*p) for p in impact) >= 0.97 * len(impact)


def test_the_grid_methods_share_the_cells_of_the_extent():
    lattice = lattice_of(Box(0, 0, 60_000, 60_000), "planar", 600)
    assert lattice is not None
    assert lattice.cell == 100.0
    events = [(33_000.0, 31_000.0, 1000.0)]
    for name in ("gm", "igm", "idgm"):
        found = built(name, "planar", 30_050.0, 30_050.0, 1000.0, events, lattice=lattice,
                      density=1e-10)  # fmt: skip
        assert isinstance(found.shape, Cells)
        assert found.shape.cell == 100.0
        assert found.shape.x0 / 100 == pytest.approx(round(found.shape.x0 / 100))
        assert found.shape.contains(30_050.0, 30_050.0)


def test_gm_takes_every_safe_cell_of_the_extent():
    lattice = lattice_of(Box(0, 0, 10_000, 10_000), "planar", 100)
    found = built("gm", "planar", 500.0, 500.0, 500.0, [(5000.0, 5000.0, 500.0)], lattice=lattice)
    centres = (np.arange(100) + 0.5) * 100
    for x in centres[::7].tolist():
        for y in centres.tolist():
            gap = math.hypot(max(abs(x - 5000) - 50, 0), max(abs(y - 5000) - 50, 0))
            if abs(gap - 500) > 1e-3:
                assert found.shape.contains(x, y) == (gap > 500)


def test_cells_partly_in_a_disc_stay_with_disc_and_go_without():
    event = [(2200.0, 0.0, 2000.0)]
    plain = built("igm", "planar", 0.0, 0.0, 2000.0, event, density=1e-11)
    ours = built("disc", "planar", 0.0, 0.0, 2000.0, event, density=1e-11)
    assert not plain.shape.contains(0.0, 0.0)
    assert ours.shape.contains(0.0, 0.0)
    assert ours.shape.contains(199.0, 0.0)
    assert not ours.shape.contains(201.0, 0.0)
    assert isinstance(ours.shape, Cells)
    assert len(ours.shape.discs) == 1


def test_idgm_and_disc_reach_farther_ahead_than_behind():
    for name in ("idgm", "disc"):
        turns = np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 0])
        found = built(name, "planar", 0.0, 0.0, 500.0, [], density=1e-11, heading=90.0, turns=turns)
        ahead = max(d for d in range(0, 200_000, 100) if found.shape.contains(float(d), 0.0))
        behind = max(d for d in range(0, 200_000, 100) if found.shape.contains(-float(d), 0.0))
        assert ahead > 1.5 * behind


@pytest.mark.parametrize("name", ["gm", "igm", "idgm", "disc"])
def test_the_circle_round_an_impact_region_holds_it_and_hardly_more(name):
    lattice = lattice_of(Box(-5000, -5000, 5000, 5000), "planar", 100)
    found = built(name, "planar", 0.0, 0.0, 500.0, [], lattice=lattice, density=1e-8)
    circle = found.impact.around()
    assert circle is not None
    x, y, radius = circle
    cells = [(i + 50.0, j + 50.0) for i in range(-8000, 8000, 100) for j in range(-8000, 8000, 100)]
    far = [math.dist((x, y), cell) for cell in cells if found.impact.covers(*cell)]
    assert max(far) <= radius
    # the corners of a bounding box are farther out than what is round in it, by √2 at most
    assert radius < 1.6 * max(far)


def shapes_round(space, x, y, rng, reach, count) -> list[Any]:
    """Halls, walls, triangles and rings somewhere about (x, y), of all sizes."""
    found: list[Any] = []
    for i, (a, b) in enumerate(spots(space, x, y, rng, reach, count)):
        wide, high = (10 ** rng.uniform(0, 4.2, 2)).tolist()
        left, low = near(space, a, b, -wide, -high)
        right, top = near(space, a, b, wide, high)
        if i % 3 == 0 and low < top:
            found.append(Box(left, low, right, top))
            continue
        turn = 360.0 if space == "globe" and right < left else 0.0
        ring = [(left, low), (right + turn, low), (right + turn, top), (left, top)]
        if i % 3 == 1:
            del ring[int(rng.integers(4))]
            found.append(Polygon(ring))
        else:
            middle = ((left + right + turn) / 2, (low + top) / 2)
            hole = [(0.8 * p + 0.2 * middle[0], 0.8 * q + 0.2 * middle[1]) for p, q in ring]
            found.append(Polygon(ring, [hole]))
    return found


SHAPED = [place for place in PLACES if abs(place[2]) < 89 or place[0] == "planar"]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("space", "x", "y"), [*SHAPED, ("globe", -179.99, 87.0)])
def test_extended_events_are_taken_as_they_are(name, space, x, y):
    """Definitions 1 and 2 with shapes, by the oracle; and the region holds its place."""
    rng = np.random.default_rng(11)
    radius = 500.0
    held = 0
    for crowd in (1, 3, 12):
        shapes = shapes_round(space, x, y, rng, 9000.0, crowd)
        shapes = [each for each in shapes if not within(space, x, y, radius, each)]
        points = [(*p, radius) for p in spots(space, x, y, rng, 20_000.0, crowd)]
        points = [p for p in points if distance(space, x, y, p[0], p[1]) > radius]
        look = looker(space, points, [(each, radius) for each in shapes])
        found = METHODS[name](situation(space, x, y, radius, density=1e-11), look)
        held += found.shape.contains(x, y)
        tried = spots(space, x, y, rng, 12_000.0, 60) + spots(space, x, y, rng, 700.0, 40)
        inside = [p for p in tried if found.shape.contains(*p)]
        for p in inside:
            assert not any(within(space, p[0], p[1], radius, each) for each in shapes)
            assert all(distance(space, p[0], p[1], o[0], o[1]) > radius for o in points)
            assert found.impact.covers(*p)
        for each in shapes_round(space, x, y, rng, 6000.0, 8):  # of new ones, every one is heard
            if any(within(space, p[0], p[1], radius, each) for p in [*inside[:20], (x, y)]):
                assert found.impact.meets(each)
    assert held == 3 or name.partition(":")[0] in ("gm", "igm", "idgm")


def test_no_place_inside_an_extended_event_is_safe_however_far_from_its_edges():
    lattice = lattice_of(Box(0, 0, 10_000, 10_000), "planar", 100)
    hall = Polygon([(3000, 3000), (9000, 3000), (9000, 9000), (3000, 9000)],
                   [[(5000, 5000), (7000, 5000), (7000, 7000), (5000, 7000)]])  # fmt: skip
    found = METHODS["gm"](
        situation("planar", 500.0, 500.0, 500.0, lattice=lattice),
        looker("planar", [], [(hall, 500.0)]),
    )
    for x in range(150, 10_000, 300):
        assert not found.shape.contains(float(x), 4000.0) or not 2500 <= x <= 9500
        assert found.shape.contains(float(x), 6050.0) == (x < 2500 or 5550 < x < 6450 or x > 9550)


@pytest.mark.parametrize("name", ["disc", "vm"])
@pytest.mark.parametrize(("space", "x", "y"), PLACES)
@pytest.mark.parametrize("beyond", [1e-12, 1e-7, 1e-3])
def test_a_region_holds_its_place_however_near_an_event_is(name, space, x, y, beyond):
    for radius in (0.0, 3.0, 2000.0):
        for angle in (0.3, 2.0, 4.0):
            far = radius + beyond
            east, north = far * math.sin(angle), far * math.cos(angle)
            spot = near(space, x, y, east, north)
            if distance(space, x, y, *spot) <= radius:
                continue
            found = built(name, space, x, y, radius, [(*spot, radius)])
            assert SafeRegion.decode(SafeRegion(1, found.shape).encode()).contains(Point(x, y))
            assert found.impact.covers(*spot)
            assert not found.shape.contains(*spot)


@given(
    x=st.sampled_from([0.0, 8.5, 179.9]), y=st.sampled_from([0.0, 47.4, -80.0]),
    size=st.floats(1, 600_000), tall=st.floats(1, 600_000), far=st.floats(0, 1_000_000),
    angle=st.floats(0, 6.3), radius=st.sampled_from([1.0, 500.0, 40_000.0]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_a_shape_reaches_no_farther_than_it_is_drawn(x, y, size, tall, far, angle, radius):
    """Wherever the subscriber goes on a map, what the definition lets reach it is drawn there."""
    left, low = near("globe", x, y, -size, -tall)
    right, top = near("globe", x, y, size, tall)
    if not low < top or abs(low) > 88 or abs(top) > 88 or abs(right - left) > 170:
        return
    box = Box(left, low, right, top)
    plane = Plane("globe", x, y, 1_500_000.0)
    outline = outline_of(box, plane, radius)
    place = near("globe", x, y, far * math.sin(angle), far * math.cos(angle))
    meets = within("globe", *place, radius, box)
    assert meets <= (gap_of(box, "globe", *place, radius) <= 1e-6)
    if outline is None:
        return
    u, v = plane.to_map(*place)
    reach = (radius + outline.slop) * plane.stretch + 1e-6
    bars = np.hstack([outline.edges, np.full((len(outline.edges), 1), reach)])
    drawn = kernels.bar_gaps(bars, u, v).min() <= 0 or point_in_polygon(outline.polygon, 0, u, v)
    assert meets <= drawn


def test_voronoi_is_exact():
    rng = np.random.default_rng(4)
    events = [(*p, 300.0) for p in spots("planar", 0.0, 0.0, rng, 8000.0, 40)]
    events = [e for e in events if math.hypot(e[0], e[1]) > 300]
    found = built("vm", "planar", 0.0, 0.0, 300.0, events)
    home = min(events, key=lambda e: math.hypot(e[0], e[1]))
    for p in spots("planar", 0.0, 0.0, rng, 6000.0, 3000):
        gaps = sorted((math.dist(p, e[:2]), e) for e in events)
        if abs(gaps[0][0] - gaps[1][0]) < 1e-3 or abs(gaps[0][0] - 300) < 1e-3:
            continue
        assert found.shape.contains(*p) == (gaps[0][1] == home and gaps[0][0] > 300)
    # the impact region is the cell, larger by r: no more (sampled), no less (Lemma 1 above)
    cell = [p for p in spots("planar", 0.0, 0.0, rng, 9000.0, 6000)
            if min(events, key=lambda e: math.dist(p, e[:2])) == home]  # fmt: skip
    for q in spots("planar", 0.0, 0.0, rng, 6000.0, 300):
        gap = min(math.dist(q, p) for p in cell)
        if gap > 300 + 400:
            assert not found.impact.covers(*q)


def test_an_open_voronoi_cell_does_not_grow_from_one_region_to_the_next():
    events = [(44.0, 0.0, 3.0), (0.0, 25.0, 3.0), (2.0, 27.0, 3.0)]
    known = 0.0
    for _ in range(60):
        found = built("vm", "planar", 0.0, 0.0, 3.0, events, known=known)
        assert found.impact.covers(0.0, 0.0)
        known = found.size
    assert known == pytest.approx(25.0)


def test_a_vast_voronoi_cell_still_covers_where_one_is():
    """Somebody so fast that the cell is cut 10¹¹ m away, where floats are 10⁻⁵ m apart."""
    events = [(44.0, 0.0, 3.0), (0.0, 25.0, 3.0), (2.0, 27.0, 3.0)]
    found = built("vm", "planar", 0.0, 0.0, 3.0, events, speed=2.4e7)
    rng = np.random.default_rng(2)
    for p in spots("planar", 0.0, 0.0, rng, 40.0, 500):
        if found.shape.contains(*p):
            for angle in range(0, 360, 15):
                a, b = 2.999_999 * math.cos(angle), 2.999_999 * math.sin(angle)
                assert found.impact.covers(p[0] + a, p[1] + b)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("radius", [0.0, 1e-3, 5.0, 3e6, 1.9e7, 3e7])
def test_a_radius_of_any_size_on_the_globe(name, radius):
    events = [(8.6, 47.4, radius), (-120.0, -40.0, radius)]
    events = [e for e in events if distance("globe", 8.5, 47.4, e[0], e[1]) > radius]
    found = built(name, "globe", 8.5, 47.4, radius, events)
    rng = np.random.default_rng(3)
    for p in spots("globe", 8.5, 47.4, rng, 50_000.0, 100):
        if found.shape.contains(*p):
            assert all(distance("globe", p[0], p[1], e[0], e[1]) > radius for e in events)
            assert found.impact.covers(*p)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("radius", [0.0, 1e-200, 1e6, 1e150, 1e300])
def test_a_radius_of_any_size_on_a_plane(name, radius):
    events = [(5.0, 5.0, radius)] if radius < 1 else []
    found = built(name, "planar", 0.0, 0.0, radius, events, speed=0.1)
    for p in ((0.0, 0.0), (4.999, 5.0), (5.0, 5.0), (100.0, 3.0)):
        if found.shape.contains(*p):
            assert all(math.dist(p, e[:2]) > radius for e in events)
            assert found.impact.covers(*p)


def test_different_radii_make_one_region():
    events = [(3000.0, 0.0, 2500.0), (0.0, 900.0, 800.0), (-1500.0, 0.0, 1000.0)]
    rng = np.random.default_rng(9)
    for name in METHODS:
        found = built(name, "planar", 0.0, 0.0, 2500.0, events, density=1e-11)
        for p in spots("planar", 0.0, 0.0, rng, 5000.0, 400):
            if found.shape.contains(*p):
                assert all(math.dist(p, e[:2]) > e[2] for e in events)


@given(
    lon=st.floats(-180, 180), lat=st.floats(-90, 90), reach=st.floats(10, 4_000_000),
    a=st.tuples(st.floats(0, 0.999), st.floats(0, 6.3)),
    b=st.tuples(st.floats(0, 0.999), st.floats(0, 6.3)),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_map_never_shortens_and_stretches_by_its_bound_at_most(lon, lat, reach, a, b):
    plane = Plane("globe", lon, lat, reach)
    points = [(reach * f * math.sin(t), reach * f * math.cos(t)) for f, t in (a, b)]
    places = [tuple(float(v) for v in plane.from_map_many(*p)) for p in points]
    true = distance("globe", *places[0], *places[1])
    drawn = math.dist(points[0], points[1])
    slack = 1e-9 * (reach + 1) + 1e-6
    assert true - slack <= drawn <= plane.stretch * true + slack
    for p, place in zip(points, places, strict=True):
        there = plane.to_map(*place)
        many = plane.to_map_many(*place)
        assert math.dist(there, p) <= slack
        assert math.dist([float(v) for v in many], p) <= slack


def test_what_is_out_of_reach_of_a_map_is_infinitely_far():
    plane = Plane("globe", 0.0, 0.0, 1000.0)
    assert plane.to_map(1.0, 0.0) == (math.inf, math.inf)
    assert plane.to_map(180.0, 0.0) == (math.inf, math.inf)
    with pytest.raises(ValueError, match="reach_m"):
        Plane("globe", 0.0, 0.0, EARTH_RADIUS_M)


def test_lattices_across_the_antimeridian_and_none_at_a_pole():
    lattice = lattice_of(Box(179.5, -18.0, -179.5, -17.0), "globe", 600)
    assert lattice is not None
    assert lattice.covers(*lattice.plane.to_map(-179.9, -17.5))
    assert not lattice.covers(*lattice.plane.to_map(179.3, -17.5))
    assert lattice_of(Box(0.0, 84.0, 10.0, 90.0), "globe", 600) is None
    assert lattice_of(Box(-180.0, -90.0, 180.0, 90.0), "globe", 600) is None
    assert lattice_of(Box(1.0, 1.0, 1.0, 1.0), "planar", 600) is None
