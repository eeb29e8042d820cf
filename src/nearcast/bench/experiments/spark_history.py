"""Fences over history: trucks that wander past circles, for the `spark` experiment.

Contenders tell of `enter` and `exit` end to end (Parquet in, transitions on disk out): fences on
a DataFrame and on files, and window functions over a grid join in Spark SQL. The truth comes from
the definition, by NumPy: every position against every fence that shapely's tree has near it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from nearcast.bench.experiments.base import Plan
from nearcast.bench.experiments.spark_jobs import Engine, told_as_pairs, write
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Trial
from nearcast.kernels.geometry import EARTH_RADIUS_M
from nearcast.model.codec import fences_to_arrow
from nearcast.model.fences import Fence
from nearcast.model.geometry import Circle

__all__ = ["HISTORY", "claims", "transitions", "trials", "wander"]

HISTORY = "fences over history, end to end"
_OURS = ("fences", "fences on files")
_STEPS = 100  # positions of each truck
_WEST, _SOUTH, _WIDE, _HIGH = 8.0, 47.0, 1.0, 0.7
_START, _MINUTE = 1_780_000_000_000_000, 60_000_000
_LARGE = 1_000_000
_LOOKED = 200_000

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]


class _History:
    """Positions and fences on disk, and what a broker tells of them."""

    def __init__(self, n: int, fences: int, seed: int, apart_m: float) -> None:
        random = np.random.default_rng(seed)
        self.positions = pa.concat_tables(wander(random, max(1, n // _STEPS), apart_m))
        x, y = _WEST + _WIDE * random.random(fences), _SOUTH + _HIGH * random.random(fences)
        sizes = random.uniform(100, 300, fences)
        self.fences = [
            Fence(f"f{i}", "ops", "truck", Circle(*at))
            for i, at in enumerate(zip(x.tolist(), y.tolist(), sizes.tolist(), strict=True))
        ]
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        write(self.positions, self.folder / "positions", 16)
        write(fences_to_arrow(self.fences), self.folder / "fences", 1)

    @cached_property
    def truth(self) -> pa.Table:
        """The transitions, as pairs."""
        return told_as_pairs(transitions(self.positions, self.fences))

    def job(self, engine: Engine, name: str, cell_m: float = 0.0) -> Task:
        """One job on Spark."""
        arguments = {
            "events": str(self.folder / "positions"),
            "subscriptions": str(self.folder / "fences"),
            "cell_m": cell_m,
        }
        return Task(lambda: engine.run(name, **arguments))

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def wander(random: np.random.Generator, trucks: int, apart_m: float = 250.0) -> Iterator[pa.Table]:
    """A minute a table: each truck once, about so far from where it was."""
    wide, high = 1.2e-5 * apart_m, 8e-6 * apart_m
    x, y = _WEST + _WIDE * random.random(trucks), _SOUTH + _HIGH * random.random(trucks)
    heading = 2 * np.pi * random.random(trucks)
    names = pc.binary_join_element_wise("truck ", pa.array(np.arange(trucks)).cast(pa.string()), "")
    for step in range(_STEPS):
        heading += random.normal(0, 0.4, trucks)
        x = np.clip(x + wide * np.cos(heading), _WEST, _WEST + _WIDE)
        y = np.clip(y + high * np.sin(heading), _SOUTH, _SOUTH + _HIGH)
        order = random.permutation(trucks)
        numbers = pa.array(step * trucks + np.arange(trucks)).cast(pa.string())
        ends = _START + step * _MINUTE + random.integers(0, _MINUTE, trucks)
        yield pa.table(
            {
                "id": pc.binary_join_element_wise("p", numbers, ""),
                "attributes": pa.StructArray.from_arrays([names.take(pa.array(order))], ["truck"]),
                "lon": x[order],
                "lat": y[order],
                "end": pa.array(ends).cast(pa.timestamp("us", tz="UTC")),
            }
        )


def transitions(positions: pa.Table, fences: Sequence[Fence]) -> pa.Table:
    """What circles tell of `enter` and `exit`, worked out from what that means.

    A position is inside if it is no farther than the radius. Of each object and fence, one that is
    inside enters unless the one before was inside, and the one behind it exits unless it is, too.
    """
    given = positions.select(["id", "lon", "lat", "end"])
    truck = positions.column("attributes").combine_chunks().field("truck")
    given = given.append_column("object", truck)
    given = given.sort_by([("object", "ascending"), ("end", "ascending"), ("id", "ascending")])
    codes = given.column("object").combine_chunks().dictionary_encode().indices.to_numpy()
    rows, found = _inside(
        given.column("lon").to_numpy(), given.column("lat").to_numpy(),
        [each.region for each in fences if isinstance(each.region, Circle)],
    )  # fmt: skip
    order = np.lexsort((rows, found))
    rows, found = rows[order], found[order]
    goes_on = (np.diff(rows) == 1) & (np.diff(found) == 0) & (np.diff(codes[rows]) == 0)
    enters, leaves = np.r_[True, ~goes_on], np.r_[~goes_on, True]
    leaves &= (rows + 1 < len(codes)) & (codes[rows] == codes[np.minimum(rows + 1, len(codes) - 1)])
    at = np.r_[rows[enters], rows[leaves] + 1]
    whose = np.r_[found[enters], found[leaves]]
    names = pa.array(["enter", "exit"])
    kinds = np.r_[np.zeros(enters.sum(), np.int8), np.ones(leaves.sum(), np.int8)]
    told = given.take(pa.array(at))
    return pa.table(
        {
            "fence_id": pa.array([each.id for each in fences]).take(pa.array(whose)),
            "object": told.column("object"),
            "transition": names.take(pa.array(kinds)),
            "at": told.column("end"),
            "event_id": told.column("id"),
        }
    )


def _inside(lons: F8, lats: F8, circles: Sequence[Circle]) -> tuple[I8, I8]:
    """Which points are in which circles: all pairs of rows."""
    x, y = np.array([each.x for each in circles]), np.array([each.y for each in circles])
    reach = np.array([each.radius_m for each in circles])
    high = np.degrees(reach / EARTH_RADIUS_M) * 1.01
    wide = high / np.cos(np.radians(np.abs(y) + high))
    tree = shapely.STRtree(shapely.box(x - wide, y - high, x + wide, y + high))
    parts: list[tuple[I8, I8]] = []
    for first in range(0, len(lons), _LOOKED):
        lon, lat = lons[first : first + _LOOKED], lats[first : first + _LOOKED]
        rows, found = tree.query(shapely.points(lon, lat))
        half_lat = np.radians(y[found] - lat[rows]) / 2
        half_lon = np.radians(x[found] - lon[rows]) / 2
        cos = np.cos(np.radians(lat[rows])) * np.cos(np.radians(y[found]))
        chord = np.sqrt(np.sin(half_lat) ** 2 + cos * np.sin(half_lon) ** 2)
        near = 2 * EARTH_RADIUS_M * np.arcsin(chord) <= reach[found]
        parts.append((rows[near] + first, found[near]))
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))  # type: ignore[return-value]


def trials(plan: Plan, engine: Engine) -> Iterator[Trial]:
    """One for each number of positions."""
    (count,) = plan.numbers("fences")
    for n, apart in product(plan.numbers("positions"), plan.numbers("apart_m")):
        data = _History(n, count, plan.seed, apart)
        try:
            contenders = [Contender(name, partial(data.job, engine, name)) for name in _OURS]
            contenders += [
                Contender(f"windows, {cell} m", partial(data.job, engine, "windows", cell))
                for cell in plan.numbers("cell_m")
            ]
            yield Trial(
                HISTORY, tuple(contenders), partial(getattr, data, "truth"),
                {
                    "workload": "trucks", "n": data.positions.num_rows, "fences": count,
                    "apart_m": apart, "told": data.truth.num_rows,
                },
                data.positions.num_rows, "position", at_most=3,
            )  # fmt: skip
        finally:
            data.close()


def claims(measurements: Sequence[Measurement]) -> list[Claim]:
    """Against the fastest windows, at each size."""
    made = []
    mine = [m for m in measurements if m.operation == HISTORY]
    for n, apart in sorted({(int(m.parameters["n"]), m.parameters["apart_m"]) for m in mine}):
        here = [m for m in mine if (m.parameters["n"], m.parameters["apart_m"]) == (n, apart)]
        rivals = [m.spread.median for m in here if m.contender.startswith("windows")]
        for m in here:
            if m.contender not in _OURS:
                continue
            of = (
                f"{m.contender}, {n:,} positions {apart:,} m apart, "
                f"{m.parameters['fences']:,} fences"
            )
            made.append(Claim(f"positions a second, {of}", m.rate, "positions/s"))
            if rivals:
                label = f"times windows over a grid join, {of}"
                target = 5 if n >= _LARGE else None
                made.append(Claim(label, min(rivals) / m.spread.median, "×", target))
    return made
