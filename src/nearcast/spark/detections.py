"""What the shards of composites detect: packed events in, detections out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.cpsl.instances import CompositeEvent
from nearcast.cpsl.shards import Shard
from nearcast.errors import ValidationError
from nearcast.matcher.arrow_columns import column_of
from nearcast.model.codec import events_from_arrow
from nearcast.spark.packs import Pack, concatenated, read_table, span, written
from nearcast.spark.primitives import PRIMITIVES, shard_bytes
from nearcast.spark.workers import Shipped

__all__ = ["DETECTIONS", "DetectionStream", "Detections", "DetectionsOf", "told_batches"]

#: What `detect` gives, in Spark's words.
DETECTIONS = "composite_id string, event_ids array<string>, start timestamp, end timestamp"
_MOMENT = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [("composite_id", pa.string()), ("event_ids", pa.list_(pa.string())), ("start", _MOMENT),
     ("end", _MOMENT)]
)  # fmt: skip
_VERSION = 1


class Detections:
    """The composites of a shard, and the events that are held until all before them have come."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._fresh = shard.save_waiting()
        self.load(None)

    def load(self, saved: bytes | None) -> None:
        """Take up what waited elsewhere; None: nothing has happened yet."""
        given = (_VERSION, self._fresh, NEVER, FOREVER, None) if saved is None else None
        version, waiting, closed, begins, held = given or pickle.loads(saved or b"")
        if version != _VERSION:
            raise ValidationError(
                "checkpoint", version, f"this release reads version {_VERSION}: start a new one"
            )
        self._shard.load_waiting(waiting)
        self._closed: Micros = closed
        self._begins: Micros = begins
        self._held = None if held is None else read_table(held)
        self._late = 0
        self._counted = self._shard.duplicates, self._shard.overflows

    def save(self) -> bytes:
        """What waits."""
        held = None if self._held is None else written(self._held)
        waiting = self._shard.save_waiting()
        return pickle.dumps((_VERSION, waiting, self._closed, self._begins, held), protocol=5)

    @property
    def due(self) -> Micros:
        """When time alone brings something next: an event that is held, or a time event."""
        if self._held is None:
            return self._shard.due
        first: int = pc.min(_ends(self._held)).as_py()
        return min(first, self._shard.due)

    def counted(self) -> tuple[int, int, int]:
        """Late, duplicates and overflows since the last call."""
        shard, late = self._shard, self._late
        duplicates, overflows = self._counted
        self._late, self._counted = 0, (shard.duplicates, shard.overflows)
        return late, shard.duplicates - duplicates, shard.overflows - overflows

    def take(self, packs: Sequence[Pack], closed: Micros) -> bytes | None:
        """Events; and nothing that ended until `closed` is still to come. What that brings."""
        self._closed = max(self._closed, closed)  # what Spark's watermark has passed is late
        self._gather(packs)
        found: list[CompositeEvent] = []
        if self._begins <= self._closed:  # nothing earlier can come any more
            ready = self._ready()
            if self._shard.now is None:
                self._shard.begin(self._begins)
            found = self._feed(ready)
            found += self._shard.advance(self._closed)
        return written(pa.Table.from_batches([_batch(found)])) if found else None

    def whole(self, packs: Sequence[Pack]) -> Iterator[Any]:
        """All events there are, whenever they end; time ends with the last of all."""
        self._gather(packs)
        first, last = span(packs)
        if first == FOREVER:  # heartbeats, and no event
            return
        self._shard.begin(first)
        self._closed = last - 1  # what is due when the last event ends is not told any more
        found = self._feed(self._ready())
        found += self._shard.advance(last - 1)
        self._closed = last
        found += self._feed(self._ready())
        if found:
            yield _batch(found)

    def _gather(self, packs: Sequence[Pack]) -> None:
        """Hold new events; those that are late are dropped and counted."""
        tables = [read_table(pack.events) for pack in packs if pack.events is not None]
        if tables:
            new = concatenated(tables)
            late = pc.less_equal(_ends(new), self._closed)
            if pc.any(late).as_py():
                home = column_of(new, "#home")
                self._late += pc.sum(pc.and_(late, home)).as_py()
                new = new.filter(pc.invert(late))
            if new.num_rows:
                self._held = new if self._held is None else concatenated([self._held, new])
        if self._shard.now is None:
            self._begins = min([self._begins, *(pack.first_after(self._closed) for pack in packs)])

    def _ready(self) -> Any:
        """The events that ended until now, in order; they are not held any more."""
        held = self._held
        if held is None:
            return None
        over = pc.less_equal(_ends(held), self._closed)
        ready = held.filter(over)
        self._held = None if ready.num_rows == held.num_rows else held.filter(pc.invert(over))
        by = [name for name in ("end", "#offset", "id") if name in ready.column_names]
        return ready.sort_by([(name, "ascending") for name in by]) if ready.num_rows else None

    def _feed(self, ready: Any) -> list[CompositeEvent]:
        if ready is None:
            return []
        numbers = column_of(ready, "#primitives").to_pylist()
        own = [name for name in ready.column_names if name not in PRIMITIVES]
        return self._shard.feed_found(events_from_arrow(ready.select(own)), numbers)


def _ends(table: Any) -> Any:
    return column_of(table, "end").cast(pa.int64())


def _batch(found: list[CompositeEvent]) -> Any:
    columns = [
        pa.array([one.composite_id for one in found], pa.string()),
        pa.array([one.parts for one in found], pa.list_(pa.string())),
        pa.array([one.start for one in found], pa.int64()).cast(_MOMENT),
        pa.array([one.end for one in found], pa.int64()).cast(_MOMENT),
    ]
    return pa.record_batch(columns, schema=_SCHEMA)


@dataclass(frozen=True)
class DetectionsOf:
    """Opens shards from what was shipped."""

    dealt: Shipped

    @property
    def key(self) -> str:
        """Tells what is opened apart."""
        return self.dealt.key

    def open(self, shard: int) -> Detections:
        """The keeper of a shard."""
        return Detections(Shard.open(shard_bytes(self.dealt.open(1), shard)))


@dataclass(frozen=True)
class DetectionStream:
    """All packs of some shards in, what they detect out: for history."""

    opener: DetectionsOf

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        packs: dict[int, list[Pack]] = {}
        for batch in batches:
            times = batch.column("t").is_null().to_pylist()
            for row, wanted in enumerate(times):
                if wanted:
                    shard, first, last, events = (
                        batch.column(name)[row].as_py()
                        for name in ("shard", "first", "last", "events")
                    )
                    packs.setdefault(shard, []).append(Pack(first, last, events))
        for shard, mine in packs.items():
            yield from self.opener.open(shard).whole(mine)


def told_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches that shards told, for `mapInArrow`."""
    for batch in batches:
        for data in batch.column("told"):
            if data.is_valid:
                yield from read_table(data.as_buffer()).to_batches()
