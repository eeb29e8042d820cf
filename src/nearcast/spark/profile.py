"""The profile of a workload: what subscriptions ask and events say, counted by Spark.

Subscriptions are taken apart into the clauses that an index would see, with filters in CQL2
parsed and regions as their bounding boxes, which are the attributes @x and @y. Everything is
measured on a sample that is the same for the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from pyspark.sql import functions as f

from nearcast.index.mo_tree.attributes import Attribute
from nearcast.model.geometry import Space
from nearcast.model.schema import Schema
from nearcast.spark.schemas import check_pair, event_names, subscription_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BINS", "AttributeProfile", "Profile", "profile"]

#: Bins of the histograms of centres and of values; of widths there are `WIDTHS`.
BINS, WIDTHS = 16, 10
#: Share of the ends left outside a domain on each side, as in MO-Tree.
_TAIL = 0.002
_SAMPLE = 20_000
_PREDICATES = "clause bigint, attribute string, kind string, low double, high double"
#: Clauses that let a larger share of events through are broad.
_BROAD = 0.05
_LEAST = 0.01


@dataclass(frozen=True)
class AttributeProfile:
    """One attribute of one type: how often it is asked for, how narrowly, and what events say."""

    name: str
    kind: str
    popularity: float
    selectivity: float
    uniformity: float
    low: float
    high: float
    event_share: float
    """Share of events that have it."""
    centres: tuple[int, ...]
    widths: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def score(self) -> float:
        """Worth as an indexing attribute: the product of MO-Tree's three measures (§4.2)."""
        measures = (self.popularity, self.selectivity, self.uniformity)
        return Attribute(0, self.low, self.high, *measures).score

    @property
    def passes(self) -> float:
        """Expected share of the events that satisfy one predicate on it."""
        return self.event_share * (1.0 - self.selectivity)


@dataclass(frozen=True)
class Profile:
    """What was measured."""

    subscriptions: int
    events: int
    sampled_subscriptions: int
    sampled_events: int
    clauses: int
    rejects: int
    broad_share: float
    attributes: tuple[AttributeProfile, ...]
    """The best indexing attribute first."""
    places: Any = field(repr=False, default=None)
    """(n, 2): x and y of the sampled events that have a place."""
    boxes: Any = field(repr=False, default=None)
    """(n, 4): bounding boxes of the sampled clauses that have a region."""


def profile(
    events: DataFrame, subscriptions: DataFrame, space: Space = "globe", sample: int = _SAMPLE
) -> Profile:
    """Measure a workload on about `sample` rows of each side; six short jobs."""
    asking, telling = subscription_names(subscriptions), event_names(events)
    check_pair(telling, asking)
    subscriptions, events = subscriptions.select(*asking), events.select(*telling)
    n_subscriptions, n_events = subscriptions.count(), events.count()
    some = _some(subscriptions, n_subscriptions, sample)
    others = _some(events, n_events, sample)
    asked = some.mapInArrow(_taking_apart(space), _PREDICATES).persist()
    said = others.mapInArrow(_telling(space), _PREDICATES).persist()
    try:
        counts = _sums(asked) | {f"event {kind}": n for kind, n in _sums(said).items()}
        clauses = int(counts.get("clauses", 0))
        sampled_events = int(counts.get("event events", 0))
        domains = _domains(asked, said)
        found = _attributes(asked, said, domains, clauses, sampled_events)
        best_first = sorted(found, key=lambda each: (-each.score, each.name, each.kind))
        return Profile(
            subscriptions=n_subscriptions,
            events=n_events,
            sampled_subscriptions=int(counts.get("subscriptions", 0)),
            sampled_events=sampled_events,
            clauses=clauses,
            rejects=int(counts.get("rejects", 0) + counts.get("event rejects", 0)),
            broad_share=_broad_share(asked, found, clauses),
            attributes=tuple(best_first),
            places=_pairs(said, ("low",)),
            boxes=_pairs(asked, ("low", "high")),
        )
    finally:
        asked.unpersist()
        said.unpersist()


def _some(frame: DataFrame, rows: int, wanted: int) -> DataFrame:
    step = max(1, round(rows / wanted)) if rows else 1
    return frame if step == 1 else frame.where(f.pmod(f.xxhash64("id"), f.lit(step)) == 0)


# -- in the workers -------------------------------------------------------------


def _taking_apart(space: Space) -> Any:
    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from nearcast.matcher import bulk
        from nearcast.spark.rows import accepted

        first = _first_number()
        for batch in batches:
            if batch.num_rows == 0:
                continue
            table, bad = accepted(pa.Table.from_batches([batch]), "subscriptions", space)
            schema = Schema()
            clauses = 0
            for piece in bulk.encode_subscriptions(table, schema, space, None).pieces:
                counts = np.diff(piece.start)
                number = first + clauses + np.repeat(np.arange(counts.size), counts)
                clauses += counts.size
                yield _rows(number, piece.attr, piece.low, piece.high, schema)
            first += clauses
            yield _tally(subscriptions=table.num_rows, clauses=clauses, rejects=len(bad))

    return work


def _telling(space: Space) -> Any:
    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from nearcast.matcher import bulk
        from nearcast.spark.rows import accepted

        first = _first_number()
        for batch in batches:
            if batch.num_rows == 0:
                continue
            table, bad = accepted(pa.Table.from_batches([batch]), "events", space)
            schema = Schema()
            draft = bulk.encode_events(table, schema, space, intern=True).batch
            counts = np.diff(draft.start)
            number = first + np.repeat(np.arange(counts.size), counts)
            first += counts.size
            yield _rows(number, draft.attr, draft.value, draft.value, schema)
            yield _tally(events=table.num_rows, rejects=len(bad))

    return work


def _first_number() -> int:
    """Where a task begins to number its clauses or events: no two tasks share a number."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId() << 40


def _rows(number: Any, attr: Any, low: Any, high: Any, schema: Schema) -> Any:
    """Predicates as rows. Of strings and booleans only the position of a value is kept."""
    import pyarrow as pa

    names = pa.array([name for name, _ in schema.columns])
    kinds = pa.array([kind for _, kind in schema.columns])
    texts = np.array([kind == "string" for _, kind in schema.columns])[attr]
    if texts.any():
        place = np.array([crc32(text.encode()) / 2**32 for text in schema.strings] or [0.0])
        codes = np.where(texts, low, 0).astype(np.int64).clip(0)
        low = np.where(texts, place[codes], low)
        high = np.where(texts, low, high)
    at = pa.array(attr.astype(np.int64))
    columns = [pa.array(number), names.take(at), kinds.take(at), pa.array(low), pa.array(high)]
    return pa.RecordBatch.from_arrays(columns, ["clause", "attribute", "kind", "low", "high"])


def _tally(**counts: int) -> Any:
    """Numbers of a batch, as rows of the kind `tally`."""
    import pyarrow as pa

    kinds = pa.array(["tally"] * len(counts))
    numbers = pa.array([float(n) for n in counts.values()])
    zero = pa.array([0] * len(counts), pa.int64())
    return pa.RecordBatch.from_arrays(
        [zero, pa.array(list(counts)), kinds, numbers, numbers],
        ["clause", "attribute", "kind", "low", "high"],
    )


# -- by Spark -------------------------------------------------------------------


def _sums(rows: DataFrame) -> dict[str, float]:
    tally = rows.where("kind = 'tally'").groupBy("attribute").agg(f.sum("low").alias("n"))
    return {row["attribute"]: float(row["n"]) for row in tally.collect()}


def _domains(asked: DataFrame, said: DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
    """By attribute and type: where nearly all finite ends and values lie."""
    ends = reduce(
        lambda one, other: one.unionByName(other),
        [
            frame.where("kind <> 'tally'").select("attribute", "kind", f.col(end).alias("end"))
            for frame, end in ((asked, "low"), (asked, "high"), (said, "low"))
        ],
    )
    finite = ends.where(~f.isnan("end") & (f.abs("end") < 4e307))
    tails = f.array(f.lit(_TAIL), f.lit(1 - _TAIL))
    found = finite.groupBy("attribute", "kind").agg(
        f.percentile_approx("end", tails, 10_000).alias("domain")
    )
    return {(row["attribute"], row["kind"]): tuple(row["domain"]) for row in found.collect()}


def _attributes(
    asked: DataFrame,
    said: DataFrame,
    domains: dict[tuple[str, str], tuple[float, float]],
    clauses: int,
    events: int,
) -> list[AttributeProfile]:
    if not domains:
        return []
    bounds = asked.sparkSession.createDataFrame(
        [(name, kind, low, high) for (name, kind), (low, high) in domains.items()],
        "attribute string, kind string, bottom double, top double",
    )
    keys = ["attribute", "kind"]
    width = f.col("top") - f.col("bottom")

    def position(end: str) -> Column:
        clipped = f.greatest(f.least(f.col(end), f.col("top")), f.col("bottom"))
        return f.when(width > 0, (clipped - f.col("bottom")) / width).otherwise(0.0)

    usable = (f.col("low") <= f.col("high")) & ~f.isnan("low") & ~f.isnan("high")
    placed = asked.where(usable).join(f.broadcast(bounds), keys)
    placed = placed.select(*keys, position("low").alias("a"), position("high").alias("b"))
    wanted = placed.groupBy(*keys).agg(
        f.count("*").alias("n"),
        f.avg(f.col("b") - f.col("a")).alias("width"),
        *_histogram((f.col("a") + f.col("b")) / 2, BINS, "c"),
        *_histogram(f.col("b") - f.col("a"), WIDTHS, "w"),
    )
    told = said.join(f.broadcast(bounds), keys).select(*keys, position("low").alias("a"))
    counted = told.groupBy(*keys).agg(f.count("*").alias("n"), *_histogram(f.col("a"), BINS, "v"))
    values = {(row["attribute"], row["kind"]): row for row in counted.collect()}
    return [
        _measured(row, values.get((row["attribute"], row["kind"])), domains, clauses, events)
        for row in wanted.collect()
    ]


def _histogram(share: Column, bins: int, prefix: str) -> list[Column]:
    """How many of the shares (0 … 1) fall into each bin, as one column a bin."""
    at = f.least(f.floor(share * bins), f.lit(bins - 1))
    return [f.count(f.when(at == i, 1)).alias(f"{prefix}{i}") for i in range(bins)]


def _measured(
    row: Any,
    values: Any,
    domains: dict[tuple[str, str], tuple[float, float]],
    clauses: int,
    events: int,
) -> AttributeProfile:
    low, high = domains[row["attribute"], row["kind"]]
    centres = tuple(int(row[f"c{i}"]) for i in range(BINS))
    share = np.array(centres) / max(sum(centres), 1)
    return AttributeProfile(
        name=row["attribute"],
        kind=row["kind"],
        popularity=min(row["n"] / max(clauses, 1), 1.0),
        selectivity=1.0 if low == high else max(1.0 - float(row["width"]), _LEAST),
        uniformity=1.0 / (BINS * float(share @ share)),
        low=low,
        high=high,
        event_share=0.0 if values is None else min(values["n"] / max(events, 1), 1.0),
        centres=centres,
        widths=tuple(int(row[f"w{i}"]) for i in range(WIDTHS)),
        values=tuple(0 if values is None else int(values[f"v{i}"]) for i in range(BINS)),
    )


def _broad_share(asked: DataFrame, found: list[AttributeProfile], clauses: int) -> float:
    """Share of the clauses that let more than `_BROAD` of the events through, if independent."""
    if not found or clauses == 0:
        return 0.0
    bounds = asked.sparkSession.createDataFrame(
        [(each.name, each.kind, each.low, each.high, each.event_share) for each in found],
        "attribute string, kind string, bottom double, top double, there double",
    )
    clipped = f.least("high", "top") - f.greatest("low", "bottom")
    width = f.col("top") - f.col("bottom")
    share = f.when((width > 0) & (f.col("kind") == "number"), clipped / width).otherwise(1 / BINS)
    passing = f.greatest(share * f.col("there"), f.lit(1e-12))
    rows = asked.join(f.broadcast(bounds), ["attribute", "kind"])
    narrow = (
        rows.groupBy("clause")
        .agg(f.sum(f.log(passing)).alias("log"))
        .where(f.col("log") <= float(np.log(_BROAD)))
        .count()
    )
    return max(0.0, 1.0 - narrow / clauses)


def _pairs(rows: DataFrame, ends: tuple[str, ...]) -> Any:
    """The places of events (x, y), or the boxes of clauses (xmin, ymin, xmax, ymax)."""
    sides = [
        f.max(f.when(f.col("attribute") == axis, f.col(end))).alias(f"{axis}{end}")
        for end in ends
        for axis in ("@x", "@y")
    ]
    placed = rows.where(f.col("attribute").isin("@x", "@y")).groupBy("clause").agg(*sides)
    table = placed.drop("clause").toArrow()
    if table.num_rows == 0:
        return np.empty((0, 2 * len(ends)))
    return np.column_stack([column.to_numpy() for column in table.columns])
