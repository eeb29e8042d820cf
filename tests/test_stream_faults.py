"""Patterns and fences on a stream when something is odd: time that jumps or stands, poison."""

from __future__ import annotations

import pickle
from dataclasses import replace
from email.message import Message
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import Box, Composite, Event, Fence, Point, Subscription
from nearcast.clock import FOREVER, NEVER
from nearcast.cpsl.shards import deal
from nearcast.errors import ServerError, SparkError, ValidationError
from nearcast.fences.history import Standing
from nearcast.model.codec import event_to_json, events_to_arrow
from nearcast.spark.crossings import Crossings, CrossingsOf, PositionPacks
from nearcast.spark.detections import Detections, DetectionsOf
from nearcast.spark.keeping import Job, Keeping
from nearcast.spark.keeping import _kept as keepers
from nearcast.spark.packs import Pack, firsts_of, packed, read_table, unpacked
from nearcast.spark.positions import Layout, PositionPacking
from nearcast.spark.primitives import PrimitivePacking, dealt_table
from nearcast.spark.shipping import ship_matcher, ship_table
from nearcast.spark.spreading import keys_of
from nearcast.spark.stream import sinks
from nearcast.spark.stream.folder import EventFolder
from nearcast.spark.stream.patience import Patience
from nearcast.spark.stream.served import EventLog
from nearcast.spark.stream.source import Settings
from nearcast.spark.transitions import standing_to_table
from tests.naive_stream import Change
from tests.patterned import EPOCH, SECOND
from tests.stream_cases import Driver, write_changes

NO_SPARK: Any = None
ALONE = Composite("alone", text='!((STRING: kind = "a"); PT10S)(STRING: kind = "b")')
PAIRED = Composite("paired", text='=|((STRING: kind = "a"); PT10S)(STRING: kind = "b")')
LEFT = Fence("left", "ops", "who", Box(0, 0, 10, 10), on={"enter", "lost"}, lost=9)


def at(second: float, kind: str = "a", **more: Any) -> Event:
    return Event(
        f"e{second}", {"kind": kind, "who": "w"}, location=Point(5, 5),
        end=EPOCH + int(second * SECOND), **more,
    )  # fmt: skip


def beat(second: float) -> pa.Table:
    """What an idle source says."""
    end = pa.array([EPOCH + int(second * SECOND)], pa.timestamp("us", tz="UTC"))
    return pa.table({"id": pa.array([None], pa.string()), "end": end, "heartbeat": [True]})


class Shard:
    """One shard as a worker keeps it, with a watermark that is what was seen less a second."""

    def __init__(self, pack: Any, open_keeper: Any) -> None:
        self.pack, self.open = pack, open_keeper
        self.keeper: Any = open_keeper()
        self.seen, self.late = NEVER, 0

    def batch(self, *given: Event | pa.Table) -> list[dict[str, Any]]:
        """What a batch tells, and the one without data behind it."""
        events = [each for each in given if isinstance(each, Event)]
        tables = [each for each in given if not isinstance(each, Event)]
        tables += [events_to_arrow(events)] if events else []
        packs = [row for table in tables for made in self.pack(table) for row in made.to_pylist()]
        closed = NEVER if self.seen == NEVER else self.seen - SECOND
        told = self._taken(unpacked(packs), closed)
        self.seen = max([self.seen, *(pack["last"] for pack in packs)])
        return told + self._taken([], self.seen - SECOND if self.seen > NEVER else NEVER)

    def _taken(self, packs: list[Any], closed: int) -> list[dict[str, Any]]:
        found = self.keeper.take(packs, closed)
        self.late += self.keeper.counted()[0]
        saved, self.keeper = self.keeper.save(), self.open()  # another worker goes on with it
        self.keeper.load(saved)
        return [] if found is None else read_table(found).to_pylist()


def patterns(folder: Path, *wanted: Composite) -> Shard:
    dealt = deal(wanted or [ALONE, PAIRED], 1, "planar")
    matcher = ship_matcher(NO_SPARK, dealt.matcher, str(folder))
    table = ship_table(NO_SPARK, dealt_table(dealt), str(folder))
    packing = PrimitivePacking(matcher, table, (5,), "planar", None, False)
    return Shard(packing.pack, lambda: DetectionsOf(table).open(0))


def fences(folder: Path, wanted: Fence = LEFT, until: int = FOREVER) -> Shard:
    standing, filters = Standing.of([wanted], "planar")
    judge = None if filters is None else ship_matcher(NO_SPARK, filters, str(folder))
    layout = Layout("string", ())
    shipped = ship_table(NO_SPARK, standing_to_table(standing, ["left"]), str(folder))
    packing = PositionPacking(standing.keys, judge, layout, "planar", False, 1, until)
    work = PositionPacks(packing, (5,))
    opener = CrossingsOf(shipped, "these", layout, "planar", until)
    return Shard(lambda table: work(iter(table.to_batches())), lambda: Crossings(opener))


def test_a_clock_that_jumps_makes_late_what_comes_before_it_and_no_more(tmp_path: Path) -> None:
    shard = patterns(tmp_path)
    shard.batch(at(0), at(1, "c"))
    told = shard.batch(at(86_400, "c"))  # a day ahead
    assert [row["composite_id"] for row in told] == ["alone"]
    assert shard.batch(at(2), at(3, "b")) == []
    assert shard.late == 2
    shard.batch(at(86_401), at(86_402, "b"))  # until time has come there
    told = shard.batch(at(86_410, "c"))
    assert [(row["composite_id"], row["event_ids"]) for row in told] == [
        ("paired", ["e86401", "e86402"])
    ]
    assert shard.late == 2


@pytest.mark.parametrize("made", [patterns, fences])
def test_an_idle_hour_ends_with_a_heartbeat(tmp_path: Path, made: Any) -> None:
    shard = made(tmp_path)
    assert shard.batch(beat(-50)) == []  # before any event
    first = shard.batch(at(0), at(2, "c"))
    assert {row.get("transition") for row in first} <= {"enter"}
    assert shard.batch() == []
    told = shard.batch(beat(3), beat(30))
    names = [row.get("composite_id") or row["transition"] for row in told]
    assert names in (["alone"], ["lost"])
    assert shard.batch(beat(3600)) == []
    assert shard.late == 0


def test_periods_count_from_an_event(tmp_path: Path) -> None:
    """And not from a heartbeat before it."""
    shard = patterns(tmp_path, Composite("every", text='P(7)(STRING: kind = "a")'))
    shard.batch(beat(-3))
    shard.batch(at(0), at(1), at(5))
    told = shard.batch(at(20, "c"))
    assert [row["event_ids"] for row in told] == [["e0", "e1", "e5"]]


def test_periods_count_from_the_first_that_is_not_late(tmp_path: Path) -> None:
    """Whatever late ones came together with it, and though time was known before."""
    for folder, known in ((tmp_path / "a", beat(6)), (tmp_path / "b", at(5.5))):
        shard = patterns(folder, Composite("every", text='P(7)(STRING: kind = "a")'))
        shard.batch(known, at(6, "c"))
        shard.batch(at(1), at(5.2), at(4), at(5.3))
        assert shard.late == 2
        told = shard.batch(at(12.3), at(30, "c"))
        ids = ["e5.2", "e5.3"] + ["e5.5"] * (folder.name == "b")
        assert [row["event_ids"] for row in told] == [ids, ["e12.3"]]


@given(st.lists(st.integers(-5, 5_000), min_size=1), st.integers(-2, 6))
def test_the_first_after_a_watermark_is_that_of_all(ends: list[int], watermark_ms: int) -> None:
    closed = watermark_ms * 1000
    pack = Pack(min(ends), max(ends), None, firsts_of(np.array(ends)))
    assert pack.first_after(closed) == min([end for end in ends if end > closed], default=FOREVER)


def test_what_is_before_until_is_told_when_time_has_passed_it(tmp_path: Path) -> None:
    shard = fences(tmp_path, until=EPOCH + 10 * SECOND)
    assert shard.batch(at(9.5)) == []
    told = shard.batch(at(30))
    assert [(row["transition"], row["event_id"]) for row in told] == [("enter", "e9.5")]
    assert shard.batch(at(60)) == []


@pytest.mark.parametrize(
    "other",
    [
        at(20, "b"),
        Event("nobody", {"kind": "a"}, location=Point(5, 5), end=EPOCH + 20 * SECOND),
        Event("nowhere", {"kind": "a", "who": "w"}, end=EPOCH + 20 * SECOND),
    ],
    ids=["refused", "nobody's", "nowhere"],
)
def test_time_goes_on_with_events_that_no_fence_counts(tmp_path: Path, other: Event) -> None:
    shard = fences(tmp_path, replace(LEFT, where="kind = 'a'"))
    shard.batch(at(0), at(1))
    assert [row["transition"] for row in shard.batch(other)] == ["lost"]


def test_time_stands_where_no_row_is_good(tmp_path: Path) -> None:
    """And what is bad is no clock either, beside rows that are good."""
    shard = fences(tmp_path)
    bad = events_to_arrow([at(3600)])
    bad = bad.set_column(bad.column_names.index("id"), "id", pa.array([None], pa.string()))
    assert shard.batch(bad) == []
    assert shard.seen == NEVER
    assert [row["transition"] for row in shard.batch(at(0), at(2), bad)] == ["enter"]
    assert shard.seen == EPOCH + 2 * SECOND


def test_positions_that_are_none_are_left_out(tmp_path: Path) -> None:
    shard = fences(tmp_path)
    poison = events_to_arrow([at(1), at(2), at(3)])
    places = pa.array([5.0, float("nan"), 5.0])
    poison = poison.set_column(poison.column_names.index("lon"), "lon", places)
    ids = pa.array(["e1", "e2", None], pa.string())
    poison = poison.set_column(poison.column_names.index("id"), "id", ids)
    told = shard.batch(poison, at(20, "c"))
    assert [(row["transition"], row["event_id"]) for row in told][:1] == [("enter", "e1")]


def test_events_that_are_none_are_left_out(tmp_path: Path) -> None:
    shard = patterns(tmp_path)
    poison = events_to_arrow([at(1), at(2), at(3, "b")])
    ids = pa.array(["e1", None, "e3"], pa.string())
    poison = poison.set_column(poison.column_names.index("id"), "id", ids)
    told = shard.batch(poison, at(40, "c"))
    assert [(row["composite_id"], row["event_ids"]) for row in told] == [("paired", ["e1", "e3"])]
    with pytest.raises(ValidationError, match="end"):
        shard.batch(poison.set_column(poison.column_names.index("end"), "end", ids))


class Store:
    """Spark's state store, for shards that come and go: what a checkpoint has."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], Any] = {}

    def turn(self, keeping: Keeping, rows: list[dict[str, Any]], watermark_s: float) -> list[Any]:
        """A batch."""
        told: list[Any] = []
        keepers.clear()  # another worker has it
        for key in sorted({row["shard"] for row in rows}):
            of_key = SimpleNamespace(
                getValueState=lambda name, _, key=key: SimpleNamespace(
                    exists=lambda: (name, key) in self.values,
                    get=lambda: self.values[name, key],
                    update=lambda value: self.values.update({(name, key): value}),
                ),
                registerTimer=lambda _: None, deleteTimer=lambda _: None,
            )  # fmt: skip
            timers = SimpleNamespace(getCurrentWatermarkInMs=lambda: int(watermark_s * 1000))
            keeping.init(of_key)
            mine = [row for row in rows if row["shard"] == key]
            told += keeping.handleInputRows((key,), iter(mine), timers)
        return told


@pytest.mark.parametrize(
    ("shards", "partitions", "then"),
    [(4, 4, (4, 2)), (4, 2, (4, 4)), (1, 4, (1, 2)), (4, 4, (2, 4)), (2, 2, (8, 8))],
)
def test_other_shards_or_partitions_than_the_checkpoint_has_are_refused(
    tmp_path: Path, shards: int, partitions: int, then: tuple[int, int]
) -> None:
    """Keys follow from them: a shard would find nothing under its own, or another one's state."""
    store = Store()

    def batch(second: float, shards: int, partitions: int) -> list[Any]:
        keys = keys_of(shards, partitions)
        standing, _ = Standing.of([LEFT], "planar")
        layout = Layout("string", ())
        shipped = ship_table(NO_SPARK, standing_to_table(standing, ["left"]), str(tmp_path))
        packing = PositionPacking(standing.keys, None, layout, "planar", False, shards, FOREVER)
        opener = CrossingsOf(shipped, "these", layout, "planar", FOREVER)
        keeping = Keeping(opener, Job("fences", partitions, tuple(keys)))
        work = PositionPacks(packing, tuple(keys))
        rows = [row for each in work(iter(events_to_arrow([at(second)]).to_batches()))
                for row in each.to_pylist()]  # fmt: skip
        return store.turn(keeping, rows, EPOCH / SECOND + second - 1.5)

    batch(0, shards, partitions)
    batch(1, shards, partitions)
    before = dict(store.values)
    with pytest.raises(ValidationError, match=r"spark\.sql\.shuffle\.partitions"):
        batch(2, *then)
    assert store.values == before
    (told,) = batch(2, shards, partitions)
    (row,) = read_table(told["told"]).to_pylist()
    assert (row["transition"], row["event_id"]) == ("enter", "e0")


def test_a_checkpoint_of_another_job_is_refused(tmp_path: Path) -> None:
    """Its state as well, where time alone has come to something, and so no word of the job."""
    opener = DetectionsOf(ship_table(NO_SPARK, dealt_table(deal([ALONE], 1)), str(tmp_path)))
    store = Store()
    rows = packed({}, (7,), EPOCH, EPOCH, 1).to_pylist()
    store.turn(Keeping(opener, Job("detect", 4, (7,))), rows, 0)
    other = Keeping(opener, Job("fences", 4, (7,)))
    for these in (rows, [row for row in rows if row["shard"] == 7]):
        with pytest.raises(ValidationError, match="made by detect") as refused:
            store.turn(other, these, 1)
        assert refused.value.field == "checkpoint"
    with pytest.raises(ValidationError, match="other shards or partitions"):
        other.handleExpiredTimer((8,), None, None).__next__()
    store.values["saved", 7] = (pickle.dumps((1, b"", 0, 0, None)),)
    with pytest.raises(ValidationError, match="start a new one"):
        store.turn(Keeping(opener, Job("detect", 4, (7,))), rows, 1)


def test_a_log_that_has_let_go_of_unread_events_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is left of it; what was read before may be gone."""
    there, forgotten = [91, 92], 90

    def answer(url: str, _: object) -> Any:
        after = int(parse_qs(urlparse(url).query)["after"][0])
        found = [event_to_json(at(n)) | {"offset": n} for n in there if n > after]
        next = there[-1] if found else after
        return {"events": found, "next": next, "last": 92, "forgotten": forgotten}

    monkeypatch.setattr(sinks, "request", answer)
    log = EventLog("http://h", None, tmp_path)
    for start in (90, 0):
        assert log.latest(start, None, None) == (92, 2)
    with pytest.raises(ServerError, match="new checkpoint"):
        log.latest(50, None, None)
    there, forgotten = [], 92
    with pytest.raises(ServerError, match="new checkpoint"):
        log.latest(90, None, None)
    assert log.latest(92, None, None) == (92, 0)


@pytest.mark.parametrize(
    ("name", "column"),
    [("expires", ["tomorrow"]), ("end", [1.5]), ("keywords", ["sale"]), ("lon", [True])],
)
def test_a_file_of_other_types_is_refused_before_anybody_needs_them(
    tmp_path: Path, name: str, column: list[Any]
) -> None:
    """At once: to ask for it again would change nothing."""
    write_changes(tmp_path / "changes", "c1", [Change("a", 1, Subscription("a"))])
    (tmp_path / "events").mkdir()
    pq.write_table(pa.table({"id": ["e1"], name: column}), tmp_path / "events" / "e1.parquet")
    driver = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "changes")))
    with pytest.raises(SparkError, match=rf"e1\.parquet: {name}: "):
        driver.plan()


def test_what_is_waited_for_is_silence_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(error: Exception) -> Exception:
        monkeypatch.setattr("urllib.request.urlopen", raising(error))
        with pytest.raises(ServerError) as raised:
            sinks.request("http://h/v1/log", None)
        return raised.value

    def refused(code: int) -> Exception:
        return told(HTTPError("http://h", code, "", Message(), BytesIO(b"{}")))

    (tmp_path / "e1.parquet").write_text("no Parquet")
    with pytest.raises(SparkError, match="cannot be read") as poison:
        EventFolder(str(tmp_path), "events").latest("", None, None)
    for error in (told(TimeoutError()), refused(503), refused(429), FileNotFoundError("e1")):
        assert Patience(60).lasts(error)
        assert not Patience(0).lasts(error)
    for error in (refused(401), ServerError("it is another log"), poison.value):
        assert not Patience(60).lasts(error)


def raising(error: Exception) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


def test_a_state_of_another_release_is_refused(tmp_path: Path) -> None:
    shard = patterns(tmp_path)
    shard.batch(at(0))
    said = pickle.loads(shard.keeper.save())
    with pytest.raises(ValidationError, match="start a new one"):
        shard.keeper.load(pickle.dumps((said[0] + 1, *said[1:])))
    other = Detections(shard.keeper._shard)
    other.load(pickle.dumps(said))
    assert other.due == shard.keeper.due
