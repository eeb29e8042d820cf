"""Any stream of events, subscriptions that change: each batch sees one version, and says which."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from nearcast.errors import SparkError, ValidationError
from nearcast.model.codec import events_to_arrow
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription
from nearcast.spark import match
from nearcast.spark.stream import following, layering
from nearcast.spark.stream.following import Follower, pinned
from nearcast.spark.stream.running import Run, supervise
from nearcast.spark.stream.worker import Arrivals, Layers
from tests.naive_stream import Change, NaiveStream
from tests.stream_cases import Beside, Histories, write_changes, write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _matched(layers: Layers, events: list[Event], root: Path) -> list[tuple[Any, ...]]:
    task = Arrivals([], layers, "globe", str(root / "rejected"))
    found: list[tuple[Any, ...]] = []
    if events:
        for batch in task.matched(events_to_arrow(events), 1, "here"):
            found += zip(*(each.to_pylist() for each in batch.columns), strict=True)
    return sorted(found)


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_sees_the_version_that_was_there_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(layering, "_LEAST_DELTA", 3)  # bases come and go
    monkeypatch.setattr(following, "_KEPT_S", -1.0)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    chance, history = random.Random(seed), Histories(seed)
    changes = tmp_path / "changes"
    changes.mkdir()
    naive = NaiveStream(0)

    def follower() -> Follower:
        made = Follower(str(changes), None, tmp_path / "shared", "globe", "auto", {})
        made.step()
        return made

    follows = follower()
    root = follows.root
    for number in range(8):
        new, events = history.changes(6), history.batch(12)
        if new:
            write_changes(changes, f"c{number:03d}", new)
        assert follows.step() == bool(new)
        expected = naive.batch(new, events)
        assert _matched(pinned(root, "q", str(number)), events, root) == expected
        if chance.random() < 0.5:  # more comes while the batch runs, or before it runs again
            new = history.changes(6) or [Change("s1", history.seq + 1)]
            history.seq = max(history.seq, *(each.seq for each in new))
            write_changes(changes, f"c{number:03d}m", new)
            naive.batch(new, [])
            follows.step()
        if chance.random() < 0.3:  # and after a kill
            follows.close()
            follows = follower()
        assert _matched(pinned(root, "q", str(number)), events, root) == expected
    assert len(list((root / "pins").iterdir())) <= 6
    follows.close()


def _change(tmp_path: Path, follows: Follower, name: str) -> None:
    number = int(name)
    write_changes(tmp_path / "c", name, [Change(name, number, Subscription(name))])
    follows.step()


def test_a_version_that_goes_while_it_is_chosen_is_chosen_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c").mkdir()
    follows = Follower(str(tmp_path / "c"), None, tmp_path / "shared", "globe", "auto", {})
    root = follows.root
    _change(tmp_path, follows, "1")
    look = following.newest

    def slow(folder: Path) -> tuple[str, Layers]:
        """It takes so long that what it found is removed."""
        found = look(folder)
        monkeypatch.setattr(following, "newest", look)
        for number in range(2, 6):
            _change(tmp_path, follows, str(number))
        return found

    monkeypatch.setattr(following, "newest", slow)
    monkeypatch.setattr(following, "_KEPT_S", -1.0)
    layers = pinned(root, "q", "7")
    assert layers.version == 5
    for number in range(6, 10):
        _change(tmp_path, follows, str(number))
    assert pinned(root, "q", "7").version == 5  # and the same again
    assert _matched(layers, [Event("e")], tmp_path) == [("e", str(n), 5) for n in range(1, 6)]
    follows.close()


def test_the_newest_versions_stay_however_old_they_are(tmp_path: Path) -> None:
    """Who has looked just before there is a newer one has a minute to write down which."""
    (tmp_path / "c").mkdir()
    follows = Follower(str(tmp_path / "c"), None, tmp_path / "shared", "globe", "auto", {})
    root = follows.root
    for number in range(1, 5):
        _change(tmp_path, follows, str(number))
    for path in (root / "versions").iterdir():
        os.utime(path, (1, 1))  # the last change came long ago
    name, layers = following.newest(root)
    _change(tmp_path, follows, "5")
    assert len([*(root / "versions").iterdir()]) == 3
    for number in range(6, 9):
        _change(tmp_path, follows, str(number))
    assert (root / "versions" / name).exists()
    assert len(_matched(layers, [Event("e")], tmp_path)) == 4
    follows.close()


def test_followers_in_one_folder_have_versions_of_their_own(tmp_path: Path) -> None:
    followers = []
    for name in ("a", "b"):
        write_changes(tmp_path / name, "1", [Change(name, 1, Subscription(name))])
        made = Follower(str(tmp_path / name), None, tmp_path / "shared", "globe", "auto", {})
        made.step()
        followers.append(made)
    for follows, name in zip(followers, "ab", strict=True):
        layers = pinned(follows.root, "q", "0")
        assert _matched(layers, [Event("e")], tmp_path) == [("e", name, 1)]
        follows.close()


def test_a_log_is_followed_by_one_process_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    about: Any = (str(tmp_path / "c"), None, tmp_path / "shared", "globe", "auto", {})
    first = Follower(*about)
    with pytest.raises(SparkError, match="another process follows"):
        Follower(*about)
    first.close()
    Follower(*about).close()


def test_changes_on_a_stream_of_any_kind(spark: SparkSession, tmp_path: Path) -> None:
    """A frame of Spark's own, with poison; a second start sees what has changed meanwhile."""
    events, changes, shared = tmp_path / "e", tmp_path / "c", tmp_path / "shared"
    cheap = Subscription("s1", where="price < 50")
    write_changes(changes, "0", [Change("s1", 1, cheap), Change("s2", 2, None, bad=True)])
    out, state = str(tmp_path / "out"), str(tmp_path / "state")
    frame = spark.readStream.schema(
        "id string, attributes struct<price: double, colour: string>, lon double, lat double"
    )

    def go_on() -> None:
        def start() -> Any:
            pairs = match(frame.parquet(str(events)), changes=changes, shared=shared)
            return Run(out, state, once=True).start(pairs)

        supervise(start, lambda beat: None)

    given = [Event(f"e{n}", attributes={"price": float(20 * n)}) for n in range(4)]
    write_events(events, "0", given)
    go_on()
    write_changes(changes, "1", [Change("s1", 3), Change("s2", 4, Subscription("s2"))])
    key = next(each for each in following._followers if str(changes) in each)
    while following._followers[key]._layering.register.version < 4:
        time.sleep(0.02)
    write_events(events, "1", [Event("e4", attributes={"price": 1.0})])
    go_on()
    found = sorted(map(tuple, spark.read.parquet(out).collect()))
    assert found == [("e0", "s1", 2), ("e1", "s1", 2), ("e2", "s1", 2), ("e4", "s2", 4)]
    assert (shared / "rejected").is_dir()
    batch = spark.read.parquet(str(events))
    assert match(batch, changes=changes, shared=shared).count() == 5


def test_what_cannot_be_asked_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(events_to_arrow([Event("e1")]), tmp_path / "e.parquet")
    events = spark.read.parquet(str(tmp_path / "e.parquet"))
    for given, said in (
        ({}, "subscriptions"),
        ({"subscriptions": events, "changes": tmp_path}, "changes were given"),
        ({"changes": tmp_path, "strict": True}, "strict"),
        ({"changes": tmp_path, "plan": "partitioned"}, "plan"),
        ({"changes": tmp_path / "nowhere"}, "changes"),
    ):
        with pytest.raises(ValidationError, match=said):
            match(events, **given)
