"""What runs in Spark's tasks: events past the layers of a version, and past late joiners."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from nearcast.clock import FOREVER, NEVER
from nearcast.errors import BatchError
from nearcast.matcher import Matcher
from nearcast.model.geometry import Space
from nearcast.spark.rows import accepted
from nearcast.spark.stream.pieces import Wanted
from nearcast.spark.workers import Shipped, task_threads

__all__ = [
    "PAIRS",
    "Arrivals",
    "Latecomers",
    "Layers",
    "Piece",
    "Rejects",
    "Spans",
    "dealt",
    "micros_of_column",
    "spans_told",
]

#: What the source gives.
PAIRS = pa.schema(
    [("event_id", pa.string()), ("subscription_id", pa.string()), ("version", pa.int64())]
)
_OUT = 65_536
_FEW = 20_000  # events below which a second task costs more than it brings

_I8 = npt.NDArray[np.int64]


class Piece(Protocol):
    """Events that a worker reads by itself."""

    @property
    def rows(self) -> int:
        """About how many."""

    def tables(self, columns: Wanted) -> Iterator[Any]:
        """They, in tables; a column `offset` where each has a place in the log."""


class Layers(NamedTuple):
    """One version of the subscriptions, as files."""

    base: Shipped | None
    delta: Shipped | None
    """Those that have changed since the base."""
    dead: Shipped | None
    """Their ids, which do not count in the base."""
    wanted: Wanted
    version: int
    spans: Shipped | None = None
    """Where each event sees what was before it: whose the rows of the delta are, from and to which
    entry of the log."""
    versions: Shipped | None = None
    """And the numbers of the changes in this batch, with where each begins."""


class Rejects(NamedTuple):
    """Where bad events are told of."""

    folder: str
    source: str

    def tell(self, bad: list[Any], where: str) -> None:
        """Write them down, under a name that is the same if the task runs again."""
        name = hashlib.blake2b(where.encode(), digest_size=8).hexdigest()
        path = Path(self.folder) / f"events-{name}.jsonl"
        lines = [json.dumps({"id": b.id, "reason": b.reason, "in": where}) for b in bad]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f".{path.name}.{os.getpid()}")
            scratch.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            scratch.replace(path)
        except OSError:
            return  # what is told beside the answer does not hold it up


class Arrivals(InputPartition):
    """The events of a batch, past the version that they see."""

    def __init__(self, pieces: list[Any], layers: Layers, space: Space, rejected: str) -> None:
        super().__init__(None)
        self.pieces, self.layers, self.space, self.rejected = pieces, layers, space, rejected

    def pairs(self) -> Iterator[Any]:
        """The pairs, as record batches of `PAIRS`."""
        threads = task_threads()
        for piece in self.pieces:
            for number, table in enumerate(piece.tables(self.layers.wanted)):
                yield from self.matched(table, threads, f"{piece!r} {number}")

    def matched(self, events: Any, threads: int, where: str) -> Iterator[Any]:
        """The pairs of a table; `where` it stands is for people to read, and the same again."""
        layers = self.layers
        offsets = None
        if "offset" in events.column_names:
            offsets, events = events.column("offset"), events.drop_columns(["offset"])
        for layer in (layers.base, layers.delta):
            if layer is None:
                continue
            matcher: Matcher = layer.open(threads)
            try:
                numbers, ids = _numbers(matcher, events)
            except BatchError:
                events, bad = accepted(events, "events", self.space)
                Rejects(self.rejected, where).tell(bad, where)
                if offsets is not None:
                    wrong = {each.row for each in bad}
                    kept = [row for row in range(len(offsets)) if row not in wrong]
                    offsets = offsets.take(pa.array(kept, pa.int64()))
                numbers, ids = _numbers(matcher, events)
            yield from self._told(events, offsets, numbers, ids, layer is layers.base)

    def _told(self, events: Any, offsets: Any, numbers: Any, ids: Any, base: bool) -> Iterator[Any]:
        layers = self.layers
        if base and layers.dead is not None:
            dead = layers.dead.open(1).column("id").combine_chunks()
            keep = pc.invert(pc.is_in(ids, value_set=dead))
            numbers, ids = numbers.filter(keep), ids.filter(keep)
        elif not base and layers.spans is not None:
            spans = layers.spans.open(1)
            rows = pc.cast(ids, pa.int64())
            at = offsets.take(numbers)
            keep = pc.and_(
                pc.less_equal(spans.column("begins").take(rows), at),
                pc.less(at, spans.column("ends").take(rows)),
            )
            numbers, ids = numbers.filter(keep), spans.column("id").take(rows.filter(keep))
        event_ids = events.column("id").take(numbers)
        if layers.versions is None:
            versions = pa.repeat(pa.scalar(layers.version, pa.int64()), len(numbers))
        else:
            known = layers.versions.open(1)
            begins, seqs = known.column("begins").to_numpy(), known.column("seq").to_numpy()
            seen = np.searchsorted(begins, offsets.take(numbers).to_numpy(), side="right")
            versions = pa.array(np.concatenate([[layers.version], seqs])[seen], pa.int64())
        yield from _batches(event_ids, ids, versions)


def _numbers(matcher: Matcher, events: Any) -> tuple[Any, Any]:
    """Pairs as (numbers of events, ids of subscriptions), in Arrow."""
    numbers, ids = matcher.match_pairs(events)
    return pa.array(numbers), ids


def _batches(event_ids: Any, ids: Any, versions: Any) -> Iterator[Any]:
    table = pa.table([event_ids, ids, versions], names=PAIRS.names).cast(PAIRS)
    for batch in table.combine_chunks().to_batches(max_chunksize=_OUT):
        if batch.num_rows:
            yield batch


class Latecomers(InputPartition):
    """Events that were there before, past the versions that have come since.

    All versions that a pair may have been told by are looked at; the earliest one tells it.
    """

    def __init__(
        self, pieces: list[tuple[int, Any]], matcher: Shipped, spans: Shipped, wanted: Wanted,
        space: Space, version: int,
    ) -> None:  # fmt: skip
        super().__init__(None)
        self.pieces, self.matcher, self.spans = pieces, matcher, spans
        self.wanted, self.space, self.version = wanted, space, version

    def pairs(self) -> Iterator[Any]:
        """The pairs, as record batches of `PAIRS`."""
        spans = Spans.of(self.spans.open(1))
        for batch, piece in self.pieces:
            for table in piece.tables(self.wanted):
                yield from self._matched(table, batch, spans)

    def _matched(self, events: Any, batch: int, spans: Spans) -> Iterator[Any]:
        ticks = np.full(events.num_rows, batch, np.int64)
        if "offset" in events.column_names:
            ticks = events.column("offset").to_numpy()
            events = events.drop_columns(["offset"])
        live = micros_of_column(events, "expires", FOREVER) > spans.clocks.min()
        if not live.all():
            events, ticks = events.filter(pa.array(live)), ticks[live]
        matcher: Matcher = self.matcher.open(task_threads())
        try:
            numbers, rows = matcher.match_numbers(events)
        except BatchError:
            kept, bad = accepted(events, "events", self.space)
            ticks = np.delete(ticks, [each.row for each in bad])
            events = kept
            numbers, rows = matcher.match_numbers(events)
        if not len(rows):
            return
        which = np.array(rows, np.int64)
        times = (
            ticks,
            micros_of_column(events, "end", NEVER),
            micros_of_column(events, "expires", FOREVER),
        )
        yield from spans_told(spans, events.column("id"), numbers, which, times, self.version)


def spans_told(
    spans: Spans, event_ids: Any, numbers: Any, which: _I8, times: tuple[_I8, _I8, _I8],
    version: int,
) -> Iterator[Any]:  # fmt: skip
    """Of the pairs (an event, a version) those that are told now; `times` are ticks, ends, expires.

    Record batches of `PAIRS`.
    """
    ticks, ends, expires = (each[numbers] for each in times)
    told = spans.telling(numbers, which, ticks, ends, expires)
    if told.size:
        found = event_ids.take(pa.array(numbers[told]))
        ids = spans.ids.take(pa.array(spans.whose[which[told]]))
        if spans.versions is None:
            versions = pa.repeat(pa.scalar(version, pa.int64()), told.size)
        else:
            versions = pa.array(spans.versions[which[told]])
        yield from _batches(found, ids, versions)


class Spans(NamedTuple):
    """Versions of subscriptions, and when they were current."""

    ids: Any
    whose: _I8
    """The number of each version's id."""
    begins: _I8
    ends: _I8
    clocks: _I8
    expires: _I8
    fresh: npt.NDArray[np.bool_]
    """Whether it has come in this batch."""
    versions: _I8 | None

    @classmethod
    def of(cls, table: Any) -> Spans:
        """Those of a table that was shipped."""
        encoded = table.column("id").combine_chunks().dictionary_encode()

        def ints(name: str) -> _I8:
            found: _I8 = table.column(name).to_numpy()
            return found

        return cls(
            encoded.dictionary, np.asarray(encoded.indices).astype(np.int64), ints("begins"),
            ints("ends"), ints("clock"), ints("expires"),
            np.asarray(table.column("fresh").to_numpy(zero_copy_only=False), bool),
            ints("seq") if "seq" in table.column_names else None,
        )  # fmt: skip

    def telling(
        self, events: Any, which: _I8, ticks: _I8, ends: _I8, expires: _I8
    ) -> npt.NDArray[np.int64]:
        """The pairs (an event, a version) that are told now, since nothing has told them before."""
        begins, clocks, until = self.begins[which], self.clocks[which], self.expires[which]
        arrived = (begins <= ticks) & (ticks < self.ends[which]) & (until > ends)
        late = (ticks < begins) & (expires > clocks) & (until > clocks)
        rows = np.flatnonzero(arrived | late)
        turns = which[rows], begins[rows], self.whose[which[rows]], events[rows]
        order = rows[np.lexsort(turns)]
        first = np.ones(order.size, bool)
        a, b = order[1:], order[:-1]
        first[1:] = (events[a] != events[b]) | (self.whose[which[a]] != self.whose[which[b]])
        tellers = order[first]
        return tellers[late[tellers] & self.fresh[which[tellers]]]


def micros_of_column(events: Any, name: str, missing: int) -> _I8:
    """A time of events as microseconds, whether they have that column or not."""
    if name not in events.column_names:
        return np.full(events.num_rows, missing, np.int64)
    column = events.column(name).cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())
    found: _I8 = column.fill_null(missing).to_numpy()
    return found


def dealt(pieces: list[Any], most: int) -> list[list[Any]]:
    """The pieces in their order, in parts of about as many events."""
    sizes = [(each[1] if type(each) is tuple else each).rows for each in pieces]
    parts = min(most, max(1, sum(sizes) // _FEW), max(1, len(pieces)))
    made: list[list[Any]] = [[] for _ in range(parts)]
    gone, total = 0, max(1, sum(sizes))
    for piece, size in zip(pieces, sizes, strict=True):
        made[min(parts - 1, gone * parts // total)].append(piece)
        gone += size
    return [part for part in made if part]
