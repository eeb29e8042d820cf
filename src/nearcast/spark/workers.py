"""What runs in Spark's Python workers: Arrow in, Arrow out, no DataFrames.

Everything here is importable by name and small to pickle. A matcher or a table that was
shipped is opened once a process and mapped, so that the workers of a machine share its pages.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import BatchError, SparkError
from nearcast.matcher import Matcher, saved
from nearcast.model.geometry import Space
from nearcast.spark.boxes import clause_boxes, event_points, extended_rows
from nearcast.spark.partitioning import Cells
from nearcast.spark.rows import Side, accepted

__all__ = [
    "EventStream",
    "EventUnits",
    "LiveStream",
    "RejectStream",
    "Shipped",
    "SubscriptionStream",
    "SubscriptionUnits",
    "UnitMatching",
    "answered",
    "gathered",
    "match_good",
    "task_threads",
]

_TOGETHER = 65_536  # events that are matched in one call
_CHUNK = 250_000  # subscriptions that are indexed together where they stream
_OUT = 65_536  # rows of one answer
_PAIRS = pa.schema([("event_id", pa.string()), ("subscription_id", pa.string())])
_KEPT = 8
_opened: OrderedDict[str, Any] = OrderedDict()


# --- what was shipped -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Shipped:
    """A file that workers map: on a path they all see, or among Spark's files."""

    key: str
    """Tells contents apart: what has been opened stays open under it."""
    path: str
    file: str | None = None
    """Its name among Spark's files, where the path is the driver's own."""
    header: saved.Header | None = None
    """Of a saved matcher; None for an Arrow file."""

    def found(self) -> str:
        """The path here; SparkError if this machine does not see it."""
        path = self.path
        if self.file is not None:
            from pyspark import SparkFiles

            path = SparkFiles.get(self.file)
        if not os.path.exists(path):
            raise SparkError(
                f"{path} is not on this machine; give match(…, shared=FOLDER) a folder that the "
                "driver and all workers see"
            )
        return path

    def open(self, threads: int) -> Any:
        """The matcher or the table, opened once a process."""
        if self.key in _opened:
            _opened.move_to_end(self.key)
            return _opened[self.key]
        path = self.found()
        made: Any
        if self.header is None:
            with pa.memory_map(path) as source:
                made = pa.ipc.open_file(source).read_all()
        else:
            made = saved.load(
                Matcher, os.path.dirname(path), threads=threads, data=path, header=self.header
            )
        _opened[self.key] = made
        while len(_opened) > _KEPT:
            _opened.popitem(last=False)
        return made


def task_threads() -> int:
    """The cores that this task may use."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else max(1, context.cpus())


# --- streams --------------------------------------------------------------------------------------


def gathered(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The batches as tables of at least so many rows, but for the last."""
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.num_rows
        if size >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if size:
        yield pa.Table.from_batches(waiting)


def answered(pairs: Any) -> Iterator[Any]:
    """Pairs as batches of the declared types."""
    yield from pairs.cast(_PAIRS).to_batches(max_chunksize=_OUT)


def match_good(matcher: Matcher, events: Any, space: Space, strict: bool) -> Any:
    """`match_events`, without the bad rows unless they are to be errors."""
    try:
        return matcher.match_events(events)
    except BatchError:
        if strict:
            raise
    good, _ = accepted(events, "events", space)
    return matcher.match_events(good)


@dataclass(frozen=True)
class EventStream:
    """Events stream past a matcher that was built once."""

    shipped: Shipped
    space: Space
    strict: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        matcher: Matcher | None = None
        for events in gathered(batches, _TOGETHER):
            if matcher is None:
                matcher = self.shipped.open(task_threads())
            yield from answered(match_good(matcher, events, self.space, self.strict))


@dataclass(frozen=True)
class SubscriptionStream:
    """Subscriptions stream past events that were shipped: chunk by chunk they are indexed.

    Indexing takes about a microsecond a subscription, and events are then matched as a batch:
    cheaper than to ask an index of the events for each subscription alone.
    """

    shipped: Shipped
    index: str
    space: Space
    strict: bool
    options: Mapping[str, Any] = field(default_factory=dict)
    chunk: int = _CHUNK

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        for subscriptions in gathered(batches, self.chunk):
            events = self.shipped.open(1)
            matcher = _filled(subscriptions, self.index, self.space, self.strict, self.options)
            for first in range(0, events.num_rows, _TOGETHER):
                part = events.slice(first, _TOGETHER)
                yield from answered(match_good(matcher, part, self.space, self.strict))


@dataclass(frozen=True)
class LiveStream:
    """Subscriptions stream past an index of the live events, one at a time.

    For indexes that can do nothing else.
    """

    shipped: Shipped
    ends: Shipped
    space: Space
    strict: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        from nearcast.model.codec import subscriptions_from_arrow

        for table in gathered(batches, 1024):
            matcher: Matcher = self.shipped.open(task_threads())
            about = self.ends.open(1)
            ids, ends = about.column("id"), about.column("end").to_numpy()
            good = table
            if not self.strict:
                good, _ = accepted(table, "subscriptions", self.space)
            wanted = subscriptions_from_arrow(good, space=self.space)
            rows: list[int] = []
            owners: list[str] = []
            for subscription in wanted:
                hits = [int(number) for number in matcher.match_subscription(subscription)]
                if subscription.expires is not None:
                    hits = [at for at in hits if ends[at] < subscription.expires]
                rows += hits
                owners += [subscription.id] * len(hits)
            found = pa.table({"event_id": ids.take(pa.array(rows, pa.int64())),
                              "subscription_id": pa.array(owners, pa.string())})  # fmt: skip
            yield from answered(found)


def _filled(
    subscriptions: Any, index: str, space: Space, strict: bool, options: Mapping[str, Any]
) -> Matcher:
    matcher = Matcher(index, space, threads=task_threads(), **options)
    try:
        matcher.add_subscriptions(subscriptions)
    except BatchError:
        if strict:
            raise
        good, _ = accepted(subscriptions, "subscriptions", space)
        matcher.add_subscriptions(good)
    return matcher


@dataclass(frozen=True)
class RejectStream:
    """The bad rows with their reasons."""

    side: Side
    space: Space

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        for batch in batches:
            _, bad = accepted(pa.Table.from_batches([batch]), self.side, self.space)
            yield pa.record_batch(
                [
                    pa.array([reject.id for reject in bad], pa.string()),
                    pa.array([reject.reason for reject in bad], pa.string()),
                ],
                names=["id", "reason"],
            )


# --- units ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EventUnits:
    """The units that events go to; those with an extended location go to all cells."""

    cells: Cells
    names: tuple[str, ...]
    """What the arguments are: lon, lat, geometry, attributes, and last the hash of the id."""
    space: Space

    def __call__(self, *columns: Any) -> Any:
        """For `arrow_udf`: a list of units for each event."""
        given = dict(zip(self.names, columns, strict=True))
        hashes = np.abs(given["#"].to_numpy(zero_copy_only=False) >> 1)
        points = event_points(given, self.cells.columns, self.space)
        offsets, units = self.cells.event_units(self.cells.cells_of_points(points), hashes)
        extended = extended_rows(given.get("geometry"))
        if extended.any():
            lists = np.split(units, offsets[1:-1])
            every = np.arange(self.cells.count, dtype=np.int32)
            for row in np.flatnonzero(extended).tolist():
                same = np.full(every.size, hashes[row])
                lists[row] = self.cells.event_units(every, same)[1]
            offsets = np.concatenate([[0], np.cumsum([part.size for part in lists])])
            units = np.concatenate(lists)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(units, pa.int32()))


@dataclass(frozen=True)
class SubscriptionUnits:
    """The units that subscriptions go to; one of their cells is their home.

    A bad row goes nowhere, unless it is to be an error.
    """

    cells: Cells
    names: tuple[str, ...]
    """The columns, and last the hash of the id."""
    space: Space
    strict: bool

    def __call__(self, *columns: Any) -> Any:
        """For `arrow_udf`: a list of (unit, home) for each subscription."""
        table = pa.table(dict(zip(self.names[:-1], columns[:-1], strict=True)))
        hashes = np.abs(columns[-1].to_numpy(zero_copy_only=False) >> 1)
        owner, low, high = clause_boxes(table, self.cells.columns, self.space, self.strict)
        rows, cells = self.cells.cells_of_clauses(low, high)
        # A subscription meets a cell once, however many of its clauses do.
        keys = np.unique(owner[rows].astype(np.int64) * self.cells.count + cells)
        whose, cells = keys // self.cells.count, (keys % self.cells.count).astype(np.int32)
        home = np.ones(keys.size, bool)
        home[1:] = whose[1:] != whose[:-1]
        offsets, units = self.cells.subscription_units(cells, hashes[whose])
        counts = np.diff(offsets)
        sizes = np.bincount(whose, counts, minlength=table.num_rows).astype(np.int64)
        items = pa.StructArray.from_arrays(
            [pa.array(units, pa.int32()), pa.array(np.repeat(home, counts))], ["unit", "home"]
        )
        ends = np.concatenate([[0], np.cumsum(sizes)])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)


@dataclass(frozen=True)
class UnitMatching:
    """Both sides of one unit, matched by a matcher of its own."""

    index: str
    space: Space
    strict: bool
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, events: Any, subscriptions: Any) -> Any:
        """For `applyInArrow` of two grouped DataFrames."""
        if not events.num_rows or not subscriptions.num_rows:
            return _PAIRS.empty_table()
        events = events.drop_columns(["_unit"])
        home = subscriptions.column("_home")
        subscriptions = subscriptions.drop_columns(["_unit", "_home"])
        geometry = events.column("geometry") if "geometry" in events.column_names else None
        extended = extended_rows(geometry)
        if not extended.any():
            return self._pairs(events, subscriptions)
        mask = pa.array(extended)
        points = self._pairs(events.filter(pc.invert(mask)), subscriptions)
        shapes = self._pairs(events.filter(mask), subscriptions.filter(home))
        return pa.concat_tables([points, shapes])

    def _pairs(self, events: Any, subscriptions: Any) -> Any:
        matcher = _filled(subscriptions, self.index, self.space, self.strict, self.options)
        parts = [
            match_good(matcher, events.slice(first, _TOGETHER), self.space, self.strict).cast(
                _PAIRS
            )
            for first in range(0, events.num_rows, _TOGETHER)
        ]
        return pa.concat_tables(parts) if parts else _PAIRS.empty_table()
