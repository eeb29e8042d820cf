"""Matchers on disk: the same answers after a trip, nothing half-written, nothing foreign run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearcast import Box, Circle, Event, Matcher, Point, Polygon, Subscription
from nearcast.datasets import workload
from nearcast.errors import SavedError
from nearcast.index import registry
from nearcast.matcher import saved

SOURCE = workload("mo", seed=3, k=6)
SUBSCRIPTIONS = SOURCE.subscription_table(600)
EVENTS = SOURCE.event_table(200)

RICH = [
    Subscription(id="text", where="brand = 'Huawei' AND price < 3300 AND name LIKE 'P%'"),
    Subscription(id="or", where="price < 5 OR brand <> 'Huawei' OR open = TRUE"),
    Subscription(id="circle", keywords={"sale"}, region=Circle(10, 50, radius_m=2000)),
    Subscription(id="polygon", region=Polygon([(9, 49), (11, 49), (10, 51)])),
    Subscription(id="wrapped", region=Box(179, 0, -179, 60), expires="2026-01-01T00:00:00Z"),
    Subscription(id="none", where="price IS NULL"),
    Subscription(id="gone"),
]
RICH_EVENTS = [
    Event(id="phone", attributes={"brand": "Huawei", "price": 3200, "name": "P30"}),
    Event(id="shop", attributes={"open": True}, keywords={"Sale"}, location=Point(10, 50)),
    Event(id="area", attributes={"price": 1}, location=Box(9.5, 49.5, 10.5, 50.5)),
    Event(id="late", location=Point(180, 10), end="2026-01-01T00:00:00Z"),
    Event(id="early", location=Point(180, 10), end="2025-12-31T23:59:59Z"),
]


def rich() -> Matcher:
    matcher = Matcher()
    matcher.add_subscriptions(RICH)
    matcher.remove_subscription("gone")
    matcher.add_events(RICH_EVENTS)
    return matcher


def pairs(table):
    return sorted(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize("name", registry.names())
def test_every_index_answers_the_same_after_a_trip(name: str, tmp_path: Path):
    matcher = Matcher(index=name, space="planar")
    if matcher.entry.subscriptions:
        matcher.add_subscriptions(SUBSCRIPTIONS)
        matcher.remove_subscription(SUBSCRIPTIONS["id"][5].as_py())
    if matcher.entry.events:
        matcher.add_events(EVENTS)
    matcher.save(tmp_path)
    opened = Matcher.load(tmp_path, verify=True)
    opened.check_invariants()
    assert (len(opened), opened.event_count) == (len(matcher), matcher.event_count)
    if matcher.entry.subscriptions:
        assert pairs(opened.match_events(EVENTS)) == pairs(matcher.match_events(EVENTS))
    if matcher.entry.events:
        wanted = Subscription(id="q", where="a00 < 0.3", region=Box(0, 0, 60_000, 60_000))
        assert opened.match_subscription(wanted) == matcher.match_subscription(wanted) != []


@pytest.mark.parametrize("name", [name for name in registry.names() if name != "r-star-tree"])
def test_an_index_is_mapped_and_not_built_again(name: str, tmp_path: Path):
    matcher = Matcher(index=name, space="planar")
    if matcher.entry.subscriptions:
        matcher.add_subscriptions(SUBSCRIPTIONS)
    matcher.save(tmp_path)
    header = saved.read_header(tmp_path)
    assert not header.rebuilt
    assert header.graph[1] - header.graph[0] < 100_000


def test_numbers_of_interpreted_kernels_are_numbers(tmp_path: Path):
    matcher = Matcher(space="planar")
    matcher.add_subscriptions(SUBSCRIPTIONS)
    matcher.remove_subscription(SUBSCRIPTIONS["id"][5].as_py())
    store = matcher._standing.store
    interpreted: list[Any] = [np.int64(row) for row in store._free_rows]
    store._free_rows = interpreted
    matcher.save(tmp_path)
    opened = Matcher.load(tmp_path)
    assert [type(row) for row in opened._standing.store._free_rows] == [int]
    opened.check_invariants()


def test_everything_a_matcher_can_hold_survives(tmp_path: Path):
    matcher = rich()
    matcher.save(tmp_path)
    opened = Matcher.load(tmp_path)
    for event in RICH_EVENTS:
        assert opened.match_event(event) == matcher.match_event(event)
    assert any(opened.match_event(event) for event in RICH_EVENTS)
    for subscription in RICH[:-1]:
        found = opened.match_subscription(subscription)
        assert found == matcher.match_subscription(subscription)
    assert str(opened.explain("text", RICH_EVENTS[0])) == str(
        matcher.explain("text", RICH_EVENTS[0])
    )
    assert opened.schema == matcher.schema


def test_an_opened_matcher_changes_alone(tmp_path: Path):
    matcher = rich()
    matcher.save(tmp_path)
    first, second = Matcher.load(tmp_path), Matcher.load(tmp_path)
    first.remove_subscription("circle")
    first.add_subscriptions([Subscription(id="new", where="price < 10000")])
    first.check_invariants()
    assert first.match_event(RICH_EVENTS[0]) == ["new", "text"]
    assert second.match_event(RICH_EVENTS[0]) == ["text"]
    assert "circle" in second
    assert "circle" in Matcher.load(tmp_path, verify=True)


def test_arrays_are_writable_aligned_and_in_the_file(tmp_path: Path):
    matcher = Matcher(space="planar")
    matcher.add_subscriptions(SUBSCRIPTIONS)
    matcher.save(tmp_path)
    table = Matcher.load(tmp_path)._standing.store.table
    for array in table:
        assert array.flags.writeable
        assert array.flags.aligned
        assert array.ctypes.data % 64 == 0 or array.size == 0
    where = table.low.ctypes.data
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = {line[5]: line[0].split("-") for line in lines if len(line) > 5}
    (start, stop) = next(
        span for path, span in spans.items() if path.startswith(str(tmp_path / "matcher-"))
    )
    assert int(start, 16) <= where < int(stop, 16)


def test_saving_again_replaces_and_leaves_readers_alone(tmp_path: Path):
    matcher = Matcher()
    matcher.add_subscriptions(RICH[:2])
    matcher.save(tmp_path)
    before = Matcher.load(tmp_path)
    matcher.add_subscriptions(RICH[2:])
    matcher.save(tmp_path)
    assert len(before) == 2
    assert before.match_event(RICH_EVENTS[0]) == ["text"]
    assert len(Matcher.load(tmp_path)) == len(RICH)
    header = saved.read_header(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([saved.HEADER, header.data])


def test_an_empty_matcher_can_be_saved(tmp_path: Path):
    Matcher(space="planar").save(tmp_path)
    opened = Matcher.load(tmp_path)
    assert (len(opened), opened.space) == (0, "planar")
    opened.add_subscriptions([Subscription(id="s")])
    assert opened.match_event(Event(id="e")) == ["s"]


def test_a_disk_that_is_full_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    matcher = rich()
    matcher.save(tmp_path)
    kept = sorted(os.listdir(tmp_path))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    matcher.remove_subscription("or")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SavedError, match="No space left"):
        matcher.save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == kept
    assert "or" in Matcher.load(tmp_path, verify=True)


def test_what_is_no_saved_matcher_is_refused(tmp_path: Path):
    with pytest.raises(SavedError, match="no saved matcher here"):
        Matcher.load(tmp_path / "nothing")
    (tmp_path / saved.HEADER).write_text("{")
    with pytest.raises(SavedError, match="cannot be read"):
        Matcher.load(tmp_path)
    (tmp_path / saved.HEADER).write_text(json.dumps({"nearcast_matcher": 99}))
    with pytest.raises(SavedError, match=f"format {saved._FORMAT}"):
        Matcher.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SavedError, match="cannot be made"):
        Matcher().save(tmp_path / "file")


def test_a_header_names_a_file_and_no_path(tmp_path: Path):
    """Else saving anew would remove whatever the old header points at."""
    precious = tmp_path / "precious.txt"
    precious.write_text("years of work")
    target = tmp_path / "saved"
    matcher = Matcher("scan")
    matcher.save(target)
    header = json.loads((target / saved.HEADER).read_text())
    (target / saved.HEADER).write_text(json.dumps(header | {"data": "../precious.txt"}))
    with pytest.raises(SavedError, match="damaged"):
        Matcher.load(target)
    matcher.save(target)
    assert precious.exists()
    assert len(Matcher.load(target)) == 0


def test_damage_is_noticed(tmp_path: Path):
    rich().save(tmp_path)
    header = saved.read_header(tmp_path)
    path = tmp_path / header.data
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(SavedError, match="bytes, and the header says"):
        Matcher.load(tmp_path)
    path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    with pytest.raises(SavedError, match="damaged"):
        Matcher.load(tmp_path)
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(SavedError, match="digest"):
        Matcher.load(tmp_path, verify=True)
    other = json.loads((tmp_path / saved.HEADER).read_text())
    (tmp_path / saved.HEADER).write_text(json.dumps({**other, "nearcast": "0.0.1"}))
    with pytest.raises(SavedError, match=r"saved by nearcast 0\.0\.1"):
        Matcher.load(tmp_path)
    other["byteorder"] = "big"
    (tmp_path / saved.HEADER).write_text(json.dumps(other))
    with pytest.raises(SavedError, match="big-endian"):
        Matcher.load(tmp_path)


class _Bomb:
    def __reduce__(self):
        return os.mkdir, ("bomb-went-off",)


@pytest.mark.parametrize("through", ["os mkdir", "nearcast.matcher.saved os.mkdir"])
def test_a_foreign_pickle_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str):
    monkeypatch.chdir(tmp_path)
    Matcher().save(tmp_path)
    header = saved.read_header(tmp_path)
    if through == "os mkdir":
        graph = pickle.dumps(_Bomb(), 5)
    else:  # a name that leads through one of our modules to what it imports
        module, name = (part.encode() for part in through.split())
        text = b"bomb-went-off"
        graph = (
            b"\x80\x05\x8c" + bytes([len(module)]) + module + b"\x8c" + bytes([len(name)]) + name
            + b"\x93\x8c" + bytes([len(text)]) + text + b"\x85R."
        )  # fmt: skip
        assert pickle.loads(graph) is None
        (tmp_path / "bomb-went-off").rmdir()
    stored = json.loads((tmp_path / saved.HEADER).read_text())
    stored |= {"graph": [0, len(graph)], "graph_digest": saved._digest(graph), "buffers": []}
    stored["bytes"] = len(graph)
    (tmp_path / header.data).write_bytes(graph)
    (tmp_path / saved.HEADER).write_text(json.dumps(stored))
    with pytest.raises(SavedError, match="not ours"):
        Matcher.load(tmp_path)
    assert not (tmp_path / "bomb-went-off").exists()


def test_numbers_stay_exact(tmp_path: Path):
    edge = float(np.nextafter(0.1, 1))
    matcher = Matcher()
    matcher.add_subscriptions([Subscription(id="s", where=f"x <= {edge!r}")])
    matcher.save(tmp_path)
    opened = Matcher.load(tmp_path)
    assert opened.match_event(Event(id="e", attributes={"x": edge})) == ["s"]
    assert opened.match_event(Event(id="e", attributes={"x": float(np.nextafter(edge, 1))})) == []
