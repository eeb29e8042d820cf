"""Algorithm 1 of Elaps, as corrected, cell for cell: a naive twin grows the same regions.

The twin knows sets of cells and the formulas, no heap, no stamps, no arrays: t_s = d / v (Eq. 3),
t_i = 1 / Σ λ(c), b_m = t_s / t_i, d by Eq. 7, the next cell by its distance (iGM) or by
Eq. 8 with A = (1 − cos θ)/2 and D = d/(10 r) (idGM); it stops at the first b_m > β, and β is
(d + r)/(2 d) where none is given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
import shapely
import shapely.affinity

from nearcast.mobility import kernels
from nearcast.mobility.grid import Grid, lattice_of
from nearcast.mobility.methods import METHODS
from nearcast.mobility.plane import Plane
from nearcast.mobility.situation import rates_on
from nearcast.mobility.statistics import TURNS
from nearcast.model.geometry import Around, Box, Point
from nearcast.model.subscriptions import Subscription
from tests.moving import looker, situation
from tests.test_mobility_tracker import World, event

Cell = tuple[int, int]
Obstacle = tuple[float, float, float]

SIDE = 100.0
LATTICE = lattice_of(Box(0, 0, 60_000, 60_000), "planar", 600)
#: Off the cell's middle, or cells would be equally far and the order arbitrary.
HERE = (30_031.7, 30_064.3)
RADIUS = 430.0
S = 1_000_000


def gap(cell: Cell, x: float, y: float) -> float:
    """The distance from a point to a cell."""
    dx = max(cell[0] * SIDE - x, x - (cell[0] + 1) * SIDE, 0.0)
    dy = max(cell[1] * SIDE - y, y - (cell[1] + 1) * SIDE, 0.0)
    return math.hypot(dx, dy)


def apart(a: Cell, b: Cell) -> float:
    """The distance between two cells."""
    dx, dy = (max(abs(p - q) - 1, 0) * SIDE for p, q in zip(a, b, strict=True))
    return math.hypot(dx, dy)


def beside(cell: Cell) -> list[Cell]:
    i, j = cell
    return [(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)]


class Twin(NamedTuple):
    """What the naive growth is given; `alpha` None stands for iGM."""

    speed: float
    density: float
    beta: float | None
    alpha: float | None
    heading: float
    obstacles: tuple[Obstacle, ...]

    def safe(self, cell: Cell) -> bool:
        return all(gap(cell, x, y) > r for x, y, r in self.obstacles)

    def score(self, cell: Cell) -> float:
        if self.alpha is None:
            return gap(cell, *HERE)
        to = ((cell[0] + 0.5) * SIDE - HERE[0], (cell[1] + 0.5) * SIDE - HERE[1])
        angle = math.radians(self.heading)
        ahead = to[0] * math.sin(angle) + to[1] * math.cos(angle)
        cosine = ahead / math.hypot(*to)
        return self.alpha * (1 - cosine) / 2 + (1 - self.alpha) * gap(cell, *HERE) / (10 * RADIUS)

    def allowed(self, d: float) -> float:
        return (d + RADIUS) / (2 * d) if self.beta is None else self.beta

    def grown(self) -> tuple[set[Cell], set[Cell]]:
        """The safe cells and the cells of the impact region."""
        start = (int(HERE[0] // SIDE), int(HERE[1] // SIDE))
        waiting, visited = {start}, {start}
        region: set[Cell] = set()
        impact: set[Cell] = set()
        while waiting:
            cell = min(waiting, key=self.score) if region else start
            waiting.remove(cell)
            if not self.safe(cell):
                continue
            more = {near for near in around(cell) if apart(cell, near) <= RADIUS}
            fresh = [near for near in beside(cell) if near not in visited]
            top = [min(waiting, key=self.score)] if waiting else []
            d = min(gap(near, *HERE) for near in [*top, *fresh])
            arrivals = self.density * SIDE * SIDE * len(impact | more)
            if d > 0 and region and d / self.speed * arrivals > self.allowed(d):
                break
            region.add(cell)
            impact |= more
            waiting.update(fresh)
            visited.update(fresh)
        return region, impact


def around(cell: Cell) -> Iterable[Cell]:
    reach = math.ceil(RADIUS / SIDE) + 1
    return ((cell[0] + i, cell[1] + j)
            for i in range(-reach, reach + 1) for j in range(-reach, reach + 1))  # fmt: skip


def grown(twin: Twin) -> tuple[set[Cell], set[Cell]]:
    """The same from the method, read off its answers."""
    name = "igm" if twin.alpha is None else "idgm"
    made = METHODS[name](
        situation("planar", *HERE, RADIUS, speed=twin.speed, density=twin.density, beta=twin.beta,
                  heading=twin.heading, lattice=LATTICE, alpha=twin.alpha or 0.5),
        looker("planar", list(twin.obstacles)),
    )  # fmt: skip
    middle, wide = int(HERE[0] // SIDE), 30
    cells = [(i, j) for i in range(middle - wide, middle + wide)
             for j in range(middle - wide, middle + wide)]  # fmt: skip
    spots = [(cell, ((cell[0] + 0.5) * SIDE, (cell[1] + 0.5) * SIDE)) for cell in cells]
    return (
        {cell for cell, spot in spots if made.shape.contains(*spot)},
        {cell for cell, spot in spots if made.impact.covers(*spot)},
    )


#: Discs that cut into the growing region from one side; their borders are off the grid's lines.
SOME = ((30_750.0, 30_010.0, 377.0), (29_210.0, 30_415.0, 433.0), (30_111.0, 28_903.0, 501.0))


@pytest.mark.parametrize("obstacles", [(), SOME], ids=["free", "obstacles"])
@pytest.mark.parametrize("alpha", [None, 0.1, 0.5, 0.8])
@pytest.mark.parametrize(
    ("beta", "speed", "density"),
    [(1.0, 12.0, 4e-9), (0.4, 12.0, 4e-9), (3.0, 12.0, 8e-9), (None, 12.0, 4e-9),
     (None, 3.0, 4e-10)],
)  # fmt: skip
def test_cells_are_added_in_order_up_to_the_first_imbalance(beta, speed, density, alpha, obstacles):
    twin = Twin(speed, density, beta, alpha, 63.0, obstacles)
    region, impact = twin.grown()
    assert 3 < len(region) < 500
    found = grown(twin)
    assert found[0] == region
    assert found[1] == impact


@pytest.mark.parametrize(
    ("beta", "just"), [(1.0, 1.0), (0.25, 0.25), (None, (math.sqrt(5000) + 400) / math.sqrt(20000))]
)
def test_the_balance_by_hand(beta, just):
    """From the middle of a cell of 100 m with r = 400 m and v = 10 m/s.

    The impact region of the cell has 9 · 11 cells less its corners, 89; each of the four beside
    it brings 11, of which two neighbours at a corner share 3. With three of them the border is
    50 m away and 89 + 33 − 6 = 116 cells are impact; with all four it is √5000 m away, t_s
    = √50 s, and 89 + 44 − 12 = 121 cells are. So the fourth comes in while √50 · 121 λ ≤ β.
    """
    for rate, cells, impact in ((0.999, 5, 121), (1.001, 4, 116)):
        density = rate * just / (math.sqrt(50) * 121) / 100**2
        made = METHODS["igm"](
            situation("planar", 0.0, 0.0, 400.0, speed=10.0, density=density, beta=beta),
            looker("planar", []),
        )
        middles = [(100.0 * i, 100.0 * j) for i in range(-12, 13) for j in range(-12, 13)]
        assert sum(made.shape.contains(*at) for at in middles) == cells
        assert sum(made.impact.covers(*at) for at in middles) == impact


# --- the arrival rate of a cell ---------------------------------------------------------------


def steep(x: Any, y: Any) -> Any:
    """A density that is nowhere the same."""
    return 1.0 + 3.0 * np.asarray(x) + 0.25 * np.asarray(y) ** 2


@pytest.mark.parametrize(("columns", "rows"), [(7, 7), (12, 12), (12, 5), (6, 12)])
def test_the_rate_of_a_cell_is_its_area_times_the_density_at_its_middle(columns, rows):
    grid = Grid(Plane("planar", 40.0, -7.0, math.inf), 3.0, -2.0, 0.5, columns, rows)
    rate = rates_on(grid, steep).reshape(rows, columns)
    for row in range(rows):
        for column in range(columns):
            x, y = 40.0 + 3.0 + (column + 0.5) * 0.5, -7.0 - 2.0 + (row + 0.5) * 0.5
            assert rate[row, column] == pytest.approx(0.25 * steep(x, y))


def test_the_rates_of_a_fine_grid_add_up_to_the_integral():
    grid = Grid(Plane("planar", 0.0, 0.0, math.inf), -4.0, -2.0, 0.05, 160, 100)
    rate = rates_on(grid, steep).reshape(100, 160)
    # over x0 … x1, y0 … y1: (x1 − x0)(y1 − y0) + 3 (x1² − x0²)(y1 − y0)/2 + (x1 − x0)(y1³ − y0³)/12
    whole = 8 * 5 + 3 * (16 - 16) * 5 / 2 + 8 * (27 + 8) / 12
    assert rate.sum() == pytest.approx(whole, rel=0.01)
    right = 4 * 5 + 3 * 16 * 5 / 2 + 4 * (27 + 8) / 12
    assert rate[:, 80:].sum() == pytest.approx(right, rel=0.05)


@pytest.mark.parametrize("name", ["igm", "idgm", "disc"])
def test_regions_are_small_where_events_arrive_and_large_where_they_do_not(name):
    """The same people, the same wishes; only the places of the stream differ."""
    world = World(safe_region=name, extent=Box(0, 0, 40_000, 40_000), cells=400)
    for who, x in (("busy", 10_000), ("quiet", 30_000)):
        world.join(Subscription(id=who, subscriber=who, region=Around(500.0)))
        world.move(who, Point(x, 9_000), speed=10.0, heading=0.0)
    rng = np.random.default_rng(1)
    for step in range(100):
        world.now = step * S
        world.publish(event("short", *rng.uniform(8_000, 12_000, 2)))
        world.retract("short")
    reach = {}
    for who, x in (("busy", 10_000), ("quiet", 30_000)):
        world.tracker.moved(who, Point(x, 10_000), world.now, speed=10.0, heading=0.0)
        region = world.tracker.region_of(who)
        assert region is not None
        reach[who] = max(d for d in range(10_000) if region.contains(Point(x, 10_000 + d)))
    assert reach["busy"] > 0
    assert 2 * reach["busy"] < reach["quiet"]


def wish(who: str, kind: int) -> Subscription:
    return Subscription(id=who, subscriber=who, region=Around(500.0), where=f"kind = {kind}")


def impact_reach(world: World, who: str) -> float:
    """How far the impact region goes of somebody in the middle, who has just reported."""
    world.tracker.moved(who, Point(20_000, 20_000), world.now, speed=10.0, heading=0.0)
    impact = world.tracker.impact_of(who)
    assert impact is not None
    circle = impact.around()
    assert circle is not None
    return circle[2]


def stream(world: World, *, live: bool) -> None:
    """150 events of kind 1 round the middle, one a second, that stay or are gone at once."""
    for step, place in enumerate(np.random.default_rng(1).uniform(17_000, 23_000, (150, 2))):
        world.now = step * S
        world.publish(event(f"e{step}", *place.tolist()))
        if not live:
            world.retract(f"e{step}")


@pytest.mark.parametrize("name", ["igm", "disc"])
def test_who_wants_little_gets_more_room_than_who_wants_all(name):
    world = World(safe_region=name, extent=Box(0, 0, 40_000, 40_000), cells=400)
    for who, kind in (("all", 1), ("nothing", 2)):
        world.join(wish(who, kind))
        impact_reach(world, who)  # who is nowhere does not learn
    stream(world, live=False)
    assert 1.3 * impact_reach(world, "all") < impact_reach(world, "nothing")


@pytest.mark.parametrize("name", ["igm", "disc"])
def test_a_newcomer_learns_from_the_live_events_that_it_does_not_want(name):
    """Everybody else wants all; only who sees that it wants nothing of it gets more room."""
    reach = {}
    for live in (True, False):
        world = World(safe_region=name, extent=Box(0, 0, 40_000, 40_000), cells=400)
        world.join(wish("other", 1))
        impact_reach(world, "other")
        stream(world, live=live)
        world.join(wish("newcomer", 2))
        impact_reach(world, "newcomer")  # the first region is built on everybody's habits
        reach[live] = impact_reach(world, "newcomer")
    assert 1.1 * reach[False] < reach[True]


# --- what disc makes least --------------------------------------------------------------------

TURNED = np.array([0.9, 0.2, -0.7])
WEIGHT = np.array([0.5, 0.3, 0.2])


def messages_a_second(size, eccentricity, speed, arrivals, deliveries, rim=0.0) -> float:
    """By renewal: the messages that deliver nothing of one region, by how long it lasts.

    A region that is left after T lasts until T or until something happens, at the rate
    Λ = arrivals + deliveries: E(length) = ∫ e^(−Λt) dt from 0 to T. Leaving it is a message,
    with the probability e^(−ΛT), and so is each arrival, at their rate while it lasts.
    """
    cost = length = 0.0
    for cosine, weight in zip(TURNED, WEIGHT, strict=True):
        stay = max(size / (1 - eccentricity * cosine) - rim, rim) / speed
        left = np.exp(-(arrivals + deliveries) * np.linspace(0.0, stay, 20_001))
        lasting = float(np.mean((left[1:] + left[:-1]) / 2) * stay)
        cost += weight * (float(left[-1]) + arrivals * lasting)
        length += weight * lasting
    return cost / length


@pytest.mark.parametrize(
    "given",
    [(500.0, 0.0, 10.0, 0.01, 0.0), (500.0, 0.6, 10.0, 0.01, 0.003), (2000.0, 0.9, 3.0, 1e-4, 0.01),
     (50.0, 0.4, 20.0, 0.3, 0.3), (800.0, 0.5, 10.0, 0.0, 0.02)],
)  # fmt: skip
def test_messages_that_deliver_nothing(given):
    found = kernels.extra_rate(*given, TURNED, WEIGHT)
    assert found == pytest.approx(messages_a_second(*given), rel=1e-6)


@pytest.mark.parametrize("size", [5.0, 40.0, 300.0])
def test_cells_end_half_a_cell_earlier_but_hold_the_first(size):
    given = size, 0.9, 10.0, 0.02, 0.01
    found = kernels.extra_rate(*given, TURNED, WEIGHT, 25.0)
    assert found == pytest.approx(messages_a_second(*given, 25.0), rel=1e-6)


@pytest.mark.parametrize("density", [0.03, 0.07, 0.15, 0.3, 0.6])
def test_whoever_goes_straight_ahead_has_room_there(density):
    """At 10 m/s among `density` events a second within reach: five seconds are worth a report.

    Ellipses are so slim there that their size is less than a cell; a region of the first cell
    alone would be left in a second.
    """
    straight = np.full(TURNS.size, 0.05 / (TURNS.size - 1))
    straight[0] = 0.95
    made = METHODS["disc"](
        situation("planar", 0.0, 0.0, 500.0, speed=10.0, density=density / (math.pi * 500**2),
                  heading=90.0, turns=straight),
        looker("planar", []),
    )  # fmt: skip
    held = [made.shape.contains(float(x), 0.0) for x in range(0, 51)]
    assert all(held)


def test_who_stands_still_costs_what_arrives():
    assert kernels.extra_rate(500.0, 0.5, 0.0, 0.25, 3.0, TURNED, WEIGHT) == 0.25


@pytest.mark.parametrize(("density", "deliveries"), [(1e-9, 0.0), (2e-8, 0.002), (1e-10, 0.01)])
def test_the_best_shape_is_the_best_of_all_that_are_tried(density, deliveries):
    """The impact region of an ellipse: the ellipse and all that is within r of it."""
    speed, radius = 10.0, 400.0
    some = np.array([0.0, 0.4, 0.8])
    costs = {}
    for e in some.tolist():
        size = 50.0
        while size <= 20_000.0:
            disc = shapely.Point(0, 0).buffer(1, 256)
            long, short = size / (1 - e * e), size / math.sqrt(1 - e * e)
            area = shapely.affinity.scale(disc, long, short).buffer(radius, 64).area
            costs[e, size] = messages_a_second(size, e, speed, density * area, deliveries)
            size *= 1.15
    e, size, cost = kernels.best_shape(
        speed, density, radius, deliveries, TURNED, WEIGHT, some, 50.0, 20_000.0
    )
    best = min(costs, key=costs.__getitem__)
    assert (e, size) == pytest.approx(best)
    assert cost == pytest.approx(costs[best], rel=1e-3)


#: A space of 41 × 41 cells, small enough to be grown all over by the twin.
SMALL = lattice_of(Box(0, 0, 4100, 4100), "planar", 41)
MIDDLE, CORNER = (2031.7, 2064.3), (131.7, 3964.3)
#: Each of these reaches less far than the radius, so that some lie in the impact region.
RING = tuple(
    (MIDDLE[0] + 900 * math.cos(k) + 3, MIDDLE[1] + 900 * math.sin(k) + 7, 333.0) for k in range(63)
)
FEW = ((2731.0, 2314.0, 333.0), (1731.0, 564.0, 201.0), (831.0, 3614.0, 333.0))


class Printed(NamedTuple):
    """Algorithm 1 and Eqs 6 to 10 to the letter; `alpha` None stands for iGM.

    The space has so many cells along a side, and there is nothing outside.
    """

    here: tuple[float, float]
    side: int
    speed: float
    turnover: float
    alpha: float | None
    heading: float
    obstacles: tuple[Obstacle, ...]

    def score(self, cell: Cell) -> float:
        d = gap(cell, *self.here)
        if self.alpha is None:
            return d
        to = [(at + 0.5) * SIDE - own for at, own in zip(cell, self.here, strict=True)]
        angle = math.radians(self.heading)
        cosine = (to[0] * math.sin(angle) + to[1] * math.cos(angle)) / math.hypot(*to)
        longest = math.hypot(self.side * SIDE, self.side * SIDE)
        return self.alpha * cosine + (1 - self.alpha) * d / longest

    def grown(self) -> tuple[set[Cell], set[Cell], bool]:
        """The safe cells, the cells of the impact region, and whether a cell had b_m > 1."""
        held = Counter((int(x // SIDE), int(y // SIDE)) for x, y, _ in self.obstacles)
        start = (int(self.here[0] // SIDE), int(self.here[1] // SIDE))
        heap, visited = {start}, {start}
        region: set[Cell] = set()
        impact: set[Cell] = set()
        n_e, left_out = 0, False
        while heap:
            cell = min(heap, key=self.score)
            heap.remove(cell)
            if any(gap(cell, x, y) <= r for x, y, r in self.obstacles):
                continue
            there = [near for near in beside(cell) if min(near) >= 0 and max(near) < self.side]
            fresh = [near for near in there if near not in visited]
            top = [min(heap, key=self.score)] if heap else []
            d = min((gap(near, *self.here) for near in [*top, *fresh]), default=math.inf)
            more = {near for near in around(cell) if apart(cell, near) <= RADIUS} - impact
            n_e += sum(held[near] for near in more)
            if n_e and self.turnover * n_e * d / self.speed > 1:
                left_out = True
                continue
            region.add(cell)
            impact |= more
            heap.update(fresh)
            visited.update(fresh)
        return region, impact, left_out


@pytest.mark.parametrize("alpha", [None, 0.5, 0.9])
@pytest.mark.parametrize(
    ("here", "obstacles", "turnover", "borders"),
    [(MIDDLE, RING, 0.004, 0), (MIDDLE, RING, 0.02, 0), (MIDDLE, FEW, 0.002, 0),
     (CORNER, FEW, 0.0003, 2), (CORNER, FEW, 0.002, 2), (CORNER, (), 0.002, 4)],
)  # fmt: skip
def test_the_printed_algorithm_is_followed_to_the_letter(
    alpha: float | None, here: tuple[float, float], obstacles: tuple[Obstacle, ...],
    turnover: float, borders: int,
):  # fmt: skip
    """Regions that end by themselves, and such as reach two borders of the space or all."""
    twin = Printed(here, 41, 2.0, turnover, alpha, 40.0, obstacles)
    made = METHODS["igm:printed" if alpha is None else "idgm:printed"](
        situation("planar", *here, RADIUS, speed=2.0, turnover=turnover, heading=40.0,
                  lattice=SMALL, alpha=alpha or 0.5),
        looker("planar", list(obstacles)),
    )  # fmt: skip
    region, impact, left_out = twin.grown()
    spots = [((i, j), ((i + 0.5) * SIDE, (j + 0.5) * SIDE))
             for i in range(-9, 50) for j in range(-9, 50)]  # fmt: skip
    assert {cell for cell, spot in spots if made.shape.contains(*spot)} == region
    assert {cell for cell, spot in spots if made.impact.covers(*spot)} == impact
    assert left_out == bool(obstacles)
    columns, rows = zip(*region, strict=True)
    assert [min(columns), min(rows), 40 - max(columns), 40 - max(rows)].count(0) >= borders


@pytest.mark.parametrize("name", ["igm:printed", "idgm:printed"])
@pytest.mark.parametrize("here", [HERE, (1031.7, 1064.3), (0.0, 60_000.0)])
def test_the_printed_region_is_the_whole_space_where_nothing_happens(
    name: str, here: tuple[float, float]
) -> None:
    """No cell is outside and none inside is too far; who stands on the far border is inside."""
    made = METHODS[name](
        situation("planar", *here, RADIUS, speed=2.0, turnover=0.01, heading=90.0, lattice=LATTICE),
        looker("planar", []),
    )
    inside, outside = (50.0, 21_050.0, 59_950.0), (-50.0, 60_050.0)
    assert all(made.shape.contains(x, y) for x in inside for y in inside)
    assert not any(made.shape.contains(x, y) for x in (*inside, *outside) for y in outside)
    assert not any(made.shape.contains(x, y) for x in outside for y in inside)
    assert all(made.impact.covers(x, y) for x in (-350.0, 60_350.0) for y in inside)


@pytest.mark.parametrize("name", ["igm:printed", "idgm:printed"])
@pytest.mark.parametrize(
    ("radius", "lattice", "far"),
    [(400.0, None, 20_800.0), (400.0, lattice_of(Box(0, 0, 60_000, 60_000), "planar", 2400), 5_200),
     (90_000.0, LATTICE, 4_650_000.0)],
    ids=["none", "too fine", "too small"],
)  # fmt: skip
def test_without_a_lattice_of_the_extent_the_window_is_the_space(name, radius, lattice, far):
    """It is full to its border all round, though the cells behind come first with Eq. 8."""
    made = METHODS[name](
        situation("planar", *HERE, radius, speed=2.0, turnover=0.01, heading=90.0, alpha=0.9,
                  lattice=lattice), looker("planar", []),
    )  # fmt: skip
    for angle in np.linspace(0.0, 2 * math.pi, 25).tolist():
        east, north = math.cos(angle), math.sin(angle)
        assert made.shape.contains(HERE[0] + far * east, HERE[1] + far * north)
        assert not made.shape.contains(HERE[0] + 1.02 * far * east, HERE[1] + 1.02 * far * north)


def test_what_the_repairs_of_eq_8_bring():
    """As printed cells behind come first, and with nobody in reach all others come, too."""
    far = [(35_000.0, 35_000.0, 430.0)]
    made = {
        name: METHODS[name](
            situation("planar", *HERE, RADIUS, speed=2.0, density=1e-8, turnover=0.01, heading=90.0,
                      lattice=LATTICE, alpha=0.9),
            looker("planar", far),
        )
        for name in ("idgm", "idgm:printed")
    }  # fmt: skip
    x, y = HERE
    ahead, behind = (x + 3000, y), (x - 3000, y)
    assert made["idgm:printed"].shape.contains(*behind)
    reach = {
        name: [sum(found.shape.contains(x + way * 100 * k, y) for k in range(1, 250))
               for way in (1, -1)] for name, found in made.items()
    }  # fmt: skip
    assert reach["idgm"][0] > reach["idgm"][1]
    assert reach["idgm:printed"][0] <= reach["idgm:printed"][1], (ahead, reach)
