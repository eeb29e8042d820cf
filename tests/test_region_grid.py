"""Boxes in hashed cells against comparing each of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.index.region_grid import RegionGrid
from nearcast.kernels import region_grid as kernels

Bounds = tuple[float, float, float, float]
#: Everyday sizes, the tiny, the huge, and ends on the borders of cells.
_COORDINATES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 4.0, -16.0, 64.0, 0.25, 1e9, -1e300, 5e-324]),
    st.floats(-100, 100),
    st.integers(-70, 70).map(float),
)


@st.composite
def _boxes(draw: st.DrawFn) -> Bounds:
    x, y = (
        sorted((draw(_COORDINATES), draw(_COORDINATES))),
        sorted((draw(_COORDINATES), draw(_COORDINATES))),
    )
    return x[0], y[0], x[1], y[1]


_REGIONS = st.one_of(st.none(), st.lists(_boxes(), min_size=1, max_size=3))


def _meet(region: list[Bounds] | None, box: Bounds) -> bool:
    return region is None or any(
        a[0] <= box[2] and box[0] <= a[2] and a[1] <= box[3] and box[1] <= a[3] for a in region
    )


def _at(grid: RegionGrid, group: int, x: float, y: float) -> list[int]:
    slots, entries, masks = grid.table
    if group >= masks.size:
        return []
    found = np.empty(1, np.int32)
    count = kernels.at_point(slots, entries, masks[group], group, x, y, found)
    if count > 1:
        found = np.empty(count, np.int32)
        count = kernels.at_point(slots, entries, masks[group], group, x, y, found)
    rows: list[int] = found[:count].tolist()
    assert len(set(rows)) == len(rows)
    return rows


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_nobody_is_missed_while_rows_come_and_go(data: st.DataObject) -> None:
    grid = RegionGrid()
    kept: dict[int, tuple[int, list[Bounds] | None]] = {}
    for row in range(data.draw(st.integers(1, 40))):
        if kept and data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(sorted(kept)))
            group, region = kept.pop(gone)
            grid.remove(gone, group, region)
        group, region = data.draw(st.integers(0, 2)), data.draw(_REGIONS)
        grid.add(row, group, region)
        kept[row] = group, region
    for group in range(4):
        mine = {row: region for row, (g, region) in kept.items() if g == group}
        assert (group in grid) == bool(mine)
        for _ in range(3):
            x, y = data.draw(_COORDINATES), data.draw(_COORDINATES)
            found = _at(grid, group, x, y)
            assert set(found) <= set(mine)
            assert {row for row, r in mine.items() if _meet(r, (x, y, x, y))} <= set(found)
            box = data.draw(_boxes())
            near = grid.near(group, [box]).tolist()
            assert set(near) <= set(mine)
            assert {row for row, r in mine.items() if _meet(r, box)} <= set(near)


def test_a_box_stands_in_four_cells_at_most_and_is_found_by_few() -> None:
    """The point of it: a lookup meets what is near, however many there are."""
    rng = np.random.default_rng(1)
    grid = RegionGrid()
    for row in range(2000):
        x, y = rng.uniform(0, 1000, 2)
        grid.add(row, 0, [(x, y, x + 3.0, y + 2.0)])
    entries = grid.table.entries
    assert len(entries) < 4 * 2000 * 1.3
    found = [len(_at(grid, 0, *rng.uniform(0, 1000, 2).tolist())) for _ in range(100)]
    assert np.mean(found) < 0.5  # as few as 2000 · 6 / 1000² are right, and hulls tell most apart


def test_room_is_used_again() -> None:
    grid = RegionGrid()
    for row in range(100):
        grid.add(row, 0, [(float(row), 0.0, row + 1.0, 1.0)])
    size = grid.nbytes()
    for turn in range(20):
        for row in range(100):
            grid.remove(row, 0, [(float(row + turn), 0.0, row + turn + 1.0, 1.0)])
            grid.add(row, 0, [(float(row + turn + 1), 0.0, row + turn + 2.0, 1.0)])
    assert grid.nbytes() < 2 * size


@pytest.mark.parametrize("hair", [5e-324, 1e-300, 1e-30])
@pytest.mark.parametrize("side", [2.0**-20, 1.0, 64.0])
def test_a_box_that_is_a_hair_wider_than_a_cell_has_wider_cells(side: float, hair: float) -> None:
    """Rounded, its side is that of the cell, of which it would touch three in a row."""
    low, high = -hair, side
    assert high - low == side
    for box in ((low, 0.0, high, 0.0), (0.0, low, 0.0, high), (low, low, high, high)):
        width = 2.0 ** (kernels.width_of(*box) - 24)
        assert width == 2 * side
        columns = math.floor(box[2] / width) - math.floor(box[0] / width)
        assert columns <= 1
        grid = RegionGrid()
        grid.add(3, 0, [box])
        assert grid.near(0, [(low, low, low, low)]).tolist() in ([], [3])
        assert _at(grid, 0, max(box[0], 0.0), max(box[1], 0.0)) == [3]
        grid.remove(3, 0, [box])
    assert kernels.width_of(0.0, 0.0, side, side) == kernels.width_of(-side, -side, 0.0, 0.0)
    assert 2.0 ** (kernels.width_of(-side, 0.0, 0.0, side) - 24) == side


@pytest.mark.parametrize("side", [0.0, 1e-12, 1.0, 5.0, 1e6, math.inf])
def test_cells_are_as_wide_as_their_boxes(side: float) -> None:
    number = kernels.width_of(0.0, 0.0, side, side / 2)
    if side > 2.0**37:
        assert number == kernels.EVERYWHERE
    else:
        assert 2.0 ** (number - 24) >= side
        assert number == 0 or 2.0 ** (number - 25) < side
