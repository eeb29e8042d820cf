"""The demo's stream: the city's taxis as they report, subscriptions changing under it, patterns.

Two queries of Spark's read the same folder of reports, a file a batch: one matches them against
subscriptions that move, come and go meanwhile, one looks for the two patterns of taxis.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.bench.story import Chapter
from nearcast.bench.tables import Grid
from nearcast.cli.console import watching
from nearcast.cli.patterns import Shift
from nearcast.cli.sections import Scene
from nearcast.cpsl.detector import Detector
from nearcast.datasets.city import City
from nearcast.datasets.streams import generator
from nearcast.matcher import Matcher
from nearcast.model.codec import events_to_arrow, subscriptions_to_arrow
from nearcast.model.events import Event
from nearcast.model.geometry import Circle
from nearcast.model.subscriptions import Subscription

__all__ = ["streaming"]

_CABS, _PEOPLE, _BATCHES, _CHANGED = 60, 2000, 4, 0.02
_REACH_M = 400.0
_FREE = "change = 'released'"
_DAY = 86_400_000_000
_SHARDS = 2
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PARTITIONS = "spark.sql.shuffle.partitions"


def streaming(scene: Scene) -> Chapter:
    """Match and detect on a stream; a matcher and a detector of this process must find the same."""
    with watching(quiet=scene.quiet) as say:
        say("starting Spark …")
        spark = scene.spark.session()
        say("writing down what the taxis report …")
        with _Feed(scene).open() as feed:
            say("reports past subscriptions that change …")
            beats, pairs = feed.match(spark)
            say("the same reports past two patterns …")
            found, messages = feed.detect(spark)
            lines = feed.told(beats, pairs, found, messages)
    for line in lines:
        scene.console.print(line, markup=False)
    rows = [
        (str(b.batch), f"{b.rows_in:,}", f"{b.rows_out:,}", f"{b.seconds:.1f} s")
        for b in beats
    ]  # fmt: skip
    grid = Grid("batches", ("batch", "reports", "told", "took"), tuple(rows))
    short = (
        f"{len(feed.shift.events):,} reports past {feed.people:,} subscriptions, "
        f"{feed.changes:,} of them changed meanwhile; two patterns found {len(found):,} times"
    )
    return Chapter("Taxis as a stream", lines, short, [grid])


@dataclass
class _Feed:
    """Reports and changes in folders, and what is to be found in them."""

    scene: Scene

    def __post_init__(self) -> None:
        scale = min(self.scene.scale, 10.0)
        self.shift = Shift(City(seed=self.scene.seed), max(2, round(_CABS * scale)))
        self.people = max(10, round(_PEOPLE * scale))
        self.home = Path()
        self.log: list[list[tuple[str, Subscription | None]]] = []

    @property
    def changes(self) -> int:
        """After the first batch."""
        return sum(map(len, self.log[1:]))

    @contextmanager
    def open(self) -> Iterator[_Feed]:
        """The files, as long as they are needed."""
        self.home = Path(tempfile.mkdtemp(prefix="nearcast-demo-"))
        try:
            for name in ("events", "changes", "reports"):
                (self.home / name).mkdir()
            self._write()
            yield self
        finally:
            shutil.rmtree(self.home, ignore_errors=True)

    @cached_property
    def parts(self) -> list[list[Event]]:
        """The reports of each batch."""
        size = -(-len(self.shift.events) // _BATCHES)
        return [self.shift.events[at : at + size] for at in range(0, size * _BATCHES, size)]

    def _write(self) -> None:
        rng = generator(self.scene.seed, "people of the demo's stream")
        area = self.shift.city.hot_areas
        where = rng.integers(0, len(area.lon), self.people)
        first = [self._person(rng, area, number, int(at)) for number, at in enumerate(where)]
        self.log = [[(each.id, each) for each in first]]
        for _ in range(_BATCHES - 1):
            chosen = rng.choice(self.people, max(2, round(_CHANGED * self.people)), replace=False)
            self.log.append(
                [
                    (f"p{number}", None if rng.random() < 0.2 else
                     self._person(rng, area, number, int(rng.integers(0, len(area.lon)))))
                    for number in chosen.tolist()
                ]
            )  # fmt: skip
        seq = 1
        for number, (changes, events) in enumerate(zip(self.log, self.parts, strict=True)):
            table = subscriptions_to_arrow([new or Subscription(id) for id, new in changes])
            ops = ["remove" if new is None else "update" for _, new in changes]
            table = table.append_column("op", pa.array(ops))
            numbers = pa.array(range(seq, seq + len(changes)), pa.int64())
            pq.write_table(table.append_column("seq", numbers), self._at("changes", number))
            seq += len(changes)
            pq.write_table(events_to_arrow(events), self._at("events", number))
            pq.write_table(self._placed(events), self._at("reports", number))
        end = self.shift.until + _DAY
        beat = Event(
            "beat", {"taxi": "nobody", "change": None}, location=events[-1].location, end=end
        )
        pq.write_table(self._placed([beat, *events]).slice(0, 1), self._at("reports", _BATCHES))

    def _at(self, folder: str, number: int) -> Path:
        return self.home / folder / f"{number:04}.parquet"

    @cached_property
    def _places(self) -> dict[str, int]:
        return {event.id: at for at, event in enumerate(self.shift.events)}

    def _placed(self, events: list[Event]) -> pa.Table:
        """With the order of what happens at one instant."""
        offsets = [self._places.get(event.id, len(self._places)) for event in events]
        return events_to_arrow(events).append_column("offset", pa.array(offsets, pa.int64()))

    def _person(self, rng: Any, area: Any, number: int, at: int) -> Subscription:
        """Somebody who waits for a free taxi near a busy place."""
        lon, lat = area.lon[at] + rng.normal(0, 0.004), area.lat[at] + rng.normal(0, 0.003)
        return Subscription(
            f"p{number}", f"p{number}", _FREE, region=Circle(float(lon), float(lat), _REACH_M)
        )

    # -- the queries --

    def match(self, spark: Any) -> tuple[list[Any], set[tuple[str, str]]]:
        """(what each batch did, the pairs)."""
        from nearcast.spark import match_stream
        from nearcast.spark.stream.running import Run, supervise

        beats: list[Any] = []
        run = Run(str(self.home / "told"), str(self.home / "state"), once=True)

        def start() -> Any:
            frame = match_stream(
                spark, self.home / "events", self.home / "changes", remember=0, max_rows=1,
                max_changes=1, shared=self.home / "shared",
            )  # fmt: skip
            return run.start(frame)

        supervise(start, beats.append)
        rows = spark.read.parquet(str(self.home / "told")).collect()
        return beats, {(row["event_id"], row["subscription_id"]) for row in rows}

    def detect(self, spark: Any) -> tuple[set[tuple[str, tuple[str, ...]]], int]:
        """(the patterns that were found, with their reports; the messages to shards)."""
        from nearcast.spark import detect
        from nearcast.spark.stream.running import Run, supervise

        messages: list[int] = []

        def tell(beat: Any) -> None:
            sent = beat.details.get("observedMetrics", {}).get("nearcast_sent") or {}
            messages.append(sent.get("messages") or 0)

        with _set(spark.conf, {_PROVIDER: _ROCKS, _PARTITIONS: str(_SHARDS)}):
            schema = spark.read.parquet(str(self.home / "reports")).schema
            run = Run(str(self.home / "found"), str(self.home / "shards"), once=True)

            def start() -> Any:
                given = spark.readStream.schema(schema).parquet(str(self.home / "reports"))
                frame = detect(given, list(self.shift.composites.values()), 1, shards=_SHARDS)
                return run.start(frame)

            supervise(start, tell)
            rows = spark.read.parquet(str(self.home / "found")).collect()
        return {(r["composite_id"], tuple(r["event_ids"])) for r in rows}, sum(messages)

    # -- what is to be found --

    def pairs(self) -> set[tuple[str, str]]:
        """By a matcher that is changed between the batches."""
        matcher = Matcher()
        found: set[tuple[str, str]] = set()
        for changes, events in zip(self.log, self.parts, strict=True):
            for id, new in changes:
                if id in matcher:
                    matcher.remove_subscription(id)
                if new is not None:
                    matcher.add_subscriptions([new])
            table = matcher.match_events(events_to_arrow(events))
            found |= set(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return found

    def patterns(self) -> set[tuple[str, tuple[str, ...]]]:
        """By one detector."""
        detector = Detector()
        for composite in self.shift.composites.values():
            detector.add(composite)
        found = detector.feed(self.shift.events)
        found += detector.advance(self.shift.until + _DAY - 2_000_000)
        return {(each.composite_id, tuple(each.parts)) for each in found}

    def told(
        self, beats: list[Any], pairs: set[Any], found: set[Any], messages: int
    ) -> list[str]:  # fmt: skip
        """What it came to, checked."""
        events, seconds = len(self.shift.events), sum(beat.seconds for beat in beats)
        return [
            f"\n{self.shift.cabs:,} taxis, {events:,} reports in {len(beats)} batches past "
            f"{self.people:,} people who wait for a free one, {self.changes:,} of whom move, come "
            f"or go meanwhile: {len(pairs):,} told in {seconds:.1f} s. A matcher that is changed "
            f"between the batches finds {_verdict(pairs == self.pairs())}.",
            f"Two patterns on {_SHARDS} shards: {len(found):,} found, a detector of this process "
            f"finds {_verdict(found == self.patterns())}; {messages:,} messages went to shards, "
            f"where sending everything everywhere takes {_SHARDS * events:,}.",
        ]


def _verdict(same: bool) -> str:
    return "the very same" if same else "NOT THE SAME"


@contextmanager
def _set(conf: Any, wanted: dict[str, str]) -> Iterator[None]:
    """Settings of a session, as they were afterwards."""
    before = {name: conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                conf.unset(name)
            else:
                conf.set(name, value)
