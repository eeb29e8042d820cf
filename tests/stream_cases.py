"""Small streams for tests: rows of changes and events in files, and a driver without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.datasource import ReadAllAvailable

from nearcast.model.codec import events_to_arrow, subscriptions_to_arrow
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Circle, Point
from nearcast.model.subscriptions import Subscription
from nearcast.spark.stream import bases, segments
from nearcast.spark.stream.source import MatchReader, Settings
from tests.naive_stream import Change

_NOON = 1_772_366_400_000_000
_SECOND = 1_000_000


def write_events(folder: Path, name: str, events: Sequence[Event]) -> None:
    """A file of events, there at once or not at all."""
    table = events_to_arrow(events) if events else pa.table({"id": pa.array([], pa.string())})
    _put(folder, name, table)


def write_changes(folder: Path, name: str, changes: Sequence[Change]) -> None:
    """A file of changes."""
    plain = [c.subscription or Subscription(c.id) for c in changes]
    table = subscriptions_to_arrow(plain)
    where = [
        "price <" if c.bad else w
        for c, w in zip(changes, table.column("where").to_pylist(), strict=True)
    ]
    table = table.set_column(
        table.column_names.index("where"), "where", pa.array(where, pa.string())
    )
    ops = ["update" if c.subscription or c.bad else "remove" for c in changes]
    table = table.append_column("op", pa.array(ops, pa.string()))
    _put(folder, name, table.append_column("seq", pa.array([c.seq for c in changes], pa.int64())))


def _put(folder: Path, name: str, table: Any) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / f"{name}.parquet")


class Histories:
    """Random changes and events, small enough that many of them meet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seq = 0
        self.now = _NOON
        self.events = 0

    def changes(self, most: int) -> list[Change]:
        """Some changes: adds, updates, removes, some bad, some late in the order of `seq`."""
        made = []
        for _ in range(self.random.randint(0, most)):
            self.seq += self.random.randint(1, 3)
            seq = self.seq
            if self.random.random() < 0.15:
                seq = max(1, self.seq - self.random.randint(1, 40)) * 2 + 100_000
                seq = seq - 100_000 if self.random.random() < 0.5 else self.seq
            id = f"s{self.random.randint(0, 11)}"
            kind = self.random.random()
            if kind < 0.15:
                made.append(Change(id, seq))
            elif kind < 0.25:
                made.append(Change(id, seq, None, bad=True))
            else:
                made.append(Change(id, seq, self.subscription(id)))
        return _distinct(made)

    def subscription(self, id: str) -> Subscription:
        """One that wants a good deal."""
        r = self.random
        region = r.choice([None, Circle(8.5, 47.4, 60_000.0 * r.random()), Box(8, 47, 8.6, 47.5)])
        return Subscription(
            id, subscriber="ann",
            where=r.choice([None, f"price < {r.randint(0, 100)}", "kind = 'a'", "price >= 50"]),
            keywords=r.choice([frozenset(), frozenset({"sale"})]), region=region,
            expires=r.choice([None, None, self.now + r.randint(-5, 60) * _SECOND]),
        )  # fmt: skip

    def batch(self, most: int) -> list[Event]:
        """Some events; time goes on, and now and then jumps."""
        made = []
        for _ in range(self.random.randint(0, most)):
            r = self.random
            self.now += r.choice([0, 1, 5]) * _SECOND
            end = r.choice([None, self.now, self.now - 10 * _SECOND])
            if r.random() < 0.01:
                end = self.now + 300 * _SECOND
            made.append(
                Event(
                    id=f"e{self.events}",
                    attributes={"price": r.randint(0, 100), "kind": r.choice("ab")},
                    keywords=r.choice([frozenset(), frozenset({"sale"})]),
                    location=r.choice([None, Point(8 + r.random(), 47 + r.random())]),
                    end=end,
                    expires=r.choice([None, (end or self.now) + r.randint(0, 40) * _SECOND]),
                )
            )
            self.events += 1
        return made


def _distinct(changes: list[Change]) -> list[Change]:
    """No number twice: which of two came first would be for the files to say."""
    seen: set[tuple[str, int]] = set()
    return [
        c
        for c in changes
        if (c.id, c.seq) not in seen and not seen.add((c.id, c.seq))  # type: ignore[func-returns-value]
    ]


class Beside:
    """Stands for a process that builds something beside the stream: done when asked twice."""

    def __init__(self, command: Sequence[str], **_: Any) -> None:
        self.work = Path(command[-1])
        self.main = segments.main if command[-2].endswith(".segments") else bases.main
        self.asked = 0

    def poll(self) -> int | None:
        """Nothing yet, and then it has been done."""
        self.asked += 1
        return None if self.asked == 1 else self.wait()

    def wait(self) -> int:
        """Do it."""
        if self.asked >= 0 and self.work.exists():
            self.main(self.work)
            self.asked = -1
        return 0

    def kill(self) -> None:
        """It is not done any more."""
        self.asked = -1


class Driver:
    """What Spark does with a source, without Spark: offsets go through JSON, batches one by one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reader = MatchReader(settings)
        self.at: dict[str, Any] | None = None
        self.planned: dict[str, Any] | None = None

    def restart(self) -> None:
        """As after a kill: nothing is left but the checkpoint, and what is shared."""
        plans = self.reader._plans
        for each in () if plans is None else (plans.layering.building, plans._indexing):
            if each is not None:  # it outlives whoever asked for it
                each._process.wait()
        self.reader = MatchReader(self.settings)

    def plan(self) -> bool:
        """Fix how far the next batch reads; whether there is one."""
        if self.at is None:
            self.at = _through(self.reader.initialOffset())
        end = _through(self.reader.latestOffset(self.at, ReadAllAvailable()))
        self.planned = None if end == self.at else end
        return self.planned is not None

    def run(self) -> list[tuple[str, str, int]]:
        """The answer of the batch that was planned, sorted; it may run again until it is done."""
        assert self.at is not None
        assert self.planned is not None
        found: list[tuple[str, str, int]] = []
        for task in self.reader.partitions(self.at, self.planned):
            for batch in self.reader.read(task):
                found += zip(*(each.to_pylist() for each in batch.columns), strict=True)
        return sorted(found)

    def done(self) -> None:
        """The batch is in the sink."""
        assert self.planned is not None
        self.at, self.planned = self.planned, None
        self.reader.commit(self.at)


def _through(offset: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(json.dumps(offset))
    return said
