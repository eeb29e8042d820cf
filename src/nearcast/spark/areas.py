"""Hot areas: k-means from coarse to fine.

Spark ML finds a few coarse clusters on a sample; each is then cut on its own, all of them at
once, into as many areas as it deserves. One k-means of 10 000 centres would compare every
point with every centre; so a point meets some hundred coarse and some hundred fine ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import functions as f

from nearcast.datasets.globe import METRES_PER_DEGREE
from nearcast.errors import DatasetError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["default_areas", "hot_areas"]

Array = npt.NDArray[np.float64]

_AREAS = "coarse int, lon double, lat double, points bigint, radius_m double"
_COARSE_SAMPLE = 100_000
_COARSE_ROUNDS = 8
_FINE_ROUNDS = 6
#: Distances held at a time in one task.
_CHUNK = 4_000_000
#: MO-Tree's workload has 933 794 pick-ups and 10 000 areas.
_POINTS_AN_AREA = 93
_MOST_AREAS = 10_000


def default_areas(points: int) -> int:
    """How many areas so many points make, in the paper's proportion: at most 10 000."""
    return max(1, min(_MOST_AREAS, points // _POINTS_AN_AREA))


def hot_areas(points: DataFrame, count: int, seed: int = 0) -> DataFrame:
    """At most `count` areas of points (`lon`, `lat`): `area`, `lon`, `lat`, `points`, `radius_m`.

    Fewer only where there are fewer distinct places. `radius_m` is the root mean square
    distance from the centre; areas are numbered from the busiest on. Three short jobs and
    one shuffle of the points; about a minute for 10 000 areas of a million points on two
    cores.
    """
    from pyspark.sql import Window

    if count < 1:
        raise DatasetError(f"areas: {count} is not valid; give at least 1")
    placed, east, total = _projected(points)
    coarse = max(1, min(round(math.sqrt(count)), 128))
    if coarse == 1:
        assigned = placed.withColumn("coarse", f.lit(0))
    else:
        assigned = _coarse(placed, coarse, max(1, total // _COARSE_SAMPLE), seed)
    shares = _shares(assigned, count)

    def cut(table: Any) -> Any:
        return _cut(table, shares, east, seed)

    found = assigned.select("coarse", "x", "y").groupBy("coarse").applyInArrow(cut, _AREAS)
    order = Window.orderBy(f.desc("points"), "lon", "lat")
    ranked = found.coalesce(1).withColumn("area", (f.row_number().over(order) - 1).cast("int"))
    lon = f.when(f.col("lon") > 180, f.col("lon") - 360).otherwise(f.col("lon"))
    return ranked.select("area", lon.alias("lon"), "lat", "points", "radius_m")


def _projected(points: DataFrame) -> tuple[DataFrame, float, int]:
    """x and y in metres, true near the points' mean latitude; metres of a degree east; how many."""
    middle, total, span, side = points.agg(
        f.avg("lat"), f.count("*"), f.max("lon") - f.min("lon"), f.avg(f.cos(f.radians("lon")))
    ).collect()[0]
    if middle is None:
        raise DatasetError(
            "there are no points to cluster: no pick-up and no stay was found; "
            "set --stay-seconds and --stay-radius to what your traces do"
        )
    # Rounded: the last digits of a mean depend on the order in which Spark adds.
    east = METRES_PER_DEGREE * max(math.cos(math.radians(round(float(middle), 6))), 0.01)
    lon = f.col("lon")
    if span > 180 and side < 0:  # on both sides of the antimeridian: go on beyond 180 there
        lon = f.when(lon < 0, lon + 360).otherwise(lon)
    x, y = lon * east, f.col("lat") * METRES_PER_DEGREE
    return points.select("lon", "lat", x.alias("x"), y.alias("y")), east, total


def _coarse(placed: DataFrame, clusters: int, step: int, seed: int) -> DataFrame:
    """The points with the coarse cluster each is nearest to, found on one point in `step`."""
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import VectorAssembler

    vectors = VectorAssembler(inputCols=["x", "y"], outputCol="features")
    sample = placed.where(f.pmod(f.xxhash64("x", "y"), f.lit(step)) == 0)
    # One partition in one order: the same points give the same clusters.
    ordered = vectors.transform(sample.orderBy("x", "y").coalesce(1)).select("features")
    means = KMeans(k=clusters, seed=seed, maxIter=_COARSE_ROUNDS, initMode="random")
    model = means.fit(ordered)
    named = model.transform(vectors.transform(placed)).drop("features")
    return named.withColumnRenamed("prediction", "coarse")


def _shares(assigned: DataFrame, count: int) -> dict[int, int]:
    """How many areas each coarse cluster gets.

    Centres of a good k-means in the plane are as dense as the square root of the points'
    density; so a cluster of n points and mean square radius s deserves √(n · s) of them.
    """
    rows = assigned.groupBy("coarse").agg(
        f.count("*").alias("n"),
        f.countDistinct("x", "y").alias("places"),
        (f.var_pop("x") + f.var_pop("y")).alias("square"),
    )
    found = rows.orderBy("coarse").collect()
    keys = [int(row["coarse"]) for row in found]
    places = np.array([int(row["places"]) for row in found])
    weight = np.sqrt([max(row["n"] * row["square"], 1e-9) for row in found])
    return dict(zip(keys, _portions(weight, places, count).tolist(), strict=True))


def _portions(weight: Array, most: npt.NDArray[Any], total: int) -> npt.NDArray[np.int64]:
    """Whole shares of a total in proportion to weights, each from 1 to its `most`."""
    total = min(total, int(most.sum()))
    shares = np.ones(weight.size, np.int64)
    while (left := total - int(shares.sum())) > 0:
        room = most - shares
        open_ = room > 0
        wanted = left * weight * open_ / (weight * open_).sum()
        given = np.minimum(np.floor(wanted).astype(np.int64), room)
        if not given.any():
            best = np.argsort(-np.where(open_, wanted, -1), kind="stable")[:left]
            given[best] = open_[best]
        shares += given
    return shares


def _cut(table: Any, shares: dict[int, int], east: float, seed: int) -> Any:
    """One coarse cluster into its areas, by Lloyd's steps."""
    import pyarrow as pa

    cluster = int(table["coarse"][0].as_py())
    points = np.stack([table["x"].to_numpy(), table["y"].to_numpy()], axis=1)
    points = points[np.lexsort((points[:, 1], points[:, 0]))]  # Spark promises no order
    centres = _first_centres(points, shares[cluster], np.random.default_rng([seed, cluster]))
    for _ in range(_FINE_ROUNDS):
        owner, _ = _nearest(points, centres)
        centres = _means(points, owner, centres)
    owner, squares = _nearest(points, centres)
    size = np.bincount(owner, minlength=len(centres))
    while (size == 0).any():  # nobody's centre goes to who is farthest from theirs
        lost = np.flatnonzero(size == 0)
        centres[lost] = points[np.argsort(-squares, kind="stable")[: lost.size]]
        owner, squares = _nearest(points, centres)
        size = np.bincount(owner, minlength=len(centres))
    spread = np.bincount(owner, weights=squares, minlength=len(centres))
    return pa.table(
        {
            "coarse": pa.array(np.full(len(centres), cluster, np.int32)),
            "lon": centres[:, 0] / east,
            "lat": centres[:, 1] / METRES_PER_DEGREE,
            "points": size,
            "radius_m": np.sqrt(spread / size),
        }
    )


def _first_centres(points: Array, count: int, rng: np.random.Generator) -> Array:
    """Distinct points, drawn at random."""
    places = np.unique(points, axis=0)
    return places[np.sort(rng.permutation(len(places))[:count])]


def _nearest(points: Array, centres: Array) -> tuple[npt.NDArray[np.int64], Array]:
    """Each point's nearest centre and the squared distance to it: O(points · centres)."""
    owner, squares = np.empty(len(points), np.int64), np.empty(len(points))
    step = max(1, _CHUNK // len(centres))
    for first in range(0, len(points), step):
        part = points[first : first + step]
        apart = (part[:, :1] - centres[:, 0]) ** 2
        apart += (part[:, 1:] - centres[:, 1]) ** 2
        owner[first : first + step] = apart.argmin(axis=1)
        squares[first : first + step] = apart.min(axis=1)
    return owner, squares


def _means(points: Array, owner: npt.NDArray[np.int64], centres: Array) -> Array:
    """The mean of each centre's points; where it stands if it has none."""
    size = np.bincount(owner, minlength=len(centres))
    sums = np.stack(
        [np.bincount(owner, weights=points[:, axis], minlength=len(centres)) for axis in (0, 1)],
        axis=1,
    )
    moved: Array = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres)
    return moved
