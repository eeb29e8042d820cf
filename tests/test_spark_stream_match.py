"""Matching on a stream: equal to the definition, batch by batch, whatever happens in between."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast.errors import NearcastError, SparkError
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription
from nearcast.spark import match_stream
from nearcast.spark.stream import (
    following,
    layering,
    offsets,
    register,
    served,
    sinks,
    source,
    worker,
)
from nearcast.spark.stream.changes import canonical
from nearcast.spark.stream.offsets import Mark, Offset
from nearcast.spark.stream.running import Run, batches_done, supervise
from nearcast.spark.stream.source import Settings
from tests.naive_joint import NaiveJoint
from tests.naive_stream import Change, NaiveStream
from tests.served import client, feature, make_keys, serving
from tests.stream_cases import Beside, Driver, Histories, write_changes, write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("seed", range(10))
def test_each_batch_answers_as_the_definition_says(tmp_path: Path, monkeypatch, seed: int):
    monkeypatch.setattr(layering, "_LEAST_DELTA", 4)  # bases come and go
    monkeypatch.setattr(worker, "_FEW", 5)
    monkeypatch.setattr(source, "_SEGMENT", 15)  # and remembered events are indexed
    monkeypatch.setattr(source, "_PER_VERSION", seed % 2)
    monkeypatch.setattr(source, "_PASSES", 0)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    chance = random.Random(seed)
    history = Histories(seed)
    events, changes = tmp_path / "events", tmp_path / "changes"
    events.mkdir()
    changes.mkdir()
    remember = chance.choice([1_000_000, 25, 60, 0])
    shared = str(tmp_path / "shared") if chance.random() < 0.7 else None
    driver = Driver(
        Settings(str(events), str(changes), remember=remember, shared=shared, max_rows=1000)
    )
    naive = NaiveStream(remember)
    meanwhile: list[Change] = []
    for number in range(10):
        new_changes, new_events = history.changes(6), history.batch(12)
        if new_changes:
            write_changes(changes, f"c{number:03d}", new_changes)
        new_changes, meanwhile = meanwhile + new_changes, []
        if new_events:
            write_events(events, f"e{number:03d}", new_events)
        if chance.random() < 0.2:
            driver.restart()
        if not driver.plan():
            continue
        if chance.random() < 0.3:
            driver.restart()  # planned, and killed
            meanwhile = history.changes(6)
            if meanwhile:  # they are the next batch's
                write_changes(changes, f"c{number:03d}m", meanwhile)
        found = driver.run()
        assert found == naive.batch(new_changes, new_events), number
        if chance.random() < 0.2:
            driver.restart()  # killed before it was written down
            assert driver.run() == found
        driver.done()
    driver.reader.stop()


@pytest.mark.parametrize("compacted", [True, False])
def test_a_version_is_judged_by_when_it_came_also_after_a_compaction(
    tmp_path: Path, monkeypatch, compacted: bool
):
    """It had expired when it came, so it told nobody; the next one tells."""
    monkeypatch.setattr(layering, "_LEAST_DELTA", 4 if compacted else 1_000)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    events, changes = tmp_path / "e", tmp_path / "c"
    driver = Driver(Settings(str(events), str(changes), shared=str(tmp_path / "s")))
    wants = Subscription("s", where="price < 5", expires=400)
    others = [Change(f"o{n}", 10 + n, Subscription(f"o{n}", where="price > 90")) for n in range(5)]
    write_changes(changes, "c1", [Change("x", 1, Subscription("x", where="price > 9"))])
    write_events(events, "e1", [Event("e", {"price": 1}, end=100)])
    assert _answered(driver) == []
    write_events(events, "e2", [Event("later", {"price": 70}, end=500)])
    assert _answered(driver) == [("later", "x", 1)]
    write_changes(changes, "c2", [Change("s", 2, wants), *others])
    assert _answered(driver) == []
    write_changes(changes, "c3", [Change("s", 30, Subscription("s", where="price < 5"))])
    assert _answered(driver) == [("e", "s", 30)]
    assert driver.reader.plans.layering.register.base is not None or not compacted
    driver.reader.stop()


def test_what_few_change_again_and_again_is_not_kept(tmp_path: Path, monkeypatch):
    """Neither rows that nobody refers to, nor a way from the base that grows for ever."""
    monkeypatch.setattr(layering, "_LEAST_DELTA", 10)
    monkeypatch.setattr(register, "_ROOM", 20)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    driver = Driver(Settings(str(tmp_path / "e"), str(tmp_path / "c"), shared=str(tmp_path / "s")))
    for number in range(40):
        wants = [Subscription(f"s{n}", where=f"price < {number}") for n in range(5)]
        written = [Change(w.id, 5 * number + n + 1, w) for n, w in enumerate(wants)]
        write_changes(tmp_path / "c", f"c{number:02d}", written)
        write_events(tmp_path / "e", f"e{number:02d}", [Event(f"e{number}", {"price": number - 1})])
        found = [pair for pair in _answered(driver) if pair[0] == f"e{number}"]
        assert found == [(f"e{number}", f"s{n}", 5 * number + 5) for n in range(5)]
        known = driver.reader.plans.register
        needed = len(known.current) + sum(map(len, known.before.values()))
        assert known.rows.num_rows <= 2 * needed + 40
    base = driver.reader.plans.register.base
    assert base is not None
    assert base.seq >= 5 * 25
    driver.reader.stop()


def test_rows_that_nobody_refers_to_go():
    known = register.Register()
    for number in range(60):
        table = pa.table({"id": [f"s{n}" for n in range(1000)], "op": ["update"] * 1000,
                          "seq": range(1000 * number, 1000 * number + 1000)})  # fmt: skip
        known.fold(canonical(table, "here"), number, None, False)
        assert known.rows.num_rows <= 2 * len(known.current) + 11_000
    assert known.standing().column("seq").to_pylist() == [*range(59_000, 60_000)]


@pytest.mark.parametrize("seed", range(4))
def test_batches_that_are_put_together_answer_as_apart(tmp_path: Path, monkeypatch, seed: int):
    """A batch of events, many of one kind, and again, past what an offset has room for."""
    monkeypatch.setattr(offsets, "_MOST_BATCHES", 6)
    monkeypatch.setattr(layering, "_LEAST_DELTA", 4)
    monkeypatch.setattr(source, "_SEGMENT", 15)
    monkeypatch.setattr(source, "_PER_VERSION", seed % 2)
    monkeypatch.setattr(source, "_PASSES", 0)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    chance, history = random.Random(seed), Histories(seed)
    for name in ("events", "changes"):
        (tmp_path / name).mkdir()
    shared = str(tmp_path / "shared")
    driver = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "changes"), shared=shared))
    naive = NaiveStream()
    for number in range(24):
        # Now only events for a while, now only changes; both where the kind is another one next.
        kind = number // 4 % 3
        new_changes = history.changes(5) if kind != 1 else []
        new_events = history.batch(8) if kind != 2 else []
        if kind == 0 and number % 4:
            new_changes = []
        if seed % 2 == 0:  # of an id that changes in several the last is what is known
            new_changes = [each._replace(id=f"{each.id}-{number}") for each in new_changes]
            new_changes = [
                each._replace(subscription=w and replace(w, id=each.id))
                for each in new_changes
                for w in [each.subscription]
            ]
        if new_changes:
            write_changes(tmp_path / "changes", f"c{number:03d}", new_changes)
        if new_events:
            write_events(tmp_path / "events", f"e{number:03d}", new_events)
        if seed % 2 == 0 and chance.random() < 0.3:
            driver.restart()
        if not driver.plan():
            continue
        assert driver.run() == naive.batch(new_changes, new_events), number
        driver.done()
        assert driver.at is not None
        assert len(driver.at["past"]) <= 7
    driver.reader.stop()


def test_events_stay_remembered_however_many_batches_change_subscriptions():
    at = Offset.first("j", "", "").then(Mark("e0", "c0", 1000, None), 1_000_000)
    for number in range(1, 5000):
        at = at.then(Mark("e0", f"c{number}", 0, None), 1_000_000)
    assert sum(each.rows for each in at.remembered()) == 1000
    assert len(json.dumps(at.said())) < 200_000
    assert Offset.read(json.loads(json.dumps(at.said())), "j") == at
    for number in range(5000):  # events only, and then both
        at = at.then(Mark(f"e{number + 1}", f"c{5000 + max(0, number - 2500)}", 10, None), 20_000)
    kept = [each.rows for each in at.remembered()]
    assert 19_500 < sum(kept) <= 20_000
    assert max(kept) <= 20_000 // 64
    assert len(kept) <= 4096
    first = [each.first for each in at.remembered()]
    assert first[1:] == [each.batch + 1 for each in at.remembered()[:-1]]


def test_an_offset_from_before_marks_had_numbers_is_read():
    at = Offset.first("j", "", "")
    for number in range(5):
        at = at.then(Mark(f"e{number}", f"c{number}", 10, None), 30)
    said = at.said()
    said["past"] = [each[:4] for each in said["past"]]
    assert Offset.read(said, "j") == at


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_that_is_never_read_is_not_read_later_either(tmp_path: Path, restarts: bool):
    """Not by newcomers, not when a batch runs again, and not after a restart."""
    events, changes = tmp_path / "e", tmp_path / "c"
    driver = Driver(Settings(str(events), str(changes), shared=str(tmp_path / "s")))
    for name in ("c1", "c5"):
        write_changes(changes, name, [Change(name, int(name[1]), Subscription(name))])
    for name in ("e1", "e5"):
        write_events(events, name, [Event(name)])
    assert driver.plan()
    for name in ("e2", "e3", "e4"):  # while it is planned: of several the last ones that came
        write_events(events, name, [Event(name)])
    for name in ("c0", "c2"):
        write_changes(changes, name, [Change(name, 7, Subscription(name))])
    if restarts:
        driver.restart()
    both = [("e1", "c1", 5), ("e1", "c5", 5), ("e5", "c1", 5), ("e5", "c5", 5)]
    assert driver.run() == both
    driver.done()
    write_changes(changes, "c6", [Change("c6", 8, Subscription("c6"))])
    if restarts:
        driver.restart()
    assert _answered(driver) == [("e1", "c6", 8), ("e5", "c6", 8)]
    write_events(events, "e6", [Event("e6")])
    driver.restart()
    assert _answered(driver) == [("e6", "c1", 8), ("e6", "c5", 8), ("e6", "c6", 8)]
    (events / "e1.parquet").unlink()  # what is gone is passed over
    driver.restart()
    write_changes(changes, "c7", [Change("c7", 9, Subscription("c7"))])
    assert driver.plan()
    with pytest.raises(SparkError, match=r"from e2.parquet to e5.parquet.*Take these away"):
        driver.run()
    for name in ("e2", "e3", "e4"):
        (events / f"{name}.parquet").unlink()
    assert driver.run() == [("e5", "c7", 9), ("e6", "c7", 9)]


def test_places_from_before_files_were_counted_go_on(tmp_path: Path):
    events, changes = tmp_path / "e", tmp_path / "c"
    driver = Driver(Settings(str(events), str(changes), shared=str(tmp_path / "s")))
    write_changes(changes, "c1", [Change("c1", 1, Subscription("c1"))])
    write_events(events, "e1", [Event("e1")])
    _answered(driver)
    assert driver.at is not None
    driver.at |= {name: driver.at[name].partition("/")[0] for name in ("events", "changes")}
    driver.restart()
    write_changes(changes, "c2", [Change("c2", 2, Subscription("c2"))])
    write_events(events, "e2", [Event("e2")])
    assert _answered(driver) == [("e1", "c2", 2), ("e2", "c1", 2), ("e2", "c2", 2)]
    assert driver.at["events"] == "e2.parquet"


# --- through Spark --------------------------------------------------------------------------------


def _run(spark: SparkSession, folder: Path, **options: Any) -> None:
    frame = match_stream(
        spark, folder / "events", folder / "changes", shared=folder / "shared", **options
    )
    run = Run(str(folder / "out"), str(folder / "state"), once=True)
    supervise(lambda: run.start(frame), lambda beat: None)


def test_a_stream_that_is_stopped_and_goes_on_through_spark(spark, tmp_path: Path):
    history, naive = Histories(77), NaiveStream()
    expected: list[tuple[str, str, int]] = []
    for folder in ("events", "changes"):
        (tmp_path / folder).mkdir()
    for number in range(2):  # each time a query of its own, from the checkpoint of the last
        new_changes, new_events = history.changes(12), history.batch(30)
        write_changes(tmp_path / "changes", f"c{number}", new_changes)
        write_events(tmp_path / "events", f"e{number}", new_events)
        _run(spark, tmp_path)
        expected += naive.batch(new_changes, new_events)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(tuple, found)) == sorted(expected)
    assert batches_done(str(tmp_path / "state")) == 1


def test_rejected_changes_are_told_and_the_rest_goes_on(tmp_path: Path):
    wants = Subscription("s1", where="price < 50")
    write_changes(
        tmp_path / "changes", "c0",
        [Change("s1", 1, wants), Change("s1", 2, None, bad=True),
         Change("s2", 3, Subscription("s2"))],
    )  # fmt: skip
    write_events(tmp_path / "events", "e0", [Event("e1", attributes={"price": 10})])
    shared = tmp_path / "shared"
    driver = Driver(
        Settings(str(tmp_path / "events"), str(tmp_path / "changes"), shared=str(shared))
    )
    assert driver.plan()
    assert driver.run() == [("e1", "s1", 3), ("e1", "s2", 3)]
    (file,) = (shared / "rejected").glob("changes-*-000000001.jsonl")
    (line,) = file.read_text("utf-8").splitlines()
    said = json.loads(line)
    assert (said["id"], said["seq"]) == ("s1", 2)
    assert "expected a value" in said["reason"]


def test_poison_among_the_events_is_told_and_the_rest_goes_on(tmp_path: Path):
    write_changes(tmp_path / "changes", "c0", [Change("s1", 1, Subscription("s1"))])
    events = pa.table({"id": ["e1", None, "e3", "e4"], "lon": [8.5, 8.5, 400.0, 8.5],
                       "lat": [47.0, 47.0, 47.0, 47.0]})  # fmt: skip
    (tmp_path / "events").mkdir()
    pq.write_table(events, tmp_path / "events" / "e0.parquet")
    shared = tmp_path / "shared"
    driver = Driver(
        Settings(str(tmp_path / "events"), str(tmp_path / "changes"), shared=str(shared))
    )
    assert driver.plan()
    assert driver.run() == [("e1", "s1", 1), ("e4", "s1", 1)]
    (file,) = (shared / "rejected").glob("events-*.jsonl")
    assert [json.loads(line)["id"] for line in file.read_text("utf-8").splitlines()] == [None, "e3"]


def test_plain_subscriptions_never_change(tmp_path: Path):
    folder = tmp_path / "changes"
    folder.mkdir()
    pq.write_table(
        pa.table({"id": ["s1", "s2"], "where": ["price < 5", None]}), folder / "a.parquet"
    )
    write_events(tmp_path / "events", "e0", [Event("e1", attributes={"price": 10})])
    driver = Driver(Settings(str(tmp_path / "events"), str(folder)))
    assert driver.plan()
    assert driver.run() == [("e1", "s2", 0)]
    driver.done()
    pq.write_table(pa.table({"id": ["s3"]}), folder / "b.parquet")
    assert not driver.plan()
    write_events(tmp_path / "events", "e1", [Event("e2", attributes={"price": 1})])
    assert driver.plan()
    assert driver.run() == [("e2", "s1", 0), ("e2", "s2", 0)]


def test_a_checkpoint_of_another_job_is_refused(tmp_path: Path):
    for name in ("events", "changes", "others"):
        (tmp_path / name).mkdir()
    write_events(tmp_path / "events", "e0", [Event("e1")])
    here = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "changes")))
    assert here.plan()
    here.run()
    here.done()
    there = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "others")))
    there.at = here.at
    with pytest.raises(SparkError, match="belongs to another job"):
        there.plan()


def test_a_source_that_vanishes_is_waited_for(tmp_path: Path):
    write_changes(tmp_path / "changes", "c0", [Change("s1", 1, Subscription("s1"))])
    write_events(tmp_path / "events", "e0", [Event("e1")])
    driver = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "changes")))
    (tmp_path / "away").mkdir()
    assert driver.plan()
    assert driver.run() == [("e1", "s1", 1)]
    driver.done()
    write_events(tmp_path / "events", "e1", [Event("e2")])
    (tmp_path / "events").rename(tmp_path / "gone")
    assert not driver.plan()
    (tmp_path / "gone").rename(tmp_path / "events")
    assert driver.plan()
    assert driver.run() == [("e2", "s1", 1)]


def test_a_source_that_stays_away_is_an_error(tmp_path: Path):
    for name in ("events", "changes"):
        (tmp_path / name).mkdir()
    driver = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "changes"), patience_s=0.0))
    assert not driver.plan()
    (tmp_path / "events").rmdir()
    with pytest.raises(FileNotFoundError):
        driver.plan()


def test_a_base_is_built_by_a_process_beside_the_stream(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(layering, "_LEAST_DELTA", 2)
    shared = tmp_path / "shared"
    driver = Driver(
        Settings(str(tmp_path / "events"), str(tmp_path / "changes"), shared=str(shared))
    )
    naive, history = NaiveStream(), Histories(5)
    for number in range(4):
        new_changes, new_events = history.changes(6), history.batch(6)
        write_changes(tmp_path / "changes", f"c{number}", new_changes)
        write_events(tmp_path / "events", f"e{number}", new_events)
        assert driver.plan()
        assert driver.run() == naive.batch(new_changes, new_events)
        driver.done()
        building = driver.reader.plans.layering.building
        if building is not None:
            assert building._process.wait(120) == 0
    assert len(list(shared.glob("*/base-*"))) > 1
    driver.reader.stop()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"space": "flat"}, "space"),
        ({"events": "no-such-folder"}, "events"),
        ({"events": "ftp://somewhere/x"}, "events"),
        ({"changes": "http://key:secret@somewhere"}, "keys and passwords"),
        ({"remember": -1}, "remember"),
        ({"max_rows": 0}, "max_rows"),
        ({"index": "beq-tree"}, "beq-tree"),
    ],
)
def test_what_is_asked_wrongly_is_refused_at_once(spark, tmp_path: Path, settings, said: str):
    given = {"events": tmp_path, "changes": tmp_path} | settings
    with pytest.raises(NearcastError, match=said):
        match_stream(spark, **given)


# --- one folder for all ---------------------------------------------------------------------------


def _answered(driver: Driver) -> list[tuple[str, str, int]]:
    assert driver.plan()
    found = driver.run()
    driver.done()
    return found


def test_jobs_in_one_folder_answer_with_their_own_subscriptions(tmp_path: Path, monkeypatch):
    """Whatever each of them keeps there, and however often one begins anew."""
    monkeypatch.setattr(layering, "_LEAST_DELTA", 4)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    many = [Change(f"a{n}", n + 1, Subscription(f"a{n}")) for n in range(6)]
    write_changes(tmp_path / "ca", "c1", many)
    write_changes(tmp_path / "cb", "c1", [Change("b", 1, Subscription("b"))])
    shared = str(tmp_path / "shared")
    write_events(tmp_path / "e", "e1", [Event("e1")])
    one = Driver(Settings(str(tmp_path / "e"), str(tmp_path / "ca"), shared=shared))
    other = Driver(Settings(str(tmp_path / "e"), str(tmp_path / "cb"), shared=shared))
    again = Driver(one.settings)  # the same job with a checkpoint of its own
    wanted = [("e1", f"a{n}", 6) for n in range(6)]
    assert _answered(one) == wanted
    assert _answered(other) == [("e1", "b", 1)]
    other.restart()
    write_events(tmp_path / "e", "e2", [Event("e2")])
    assert _answered(other) == [("e2", "b", 1)]
    assert one.plan()
    assert one.at is not None
    assert one.planned is not None
    tasks = one.reader.partitions(one.at, one.planned)
    assert len(_answered(again)) == 12
    other.restart()
    write_events(tmp_path / "e", "e3", [Event("e3")])
    follows = following.Follower(str(tmp_path / "cb"), None, Path(shared), "globe", "auto", {})
    follows.step()
    assert _answered(other) == [("e3", "b", 1)]
    assert following.newest(follows.root)[1].base is None
    for driver in (other, again):
        driver.reader.stop()
    found = [pair for task in tasks for batch in one.reader.read(task) for pair in zip(
        *(each.to_pylist() for each in batch.columns), strict=True)]  # fmt: skip
    assert sorted(found) == [("e2", f"a{n}", 6) for n in range(6)]
    one.reader.stop()
    follows.close()


def test_a_checkpoint_from_before_checkpoints_had_names_goes_on(tmp_path: Path):
    write_changes(tmp_path / "c", "c0", [Change("s1", 1, Subscription("s1"))])
    write_events(tmp_path / "e", "e0", [Event("e1")])
    driver = Driver(Settings(str(tmp_path / "e"), str(tmp_path / "c"), shared=str(tmp_path / "s")))
    assert _answered(driver) == [("e1", "s1", 1)]
    assert driver.at is not None
    driver.at = _earlier(driver.at)
    driver.restart()
    write_changes(tmp_path / "c", "c1", [Change("s2", 2, Subscription("s2"))])
    write_events(tmp_path / "e", "e1", [Event("e2")])
    assert driver.plan()
    expected = [("e1", "s2", 2), ("e2", "s1", 2), ("e2", "s2", 2)]
    assert driver.run() == expected
    driver.restart()
    assert driver.run() == expected
    driver.done()


def _earlier(said: dict[str, Any]) -> dict[str, Any]:
    """An offset as it was written down at first."""
    return {name: value for name, value in said.items() if name != "run"}


# --- a server's log -------------------------------------------------------------------------------


def test_events_and_subscriptions_of_a_server(tmp_path: Path, monkeypatch):
    file = tmp_path / "n.db"
    (key,) = make_keys(file, {"role": "admin"})
    monkeypatch.setenv("NEARCAST_KEY", key)
    monkeypatch.setattr(served, "_PAGE", 3)
    with serving(file) as server, client(server, key) as http:
        settings = Settings(server.url, server.url, shared=str(tmp_path / "shared"))
        driver = Driver(settings)
        naive = NaiveJoint()
        said = {"subscriber": "ann", "filters": [{"cql2": "price < 50"}]}
        assert http.put("/v1/subscriptions/s1", json=said).status_code in (200, 201)
        posted = [feature(f"e{n}", price=10 * n) for n in range(8)]
        assert http.post("/v1/events", json=collected(posted)).status_code == 200
        cheap = Change("s1", 1, Subscription("s1", where="price < 50"))
        first = [Event(f"e{n}", attributes={"price": 10 * n}) for n in range(8)]
        assert driver.plan()
        assert driver.run() == naive.entries([cheap, *first])
        driver.done()
        assert http.put("/v1/subscriptions/s2", json=said).status_code in (200, 201)
        assert http.delete("/v1/subscriptions/s1").status_code == 204
        assert http.post("/v1/events", json=feature("e8", price=5)).status_code == 200
        driver.restart()
        assert driver.plan()
        late = Change("s2", 2, Subscription("s2", where="price < 50"))
        expected = naive.entries([late, Change("s1", 3), Event("e8", attributes={"price": 5})])
        assert driver.run() == expected
        for spooled in (tmp_path / "shared").glob("*/spool/*"):
            spooled.unlink()  # a cache: it is read again
        driver.restart()
        assert driver.run() == expected
        driver.done()
        assert not driver.plan()
        assert driver.reader.reportLatestOffset() == {"behind": 0}
    assert key not in json.dumps(driver.at)


def collected(features: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": features}


def test_a_row_goes_into_a_server_once(tmp_path: Path):
    rows = [{"event_id": "e1", "subscription_id": "s1", "version": 3}]
    with serving(tmp_path / "n.db") as server, client(server) as http:
        for _ in range(2):
            sinks.post(server.url, [sinks.row_event(row) for row in rows], None)
        (event,) = http.get("/v1/log").json()["events"]
        assert event["data"]["properties"] == rows[0]
