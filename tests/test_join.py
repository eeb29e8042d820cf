"""Clauses that wait go past the events of a batch: the same answers whatever the plan."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nearcast import Box, Circle, Event, Matcher, Point, Subscription
from nearcast.errors import BatchError
from nearcast.index import pivot
from nearcast.index.base import EventBatch
from nearcast.index.clauses import ClauseBatch, ClauseStore
from nearcast.index.pivot import event_blocks
from nearcast.model.codec import events_to_arrow, subscriptions_to_arrow

NEVER, ALWAYS = 0.0, float("inf")


# --- the blocks alone ---------------------------------------------------------------------------


def drawn_value(rng: np.random.Generator) -> float:
    kind = rng.integers(12)
    if kind == 0:
        return float(rng.choice([np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0]))
    return float(rng.integers(6)) if kind < 7 else float(rng.normal())


def drawn_batch(rng: np.random.Generator, size: int, columns: int) -> EventBatch:
    runs = []
    for _ in range(size):
        have = rng.random(columns) < rng.choice([0.3, 0.9])
        have[:2] = rng.random() < 0.7  # a place, or none
        runs.append([(c, drawn_value(rng)) for c in np.flatnonzero(have).tolist()])
    start = np.cumsum([0, *map(len, runs)])
    items = [item for run in runs for item in run]
    attr = np.array([column for column, _ in items], np.int32)
    value = np.array([v for _, v in items], np.float64)
    none = np.zeros(size + 1, np.int64), np.empty(0, np.int32)
    return EventBatch(start, attr, value, *none, columns)


def drawn_clauses(rng: np.random.Generator, size: int, columns: int) -> ClauseStore:
    store = ClauseStore()
    for owner in range(size):
        asked = rng.permutation(np.arange(2, columns))[: rng.integers(0, 4)].tolist()
        asked = ([0, 1] if rng.random() < 0.5 else []) + asked
        ends = [sorted((drawn_value(rng), drawn_value(rng))) for _ in asked]
        for pair in ends:
            if rng.random() < 0.3:
                pair[int(rng.integers(2))] = np.inf if pair[1] == np.inf else pair[0]
            if rng.random() < 0.1:
                pair[:] = [-np.inf, np.inf]
            pair.sort()
        store.append(owner, asked, [a for a, _ in ends], [b for _, b in ends], None)
    return store


def truth(store: ClauseStore, batch: EventBatch) -> set[tuple[int, int]]:
    """Pairs (event, row) by definition."""
    found, t = set(), store.table
    for e in range(batch.size):
        run = slice(int(batch.start[e]), int(batch.start[e + 1]))
        held = dict(zip(batch.attr[run].tolist(), batch.value[run].tolist(), strict=True))
        for row in range(store.rows):
            own = range(int(t.start[row]), int(t.start[row]) + int(t.count[row]))
            if all(
                int(t.attr[k]) in held and t.low[k] <= held[int(t.attr[k])] <= t.high[k]
                for k in own
            ):
                found.add((e, row))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_clauses_that_go_past_events_want_what_they_say(monkeypatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(event_blocks, "_PIECE", int(rng.choice([1, 7, 4096])))
    monkeypatch.setattr(event_blocks, "_EVENTS", int(rng.choice([64, 100, 1 << 15])))
    monkeypatch.setattr(event_blocks, "_MOST_DIMS", int(rng.choice([0, 1, 3, 24])))
    columns = int(rng.integers(3, 9))
    batch = drawn_batch(rng, int(rng.choice([1, 63, 64, 65, 200])), columns)
    store = drawn_clauses(rng, int(rng.choice([1, 40, 120])), columns)
    rows = rng.permutation(store.rows).astype(np.int32)
    threads = int(rng.integers(1, 3))
    pieces = event_blocks.pieces_of_rows(store.table, rows)
    pairs, cost = event_blocks.joined(pieces, batch, threads, ALWAYS)
    assert pairs is not None
    assert cost > 0
    events, found = pairs
    assert bool((np.diff(events) >= 0).all())
    assert len(events) == len(set(zip(events.tolist(), found.tolist(), strict=True)))
    assert set(zip(events.tolist(), found.tolist(), strict=True)) == truth(store, batch)
    none, same = event_blocks.joined(pieces, batch, threads, cost / 2)
    assert none is None
    assert same == cost


def test_more_predicates_than_are_held_against_blocks() -> None:
    columns = 60
    store = ClauseStore()
    batch = ClauseBatch(
        np.zeros(1, np.int32), np.array([0, columns]), np.arange(columns, dtype=np.int32),
        np.zeros(columns), np.ones(columns), {},
    )  # fmt: skip
    rows = store.extend(batch)
    value = np.ones((2, columns))
    value[1, columns - 1] = 2.0
    none = np.zeros(3, np.int64), np.empty(0, np.int32)
    attr = np.tile(np.arange(columns, dtype=np.int32), 2)
    events = EventBatch(np.array([0, columns, 2 * columns]), attr, value.ravel(), *none, columns)
    pieces = event_blocks.pieces_of_rows(store.table, rows)
    pairs, _ = event_blocks.joined(pieces, events, 1, ALWAYS)
    assert pairs is not None
    assert [each.tolist() for each in pairs] == [[0], [0]]


# --- behind the matcher -------------------------------------------------------------------------


def drawn_subscription(rng: np.random.Generator, id: str) -> Subscription:
    tests = []
    for name in rng.permutation(["a", "b", "c"])[: rng.integers(0, 4)].tolist():
        low = int(rng.integers(8))
        kinds = (f"{name} BETWEEN {low} AND {low + 4}", f"{name} >= {low}", f"{name} = 'x'")
        tests.append(kinds[int(rng.choice([0, 0, 0, 1, 2]))])
    where = " AND ".join(tests) or None
    if where and rng.random() < 0.1:
        where += " OR c < 2"
    if where and rng.random() < 0.1:
        where += " AND a <> 3"
    x, y = rng.integers(0, 10, 2).tolist()
    regions = (None, Box(x, y, x + 4, y + 3), Circle(x, y, 3.0))
    expires = 500 if rng.random() < 0.05 else None
    return Subscription(id, None, where, (), regions[int(rng.integers(3))], expires)


def drawn_event(rng: np.random.Generator, id: str) -> Event:
    names = rng.permutation(["a", "b", "c"])[: rng.integers(1, 4)].tolist()
    attributes: dict[str, Any] = {name: float(rng.integers(10)) for name in names}
    if rng.random() < 0.1:
        attributes["a"] = "x"
    place = None if rng.random() < 0.2 else Point(*rng.integers(0, 12, 2).tolist())
    return Event(id, attributes, location=place, end=int(rng.integers(1000)))


def pairs_of(table: pa.Table) -> list[tuple[str, str]]:
    return sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


class Twin:
    """A matcher that lets clauses wait, and the scan that is right."""

    def __init__(self, monkeypatch: Any, rng: np.random.Generator) -> None:
        monkeypatch.setattr(pivot, "_ASIDE", 8)
        monkeypatch.setattr(pivot, "_FEW", 4)
        monkeypatch.setattr(event_blocks, "_PIECE", 16)
        self.patch, self.rng = monkeypatch, rng
        self.matcher = Matcher(index="pivot", space="planar")
        self.scan = Matcher(index="scan", space="planar")
        self.here: list[str] = []
        self.made = 0

    def step(self) -> None:
        """One act, drawn at random, with a plan drawn at random."""
        self.patch.setattr(pivot, "_PLANNED", float(self.rng.choice([NEVER, 3e3, ALWAYS])))
        acts = (self.load, self.load, self.batch, self.batch, self.batch, self.one, self.remove,
                self.update, self.prepare)  # fmt: skip
        acts[int(self.rng.integers(len(acts)))]()
        self.matcher.check_invariants()

    def load(self) -> None:
        count = int(self.rng.choice([1, 5, 40, 90]))
        ids = [f"s{self.made + i}" for i in range(count)]
        made: Any = [drawn_subscription(self.rng, id) for id in ids]
        if self.rng.random() < 0.7:
            made = subscriptions_to_arrow(made)
        for each in (self.matcher, self.scan):
            each.add_subscriptions(made)
        self.made += count
        self.here += ids

    def batch(self) -> None:
        events: Any = [drawn_event(self.rng, f"e{i}") for i in range(self.rng.integers(1, 90))]
        if self.rng.random() < 0.5:
            if any(isinstance(e.attributes.get("a"), str) for e in events):
                events = [e for e in events if not isinstance(e.attributes.get("a"), str)]
            events = events_to_arrow(events) if events else events
        found = self.matcher.match_events(events)
        assert pairs_of(found) == pairs_of(self.scan.match_events(events))

    def one(self) -> None:
        event = drawn_event(self.rng, "e")
        assert self.matcher.match_event(event) == self.scan.match_event(event)

    def remove(self) -> None:
        if self.here:
            id = self.here.pop(int(self.rng.integers(len(self.here))))
            for each in (self.matcher, self.scan):
                each.remove_subscription(id)

    def update(self) -> None:
        if self.here:
            other = drawn_subscription(self.rng, str(self.rng.choice(self.here)))
            for each in (self.matcher, self.scan):
                each.update_subscription(other)

    def prepare(self) -> None:
        self.matcher.prepare()
        assert self.matcher.index._waiting is None


@pytest.mark.parametrize("seed", range(25))
def test_answers_do_not_depend_on_the_plan(monkeypatch, seed: int) -> None:
    twin = Twin(monkeypatch, np.random.default_rng(seed))
    for _ in range(20):
        twin.step()


def table_of(count: int) -> pa.Table:
    made = [Subscription(f"s{k}", where=f"a BETWEEN {k} AND {k + 1}") for k in range(count)]
    return subscriptions_to_arrow(made)


def test_a_join_never_builds_and_many_do(monkeypatch) -> None:
    matcher = Matcher()
    matcher.add_subscriptions(table_of(5000))
    events = [Event(f"e{k}", {"a": k + 0.5}) for k in range(0, 5000, 50)]
    wanted = [(f"e{k}", f"s{k}") for k in range(0, 5000, 50)]
    assert matcher.index._waiting is not None
    small = matcher.memory()["index"]
    calls = 0
    while matcher.index._waiting is not None:
        assert pairs_of(matcher.match_events(events)) == sorted(wanted)
        calls += 1
        assert calls < 1000
    assert calls > 2
    assert matcher.memory()["index"] > small
    assert pairs_of(matcher.match_events(events)) == sorted(wanted)
    matcher.check_invariants()


def test_what_is_bounded_does_not_wait() -> None:
    matcher = Matcher(max_bytes=50_000_000)
    matcher.add_subscriptions(table_of(5000))
    assert matcher.index._waiting is None
    assert matcher.match_event(Event("e", {"a": 7.5})) == ["s7"]


def test_tables_that_come_one_after_the_other_wait_together() -> None:
    matcher = Matcher()
    every = table_of(20_000)
    for first in range(0, 20_000, 5000):
        matcher.add_subscriptions(every.slice(first, 5000))
        assert matcher.index._waiting.size == first + 5000
    with pytest.raises(BatchError):
        matcher.add_subscriptions(every.slice(100, 6000))
    assert matcher.index._waiting.size == 20_000
    found = matcher.match_events([Event("e", {"a": 12_345.5}), Event("f", {"a": 3.5})])
    assert pairs_of(found) == [("e", "s12345"), ("f", "s3")]
    matcher.check_invariants()


def test_a_saved_matcher_is_built(tmp_path) -> None:
    matcher = Matcher()
    matcher.add_subscriptions(table_of(5000))
    matcher.save(tmp_path)
    again = Matcher.load(tmp_path)
    assert again.index._waiting is None
    assert again.match_event(Event("e", {"a": 7.5})) == ["s7"]


def test_several_threads_ask_for_what_waits() -> None:
    matcher = Matcher()
    matcher.add_subscriptions(table_of(30_000))
    wrong: list[Any] = []

    def ask(k: int) -> None:
        if k % 2:
            found = matcher.match_event(Event("e", {"a": k + 0.5}))
        else:
            found = matcher.match_events([Event("e", {"a": k + 0.5})])[
                "subscription_id"
            ].to_pylist()
        if found != [f"s{k}"]:
            wrong.append((k, found))

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    matcher.check_invariants()


def test_tiles_that_cannot_be_made_are_made_later(monkeypatch) -> None:
    matcher = Matcher()
    matcher.add_subscriptions(table_of(5000))

    def no_room(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("nearcast.index.pivot.ClauseTiles._house", no_room)
        with pytest.raises(MemoryError):
            matcher.match_event(Event("e", {"a": 7.5}))
    matcher.check_invariants()
    assert matcher.match_event(Event("e", {"a": 7.5})) == ["s7"]
    matcher.check_invariants()
