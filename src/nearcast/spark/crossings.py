"""What fences tell of a shard's objects on a stream: packed positions in, transitions out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.errors import ValidationError
from nearcast.fences.history import Told
from nearcast.fences.ongoing import Ongoing
from nearcast.matcher.arrow_columns import column_of
from nearcast.model.codec.wkb import read_wkb
from nearcast.model.fences import TRANSITIONS
from nearcast.model.geometry import Box, Polygon, Space
from nearcast.spark.objects import arrow_type
from nearcast.spark.packs import Pack, beating, concatenated, packed, read_table, written
from nearcast.spark.positions import Layout, PositionPacking
from nearcast.spark.transitions import in_order, opened_standing, tracks_of
from nearcast.spark.workers import Shipped, gathered

__all__ = ["Crossings", "CrossingsOf", "PositionPacks"]

_VERSION = 1
_TOGETHER = 131_072
_NAMES = pa.array(TRANSITIONS, pa.string())


@dataclass(frozen=True)
class PositionPacks:
    """Events in, the positions among them out, as packs for the shards of their objects."""

    packing: PositionPacking
    keys: tuple[int, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        for given in gathered(batches, _TOGETHER):
            table, beat = beating(given)
            found = self.packing.timed(table)
            if found is None:  # no row is good, and no clock either
                if beat > NEVER:
                    yield packed({}, self.keys, FOREVER, beat, 0)
                continue
            rows, first, last = found
            tables = {
                self.keys[shard]: pa.Table.from_batches([self.packing.layout.unpack(blob)])
                for shard, blob in zip(
                    rows.column("shard").to_pylist(), rows.column("positions"), strict=True
                )
            }
            yield packed(tables, self.keys, first, max(last, beat), table.num_rows)


class Crossings:
    """The objects of a shard, and the positions that are held until all before them have come."""

    def __init__(self, opened: CrossingsOf) -> None:
        self._of = opened
        self._standing, self._fence_ids = opened_standing(opened.standing)
        self._history = Ongoing(self._standing)
        self._empty = self._history.save()
        self.load(None)

    def load(self, saved: bytes | None) -> None:
        """Take up what waited elsewhere; None: nothing has happened yet."""
        self._late = 0
        self._numbers: dict[tuple[int, Any], int] = {}
        self._objects: list[Any] = []
        self._groups: list[int] = []
        self._last: list[str] = []
        self._closed: Micros = NEVER
        self._held: Any = None
        if saved is None:
            self._history.load(self._empty)
            return
        version, fences, history, known, self._closed, held = pickle.loads(saved)
        if version != _VERSION:
            raise ValidationError(
                "checkpoint", version, f"this release reads version {_VERSION}: start a new one"
            )
        if fences != self._of.fingerprint:
            raise ValidationError(
                "checkpoint", fences,
                "it was made with other fences: give the same ones, or start a new checkpoint",
            )  # fmt: skip
        self._history.load(history)
        self._held = None if held is None else read_table(held)
        table = read_table(known)
        self._groups, self._objects, self._last = (
            table.column(name).to_pylist() for name in ("group", "object", "last")
        )
        keys = zip(self._groups, self._objects, strict=True)
        self._numbers = {key: number for number, key in enumerate(keys)}

    def save(self) -> bytes:
        """What waits."""
        known = pa.table(
            {
                "group": pa.array(self._groups, pa.int32()),
                "object": pa.array(self._objects, arrow_type(self._of.layout.objects)),
                "last": pa.array(self._last, pa.string()),
            }
        )
        held = None if self._held is None else written(self._held)
        history = self._history.save()
        saved = _VERSION, self._of.fingerprint, history, written(known), self._closed, held
        return pickle.dumps(saved, protocol=5)

    @property
    def due(self) -> Micros:
        """When time alone brings something next: a position that is held, a dwell or a loss."""
        due = self._history.due
        if due > self._of.until:
            due = FOREVER
        return due if self._held is None else min(due, pc.min(self._held.column("at")).as_py())

    def counted(self) -> tuple[int, int, int]:
        """Late since the last call; the others are not counted here."""
        late, self._late = self._late, 0
        return late, 0, 0

    def take(self, packs: Sequence[Pack], closed: Micros) -> bytes | None:
        """Positions; and none that was until `closed` is still to come. What that brings."""
        self._closed = max(self._closed, closed)
        self._gather(packs)
        parts = []
        ready = self._ready()
        if ready is not None:
            parts.append(self._run(ready))
        until = min(self._closed, self._of.until)
        parts.append(self._answer(self._history.finish(until, until), self._history.taken, None))
        told = pa.Table.from_batches(parts)
        return written(told) if told.num_rows else None

    def _gather(self, packs: Sequence[Pack]) -> None:
        """Hold new positions; those that are late are dropped and counted."""
        tables = [read_table(pack.events) for pack in packs if pack.events is not None]
        if not tables:
            return
        new = concatenated(tables)
        late = pc.less_equal(new.column("at"), self._closed)
        dropped = pc.sum(late).as_py()
        if dropped:
            self._late += dropped
            new = new.filter(pc.invert(late))
        if new.num_rows:
            self._held = new if self._held is None else concatenated([self._held, new])

    def _ready(self) -> Any:
        """The positions until now; they are not held any more."""
        held = self._held
        if held is None:
            return None
        over = pc.less_equal(held.column("at"), self._closed)
        ready = held.filter(over)
        self._held = None if ready.num_rows == held.num_rows else held.filter(pc.invert(over))
        return ready.combine_chunks() if ready.num_rows else None

    def _run(self, positions: Any) -> Any:
        objects = column_of(positions, "object").dictionary_encode()
        groups, whose, local = tracks_of(column_of(positions, "group"), objects)
        values = objects.dictionary.to_pylist()
        numbers = self._numbered(groups.tolist(), [values[at] for at in whose.tolist()])
        tracks = np.array(numbers, np.int64)[local]
        ats = column_of(positions, "at").to_numpy().copy()
        by_object = not self._standing.has_timers
        order = in_order(positions, tracks, ats, by_object=by_object)
        xs, ys = (column_of(positions, name).to_numpy()[order] for name in ("x", "y"))
        ids = column_of(positions, "id").take(pa.array(order))
        before = self._history.taken
        told = self._history.take(tracks[order], ats[order], xs, ys, self._shapes(positions, order))
        answer = self._answer(told, before, ids)
        for track, id in zip(tracks[order].tolist(), ids.to_pylist(), strict=True):
            self._last[track] = id
        return answer

    def _numbered(self, groups: list[int], objects: list[Any]) -> list[int]:
        """The tracks of objects, new ones for those that come for the first time."""
        known, first = self._numbers, len(self._objects)
        found = []
        for key in zip(groups, objects, strict=True):
            number = known.get(key)
            if number is None:
                number = known[key] = len(self._objects)
                self._groups.append(key[0])
                self._objects.append(key[1])
                self._last.append("")
            found.append(number)
        if len(self._objects) > first:
            self._history.meet(np.array(self._groups[first:], np.int64))
        return found

    def _shapes(self, positions: Any, order: Any) -> dict[int, Box | Polygon]:
        """The places, by row, that are more than points."""
        if "geometry" not in positions.column_names:
            return {}
        wide = column_of(positions, "geometry").take(pa.array(order))
        found = {}
        for row in np.flatnonzero(wide.is_valid().to_numpy(zero_copy_only=False)).tolist():
            place = read_wkb(wide[row].as_py(), self._of.space)
            assert isinstance(place, Box | Polygon)
            found[row] = place
        return found

    def _answer(self, told: Told, before: int, ids: Any) -> Any:
        """Transitions; `ids` are of the positions just taken, the first of which is `before`."""
        tracks, at = told.tracks.tolist(), (told.positions - before).tolist()
        last = self._last
        events = [
            ids[row].as_py() if row >= 0 else last[track]
            for track, row in zip(tracks, at, strict=True)
        ]
        kind = arrow_type(self._of.layout.objects)
        columns = [
            self._fence_ids.take(pa.array(told.fences)).cast(pa.string()),
            pa.array([self._objects[track] for track in tracks], kind),
            _NAMES.take(pa.array(told.codes)),
            pa.array(told.ats).cast(pa.timestamp("us", tz="UTC")),
            pa.array(events, pa.string()),
        ]
        names = ["fence_id", "object", "transition", "at", "event_id"]
        return pa.record_batch(columns, names=names)


@dataclass(frozen=True)
class CrossingsOf:
    """Opens shards of objects from the fences that were shipped."""

    standing: Shipped
    fingerprint: str
    """Tells fences apart, also from one start of a job to the next."""
    layout: Layout
    space: Space
    until: Micros

    @property
    def key(self) -> str:
        """Tells what is opened apart."""
        return self.standing.key

    def open(self, _: int) -> Crossings:
        """The keeper of a shard; they differ in nothing but their objects."""
        return Crossings(self)
