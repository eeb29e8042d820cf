"""Random clauses and events for predicate indexes, and what they match, in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nearcast.clock import FOREVER
from nearcast.index.base import new_counters
from nearcast.index.clauses import ClauseBatch, ClauseStore
from nearcast.index.events import EventBatch, EventStore

INF = np.inf
NAN = np.nan

#: (low, high) pairs by n numbers, for each kind of data.
ENDS: dict[str, Callable[..., Any]] = {
    "wide": lambda rng, shape: (rng.random(shape) * 0.3, 0.7 + rng.random(shape) * 0.3),
    "narrow": lambda rng, shape: (low := rng.random(shape), low + 0.05 * rng.random(shape)),
    "mixed": lambda rng, shape: np.sort(rng.random((2, *shape)), axis=0),
    "heavy tails": lambda rng, shape: np.sort(rng.standard_cauchy((2, *shape)) ** 3, axis=0),
    "two values": lambda rng, shape: (bit := rng.integers(0, 2, shape) * 1.0, bit.copy()),
    "equalities": lambda rng, shape: (code := rng.integers(0, 20, shape) * 1.0, code.copy()),
    "one-sided": lambda rng, shape: (
        np.where(rng.random(shape) < 0.5, -INF, rng.random(shape)),
        np.where(rng.random(shape) < 0.5, INF, 1 + rng.random(shape)),
    ),
    "everything": lambda rng, shape: (np.full(shape, -INF), np.full(shape, INF)),
    "all equal": lambda rng, shape: (np.full(shape, 0.25), np.full(shape, 0.75)),
    "huge": lambda rng, shape: (np.full(shape, -1.7e308), rng.choice([-1.6e308, 1.7e308], shape)),
    "tiny": lambda rng, shape: (np.zeros(shape), rng.integers(0, 3, shape) * 5e-324),
}


def random_clauses(rng, n, kind, columns, most):
    """Clauses of 0 … most predicates of a kind, as a batch."""
    sizes = rng.integers(0, min(most, columns) + 1, n)
    start = np.concatenate([[0], np.cumsum(sizes)])
    picked = np.argsort(rng.random((n, columns)), axis=1).astype(np.int32)
    attr = np.concatenate([picked[i, :k] for i, k in enumerate(sizes)] or [np.empty(0, np.int32)])
    low, high = ENDS[kind](rng, (int(start[-1]),))
    return ClauseBatch(np.arange(n, dtype=np.int32), start, attr, low * 1.0, high * 1.0, {})


def random_events(rng, n, kind, columns, missing=0.2):
    """Events whose values are ends of such clauses, near them, missing or not a number."""
    low, high = ENDS[kind](rng, (n * columns,))
    value = np.where(rng.random(n * columns) < 0.5, low, high)
    inside = rng.random(n * columns)
    with np.errstate(invalid="ignore", over="ignore"):
        value = np.where(inside < 0.5, low + (high - low) * inside, value)
    odd = rng.choice([NAN, INF, -INF], n * columns)
    value = np.where(rng.random(n * columns) < 0.05, odd, value)
    has = rng.random((n, columns)) >= missing
    attr = np.broadcast_to(np.arange(columns, dtype=np.int32), (n, columns))[has]
    start = np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int64)
    words = np.zeros(n + 1, np.int64)
    return EventBatch(
        start, attr.copy(), value.reshape(n, columns)[has], words, np.empty(0, np.int32), columns
    )


class World:
    """An index, its stores, and the truth."""

    def __init__(self, factory, kind="mixed", columns=4, most=4, seed=0):
        self.rng = np.random.default_rng(seed)
        self.kind, self.columns, self.most = kind, columns, most
        self.clauses = ClauseStore()
        self.events = EventStore()
        self.index = factory(self.clauses, self.events)
        self.rows: set[int] = set()
        self.event_rows: set[int] = set()

    # -- clauses -----------------------------------------------------------------

    def add(self, n):
        batch = random_clauses(self.rng, n, self.kind, self.columns, self.most)
        rows = self.clauses.extend(batch)
        self.index.add_clauses(rows)
        self.rows.update(rows.tolist())

    def add_one(self):
        """One clause in a row that was freed before, if there is one."""
        b = random_clauses(self.rng, 1, self.kind, self.columns, self.most)
        row = self.clauses.append(0, b.attr.tolist(), b.low.tolist(), b.high.tolist(), None)
        self.index.add_clauses(np.array([row], np.int32))
        self.rows.add(row)

    def add_on(self, *columns):
        """One clause with predicates on these columns."""
        low, high = ENDS[self.kind](self.rng, (len(columns),))
        row = self.clauses.append(0, columns, low.tolist(), high.tolist(), None)
        self.index.add_clauses(np.array([row], np.int32))
        self.rows.add(row)

    def remove(self, n, one_by_one=False):
        rows = self.rng.choice(sorted(self.rows), n, replace=False).astype(np.int32)
        for some in np.split(rows, n) if one_by_one else [rows]:
            self.index.remove_clauses(some)
            for row in some.tolist():
                self.clauses.release(row)
        self.rows.difference_update(rows.tolist())

    def wanted(self, dense):
        """Rows whose every predicate holds; flat, one entry a predicate."""
        t = self.clauses.table
        rows = np.array(sorted(self.rows), np.int64)
        sizes = t.count[rows].astype(np.int64)
        owner = np.repeat(np.arange(rows.size), sizes)
        first = np.repeat(t.start[rows].astype(np.int64) - np.cumsum(sizes) + sizes, sizes)
        k = first + np.arange(owner.size)
        values = dense[t.attr[k]]
        holds = (t.low[k] <= values) & (values <= t.high[k])
        fails = np.bincount(owner[~holds], minlength=rows.size)
        return rows[fails == 0].tolist()

    def check(self, events=5, missing=0.2):
        batch = random_events(self.rng, events, self.kind, self.columns, missing)
        pairs = []
        for at in range(events):
            dense = np.full(self.columns, NAN)
            run = slice(int(batch.start[at]), int(batch.start[at + 1]))
            dense[batch.attr[run]] = batch.value[run]
            counters = new_counters()
            found = self.index.match_event(batch, at, counters)
            assert found.dtype == np.int32
            wanted = self.wanted(dense)
            assert sorted(found.tolist()) == wanted
            assert counters[2] == len(wanted)
            pairs += [(at, row) for row in wanted]
        numbers, rows = self.index.match_events(batch, new_counters())
        assert sorted(zip(numbers.tolist(), rows.tolist(), strict=True)) == pairs
        assert bool((np.diff(numbers) >= 0).all())
        assert self.index.memory_bytes() > 0
        self.index.check_invariants()
        return len(pairs)

    # -- events ------------------------------------------------------------------

    def add_events(self, n, expires=FOREVER):
        batch = random_events(self.rng, n, self.kind, self.columns)
        slots = np.arange(n, dtype=np.int32)
        rows = self.events.extend(slots, batch, np.full(n, expires, np.int64))
        self.index.add_events(rows)
        self.event_rows.update(rows.tolist())

    def add_one_event(self):
        b = random_events(self.rng, 1, self.kind, self.columns)
        row = self.events.append(0, b.attr, b.value, b.word, None)
        self.index.add_events(np.array([row], np.int32))
        self.event_rows.add(row)

    def remove_events(self, n):
        rows = self.rng.choice(sorted(self.event_rows), n, replace=False).astype(np.int32)
        self.index.remove_events(rows)
        for row in rows.tolist():
            self.events.release(row)
        self.event_rows.difference_update(rows.tolist())

    def check_subscriptions(self, n=8, now=0):
        store = ClauseStore()
        clauses = random_clauses(self.rng, n, self.kind, self.columns, self.most)
        e = self.events.table
        matches = 0
        for row in store.extend(clauses).tolist():
            t = store.table
            k = slice(int(t.start[row]), int(t.start[row]) + int(t.count[row]))
            wanted = []
            for event in sorted(self.event_rows):
                run = slice(int(e.start[event]), int(e.start[event]) + int(e.count[event]))
                dense = np.full(self.columns, NAN)
                dense[e.attr[run]] = e.value[run]
                values = dense[t.attr[k]]
                holds = ((t.low[k] <= values) & (values <= t.high[k])).all()
                if holds and e.expires[event] > now:
                    wanted.append(event)
            found = self.index.match_clause(t, row, now, new_counters())
            assert found.dtype == np.int32
            assert sorted(found.tolist()) == wanted
            matches += len(wanted)
        self.index.check_invariants()
        return matches

    def live(self) -> None:
        """Grow, drift, shrink, grow beyond what was learnt, be emptied and begin again."""
        self.add(3000)
        self.check(3)
        self.kind = "heavy tails"  # outside of what was learnt
        self.add(1500)
        self.check(3)
        self.remove(2500)
        self.check(3)
        self.kind = "mixed"
        self.add(900)
        for _ in range(30):
            self.add_one()
        self.check(3)
        self.add(9000)
        assert self.check(3) > 0
        self.remove(len(self.rows))
        assert self.check(2) == 0
        self.add(10)
        self.check()
