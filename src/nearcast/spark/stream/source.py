"""The data source: what Spark asks between batches, and what it runs in its tasks.

`spark.readStream.format("nearcast")` with the options of `match_stream`. The reader lives in a
process of its own beside the driver for as long as the query runs.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nearcast.clock import FOREVER, NEVER
from nearcast.errors import NearcastError, ValidationError
from nearcast.model.geometry import Space
from nearcast.spark import shipping
from nearcast.spark.stream import logs
from nearcast.spark.stream.bases import asked_of, digest_of, usable
from nearcast.spark.stream.changes import sifted
from nearcast.spark.stream.changes import tell as tell_bad
from nearcast.spark.stream.layering import Delta, Layering, shipped_table
from nearcast.spark.stream.offsets import Mark, Offset
from nearcast.spark.stream.patience import Patience
from nearcast.spark.stream.pieces import Wanted
from nearcast.spark.stream.register import Register, Version
from nearcast.spark.stream.segments import Asked, Indexing, covering, segments
from nearcast.spark.stream.served import ChangeLog
from nearcast.spark.stream.worker import Arrivals, Latecomers, Layers, dealt

__all__ = ["SCHEMA", "MatchReader", "NearcastSource", "Settings"]

#: What the source gives, in Spark's words.
SCHEMA = "event_id string, subscription_id string, version bigint"
_log = logging.getLogger("nearcast.spark")
_SEGMENT = 200_000  # remembered events that are indexed together
_PER_VERSION = 200  # events that go past newcomers in the time that one takes to ask an index
_PASSES = 6  # times that an event goes past newcomers in the time that it takes to index it
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Settings:
    """The options of the source."""

    events: str
    changes: str
    space: Space = "globe"
    index: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    remember: int = 1_000_000
    max_rows: int = 200_000
    max_changes: int | None = None
    tasks: int = 2
    shared: str | None = None
    key: str | None = None
    patience_s: float = _PATIENCE_S

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Settings:
        """From the options of a query, whose names Spark does not tell by case."""
        given = {name.casefold(): value for name, value in options.items()}
        said: dict[str, Any] = {}
        for name in ("events", "changes"):
            if not given.get(name):
                raise ValidationError(name, given.get(name), "give a folder or a URL")
            said[name] = given[name]
        said["space"] = given.get("space", "globe")
        if said["space"] not in get_args(Space):
            raise ValidationError("space", said["space"], f"one of {', '.join(get_args(Space))}")
        for name in ("index", "shared", "key"):
            if given.get(name):
                said[name] = given[name]
        for name, least in (("remember", 0), ("max_rows", 1), ("max_changes", 1), ("tasks", 1)):
            if given.get(name):
                said[name] = _whole(name, given[name], least)
        if given.get("options"):
            said["options"] = json.loads(given["options"])
        if given.get("patience_s"):
            said["patience_s"] = float(given["patience_s"])
        return cls(**said)

    def written(self) -> dict[str, str]:
        """As options."""
        said = {
            name: str(value)
            for name, value in asdict(self).items()
            if value is not None and name != "options"
        }
        return {**said, "options": json.dumps(dict(self.options))}

    @property
    def job(self) -> str:
        """What must stay the same for a checkpoint to be of use."""
        parts = [f"events={self.events}", f"changes={self.changes}", f"space={self.space}"]
        return " ".join([*parts, "remembering" if self.remember else "remembering nothing"])

    def folder(self, run: str) -> str:
        """Where in the shared folder the files of one checkpoint of the job lie.

        The index is no part of it: a base of another one goes on being of use.
        """
        return f"stream-{digest_of(self.job)}-{run}"

    @property
    def joint(self) -> bool:
        """Whether both are in a server's log: each event sees exactly the changes before it."""
        served = self.events.startswith(("http://", "https://"))
        return served and self.events.rstrip("/") == self.changes.rstrip("/")


def _whole(name: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ValidationError(name, text, f"give a whole number of at least {least}")
    return value


class NearcastSource(DataSource):
    """`format("nearcast")`: events matched as they come, against subscriptions that change."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._settings = Settings.read(dict(options))

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "nearcast"

    def schema(self) -> str:
        """What it gives."""
        return SCHEMA

    def streamReader(self, schema: Any) -> MatchReader:  # noqa: ARG002, N802  # Spark's name
        """The reader of one query."""
        return MatchReader(self._settings)


class MatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches: how far to read, which version that is, who does what."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._plans: _Plans | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "_plans": None}

    @property
    def plans(self) -> _Plans:
        """What only the driver's side has, opened when first needed."""
        if self._plans is None:
            self._plans = _Plans(self.settings)
        return self._plans

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before everything."""
        return self.plans.initial().said()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """So many events a batch, in whole files."""
        return ReadMaxRows(self.settings.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch reads; the start if there is nothing."""
        most = None if isinstance(limit, ReadAllAvailable) else self.settings.max_rows
        return self.plans.latest(start, most)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How much is not read yet, for whoever watches."""
        return self.plans.behind()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and no more."""
        self.plans.stop_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        return self.plans.tasks(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a task."""
        assert isinstance(partition, Arrivals | Latecomers | Asked)
        return partition.pairs()

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done: what only it needed may go."""
        self.plans.tidy(end)

    def stop(self) -> None:
        """The query has ended."""
        if self._plans is not None:
            self._plans.close()


class _Plans:
    """The driver's side: both logs, the register, and the files of the version in use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.shared = Path(settings.shared) if settings.shared else shipping._fresh(None)
        self.rejected = self.shared / "rejected"
        about = settings.key, self.shared, settings.space
        self.events = logs.event_log(settings.events, *about)
        self.changes = logs.change_log(settings.changes, *about)
        self._until: tuple[Any, Any] | None = None
        self._indexing: Indexing | None = None
        self.at: Offset | None = None
        self._planned: tuple[Any, Any, list[InputPartition]] | None = None
        self.run = ""
        self._passed = 0
        """Events that went past newcomers who were few enough to ask an index."""
        self._patience = Patience(settings.patience_s)

    def _settle(self, run: str) -> None:
        """Work in the folder of a checkpoint: others of the same job may run beside it."""
        self.close()
        self.run, self._indexing = run, None
        self.root = self.shared / self.settings.folder(run)
        settings = self.settings
        self.layering = Layering(
            self.root, settings.index, settings.space, settings.options,
            removals=not isinstance(self.changes, ChangeLog),
        )  # fmt: skip
        self.events.root = self.root
        self.segments = segments(self.root)
        self.at = self._planned = None

    def _read(self, *said: dict[str, Any]) -> list[Offset]:
        """Offsets from a checkpoint, which says whose folder that is."""
        offsets = [Offset.read(each, self.settings.job) for each in said]
        run = offsets[-1].run or self.run or uuid.uuid4().hex[:12]
        if run != self.run:
            self._settle(run)
        return offsets

    @property
    def register(self) -> Register:
        """What counts now."""
        return self.layering.register

    # -- how far --

    def initial(self) -> Offset:
        return Offset.first(self.settings.job, self.events.first, self.changes.first)

    def stop_here(self) -> None:
        self._until = self.events.end(), self.changes.end()

    def latest(self, said: dict[str, Any], most: int | None) -> dict[str, Any]:
        (start,) = self._read(said)
        try:
            end = self._latest(start, most)
        except (OSError, NearcastError) as error:
            if self._until is not None or not self._patience.lasts(error):
                raise
            return said
        self._patience.renew()
        return said if end is None else end.said()

    def _latest(self, start: Offset, most: int | None) -> Offset | None:
        until_events, until_changes = self._until or (None, None)
        mark = start.mark
        most_changes = self.settings.max_changes
        if self.settings.joint:
            events, rows, bound = self.events.reach(mark.events, most, until_events)
            changes = self.changes.latest(mark.changes, most_changes, until_changes, bound)
            if most_changes is not None:  # no event before the changes that it sees
                first = self.changes.next_offset(changes)
                if first is not None and first < events:
                    events, rows = self.events.latest(mark.events, None, max(first, mark.events))
        else:
            changes = self.changes.latest(mark.changes, most_changes, until_changes)
            events, rows = self.events.latest(mark.events, most, until_events)
        if events == mark.events and changes == mark.changes:
            return None
        clock = mark.clock
        if self.settings.remember and start.past:
            newest = self.events.newest(start.past[-1].events, mark.events)
            clock = max((c for c in (clock, newest) if c is not None), default=None)
        end = start.then(Mark(events, changes, rows, clock), self.settings.remember)
        return replace(end, run=self.run)

    def behind(self) -> dict[str, Any] | None:
        """What lies behind the batch that was planned last, in files or entries."""
        if self.at is None:
            return None
        try:
            return {"behind": self.events.behind(self.at.mark.events)}
        except (OSError, NearcastError):
            return None  # it is asked again soon, by who reads

    # -- who does what --

    def tasks(self, said: dict[str, Any], until: dict[str, Any]) -> list[InputPartition]:
        if said == until:
            return []
        if self._planned is None or self._planned[:2] != (said, until):
            start, end = self._read(said, until)
            self._planned = said, until, self._tasks(start, end)
        return self._planned[2]

    def _tasks(self, start: Offset, end: Offset) -> list[InputPartition]:
        if self.at != start:
            self._reach(start)
        self.register.horizon = self._oldest(start, end)
        self.layering.switch()
        joint, known = self.settings.joint, self.register.version
        if joint:  # the base is what all events of the batch see
            self.layering.compact(start.mark.changes)
        fresh = self._step(start.mark, end.batch, end.mark)
        self.register.forget()
        self.at = end
        late = self._latecomers(fresh, start, end) if fresh and self.settings.remember else []
        if joint:
            layers = self._exact_layers(start, end, known)
        else:
            self.layering.compact(end.mark.changes)
            layers = self.layering.layers()
        pieces = self.events.pieces(start.mark.events, end.mark.events)
        made: list[InputPartition] = []
        if layers.base is not None or layers.delta is not None:
            made += [
                Arrivals(part, layers, self.settings.space, str(self.rejected))
                for part in dealt(pieces, self.settings.tasks)
            ]
        return made + late

    def _oldest(self, start: Offset, end: Offset) -> int:
        """The first batch that is remembered, or where both logs are one the first entry."""
        remembered = end.remembered()
        if self.settings.joint:
            first: int = (remembered[0].start if remembered else start.mark.events) + 1
            return first
        return remembered[0].first if remembered else end.batch

    def _reach(self, offset: Offset) -> None:
        """The register after a batch, from the newest base that is old enough."""
        marks = offset.marks()
        first = marks[0][1].changes
        register = Register()
        at = self.changes.first
        for base in usable(self.root):
            if self.changes.reaches(at, base.position) and self.changes.reaches(
                base.position, first
            ):
                register, at = Register(base=base, version=base.seq), base.position
        self.layering.restart(register)
        before = Mark(None, at, 0, None)
        for number, mark in marks:
            self._step(before, number, mark, tell=False)
            before = mark
        self.at = offset

    def _step(self, before: Mark, batch: int, mark: Mark, tell: bool = True) -> list[Version]:
        """Count the changes of a batch; the versions that are new with it."""
        if before.changes == mark.changes:
            return []
        table = self.changes.read(before.changes, mark.changes)
        if table is None or not table.num_rows:
            return []
        seqs = [seq for seq in table.column("seq").to_pylist() if seq is not None]
        self.register.version = max([self.register.version, *seqs])
        good, bad = sifted(table, self.settings.space, self.changes.plain)
        if bad and tell:
            tell_bad(bad, self.rejected, self.run, f"{batch:09d}")
        if not self.settings.joint:
            return self.register.fold(good, batch, mark.clock, self.settings.remember > 0)
        offsets = good.column("offset").to_pylist()
        moments = self._moments(before, mark, offsets)
        return self.register.fold(good.drop_columns(["offset"]), batch, None, True, moments)

    def _moments(
        self, before: Mark, mark: Mark, offsets: list[int]
    ) -> list[tuple[int, int | None]]:
        """Which event is the first to see each change, and what time it was when that came."""
        places: list[int] = []
        times: list[int] = []
        if self.settings.remember and before.events is not None:
            places, times = self.events.ends(before.events, mark.events)
        clock = NEVER if mark.clock is None else mark.clock
        moments: list[tuple[int, int | None]] = []
        for offset in offsets:
            at = bisect_right(places, offset)
            time = max(clock, times[at - 1]) if at else clock
            moments.append((offset + 1, None if time == NEVER else time))
        return moments

    # -- layers --

    def _exact_layers(self, start: Offset, end: Offset, known: int) -> Layers:
        """As `Layering.layers`; of each version that some event sees, which events these are."""
        register, layering = self.register, self.layering
        if layering.delta is None or layering.delta.counted != register.counted:
            changed = register.changed()
            spans = [
                (version, stop)
                for id in changed
                for version, stop in register.spans(id)
                if version.row >= 0 and stop > start.mark.events + 1
            ]
            folder = self.root / f"delta-{os.urandom(6).hex()}"
            rows = register.taken([version for version, _ in spans])
            shipped, wanted = self.layering.shipped(folder, _numbered(rows))
            dead = self.layering.dead(folder, changed)
            seen = pa.table(
                {
                    "id": rows.column("id"),
                    "begins": pa.array([version.begins for version, _ in spans], pa.int64()),
                    "ends": pa.array([stop for _, stop in spans], pa.int64()),
                }
            )
            seen = shipped_table(folder / "seen.arrow", seen)
            layering.delta = Delta(register.counted, shipped, dead, wanted, seen)
        delta, wanted = layering.delta, layering.delta.wanted
        base = None
        if register.base is not None:
            base = register.base.matcher
            wanted |= Wanted(register.base.attributes, register.base.words)
        versions = None
        if start.mark.changes != end.mark.changes:
            table = self.changes.read(start.mark.changes, end.mark.changes)
            folder = self.root / f"late-{os.urandom(6).hex()}"
            folder.mkdir()
            begins = pc.add(table.column("offset"), 1)
            versions = shipped_table(
                folder / "versions.arrow",
                pa.table({"begins": begins, "seq": table.column("seq")}),
            )
        wanted |= Wanted(frozenset(), False, (), True)
        return Layers(base, delta.matcher, delta.dead, wanted, known, delta.spans, versions)

    # -- late joiners --

    def _latecomers(self, fresh: list[Version], start: Offset, end: Offset) -> list[InputPartition]:
        remembered, register = end.remembered(), self.register
        joint = self.settings.joint
        versions, ends, new = self._asking(fresh)
        if not any(new):
            return []
        indexed = [
            each
            for each in covering(self.segments, remembered)
            if len(versions) * _PER_VERSION <= each.rows
        ]
        covered = {batch for each in indexed for batch in range(each.first, each.last + 1)}
        pieces = [
            (each.batch, piece)
            for each in remembered
            if each.batch not in covered
            for piece in self.events.pieces(each.start, each.stop)
        ]
        if joint:  # changes come between the events of the batch
            now = self.events.pieces(start.mark.events, end.mark.events)
            pieces += [(end.batch, piece) for piece in now]
        if not pieces and not indexed:
            return []
        if len(versions) * _PER_VERSION <= _SEGMENT:
            self._passed += sum(each.rows for each in remembered if each.batch not in covered)
        rows = register.taken(versions)
        expires = rows.column("expires").cast(pa.int64()).fill_null(FOREVER)
        numbered = _numbered(rows.drop_columns(["expires"]))
        clocks = [NEVER if v.clock is None else v.clock for v in versions]
        spans = pa.table(
            {
                "id": rows.column("id"),
                "begins": pa.array([v.begins for v in versions], pa.int64()),
                "ends": pa.array(ends, pa.int64()),
                "clock": pa.array(clocks, pa.int64()),
                "expires": expires,
                "fresh": pa.array(new),
            }
        )
        if joint:
            seqs = pa.array([v.seq for v in versions], pa.int64())
            spans = spans.append_column("seq", seqs)
        folder = self.root / f"late-{os.urandom(6).hex()}"
        shipped, wanted = self.layering.shipped(folder, numbered)
        assert shipped is not None
        wanted |= Wanted(frozenset(), False, ("end", "expires"), joint)
        table = shipped_table(folder / "spans.arrow", spans)
        space, version = self.settings.space, register.version
        late: list[InputPartition] = [
            Latecomers(part, shipped, table, wanted, space, version)
            for part in dealt(pieces, self.settings.tasks)
        ]
        if indexed:
            plain = shipped_table(folder / "wanted.arrow", asked_of(numbered))
            oldest = remembered[0].first
            late += [Asked(each, oldest, plain, table, space, version, joint) for each in indexed]
        return late

    def _asking(self, fresh: list[Version]) -> tuple[list[Version], list[int], list[bool]]:
        """All versions by which a pair may have been told, where they end, which are new."""
        versions, ends, new = [], [], []
        fresh_rows = {(version.id, version.seq) for version in fresh}
        for id in dict.fromkeys(version.id for version in fresh):
            for version, stop in self.register.spans(id):
                if version.row >= 0:
                    versions.append(version)
                    ends.append(stop)
                    new.append((id, version.seq) in fresh_rows)
        return versions, ends, new

    def _index(self, end: Offset) -> None:
        """Take over the segment that was made behind, and have the next one made if it will pay."""
        remembered = end.remembered()
        if self._indexing is not None:
            made = self._indexing.done()
            if made is None:
                return
            self._indexing = None
            segment, said = made
            if segment is None:
                _log.warning("remembered events could not be indexed: %s", said)
                return
            self.segments.append(segment)
        oldest = remembered[0].first if remembered else end.batch
        for over in [each for each in self.segments if each.last < oldest]:
            self.segments.remove(over)
            shutil.rmtree(over.folder, ignore_errors=True)
        known = covering(self.segments, remembered)
        first = known[-1].last + 1 if known else 0
        waiting = [each for each in remembered if each.batch >= first]
        rows = sum(each.rows for each in waiting)
        if rows >= _SEGMENT and self._passed >= _PASSES * rows:
            self._passed = 0
            pieces = [
                (each.batch, piece)
                for each in waiting
                for piece in self.events.pieces(each.start, each.stop)
            ]
            if pieces:
                self._indexing = Indexing(self.root, waiting, pieces, self.settings.space)

    # -- what is left behind --

    def tidy(self, said: dict[str, Any]) -> None:
        """Remove files that no batch from this one on needs."""
        (end,) = self._read(said)
        if self.settings.remember:
            self._index(end)
        if self.at is not None and self.at.batch > end.batch:
            return  # the next batch is planned already
        delta = self.layering.delta
        kept = set() if delta is None else delta.folders()
        for folder in [*self.root.glob("delta-*"), *self.root.glob("late-*")]:
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)
        self.events.tidy(end.marks()[0][1].events)
        oldest = end.marks()[0][1].changes
        bases = [b for b in usable(self.root) if self.changes.reaches(b.position, oldest)]
        for base in bases:
            in_use = self.register.base is not None and base.folder == self.register.base.folder
            newer = [
                b for b in bases
                if b is not base and self.changes.reaches(base.position, b.position)
            ]  # fmt: skip
            if newer and not in_use:
                shutil.rmtree(base.folder, ignore_errors=True)

    def close(self) -> None:
        if not self.run:
            return
        self.layering.close()
        if self._indexing is not None:
            self._indexing.stop()
        for folder in [*self.root.glob("delta-*"), *self.root.glob("late-*")]:
            shutil.rmtree(folder, ignore_errors=True)


def _numbered(rows: Any) -> Any:
    """Rows under the numbers of their places: an id may be there several times."""
    numbers = pa.array([str(number) for number in range(rows.num_rows)], pa.string())
    return rows.set_column(rows.column_names.index("id"), "id", numbers)
