"""Encoded events: a batch on its way through, and the store of live ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.clock import FOREVER
from nearcast.index.columns import Spans, grown, items_of, scatter, take_rows
from nearcast.kernels.rows import counts_of

__all__ = ["EventBatch", "EventStore", "LiveEvents"]

I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]
F8 = npt.NDArray[np.float64]


class EventBatch(NamedTuple):
    """Events as runs of (column, value) and of word codes, n + 1 offsets each.

    Only columns and words that the schema knows appear: nobody can want the others.
    Columns ascend within an event; so do words.
    """

    start: I8
    attr: I4
    value: F8
    word_start: I8
    word: I4
    columns: int
    """Columns of the schema: room a dense copy of one event needs."""

    @property
    def size(self) -> int:
        """Number of events."""
        return int(self.start.size) - 1


class LiveEvents(NamedTuple):
    """What kernels see of the event store. Row r's values are start[r] … start[r] + count[r]."""

    start: npt.NDArray[np.int64]
    count: npt.NDArray[np.uint16]  # type: ignore[assignment]  # hides tuple.count, unused
    slot: I4
    """The matcher's number of the event, −1 for a free row."""
    expires: I8
    attr: I4
    value: F8
    word_start: npt.NDArray[np.int64]
    word_count: npt.NDArray[np.uint16]
    word: I4


class EventStore:
    """Live events, one row each, that come and go. Freed rows and runs are used again."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows ever used, free ones included."""
        self.columns = 2
        """One more than the highest column of any value so far."""
        self._free_rows: list[int] = []
        self._values = Spans()
        self._words = Spans()
        self.table = LiveEvents(
            start=np.empty(0, np.int64),
            count=np.empty(0, np.uint16),
            slot=np.empty(0, np.int32),
            expires=np.empty(0, np.int64),
            attr=np.empty(0, np.int32),
            value=np.empty(0),
            word_start=np.empty(0, np.int64),
            word_count=np.empty(0, np.uint16),
            word=np.empty(0, np.int32),
        )

    def __len__(self) -> int:
        return self.rows - len(self._free_rows)

    def _reserve(self, rows: int) -> None:
        t = self.table
        sizes = dict.fromkeys(
            ("start", "count", "slot", "expires", "word_start", "word_count"), rows
        )
        sizes |= dict.fromkeys(("attr", "value"), self._values.used)
        sizes |= {"word": self._words.used}
        if any(n > getattr(t, name).size for name, n in sizes.items()):
            self.table = LiveEvents(**{k: grown(getattr(t, k), n) for k, n in sizes.items()})

    def append(
        self,
        slot: int,
        attr: Sequence[int] | I4,
        value: Sequence[float] | F8,
        word: Sequence[int] | I4,
        expires: int | None,
    ) -> int:
        """Add one event (columns and words ascending); returns its row."""
        n, m = len(attr), len(word)
        if n:
            self.columns = max(self.columns, int(attr[-1]) + 1)
        row = self._free_rows.pop() if self._free_rows else self.rows
        start = self._values.take(n)
        word_start = self._words.take(m)
        self._reserve(max(self.rows, row + 1))
        t = self.table
        t.start[row] = start
        t.count[row] = n
        t.attr[start : start + n] = attr
        t.value[start : start + n] = value
        t.word_start[row] = word_start
        t.word_count[row] = m
        t.word[word_start : word_start + m] = word
        t.slot[row] = slot
        t.expires[row] = FOREVER if expires is None else expires
        self.rows = max(self.rows, row + 1)
        return row

    def extend(self, slots: I4, batch: EventBatch, expires: I8) -> I4:
        """Add a whole batch; returns its rows."""
        self.columns = max(self.columns, int(batch.attr.max(initial=0)) + 1)
        counts, word_counts = np.diff(batch.start), np.diff(batch.word_start)
        starts, word_starts = self._values.take_many(counts), self._words.take_many(word_counts)
        self._reserve(self.rows + max(0, batch.size - len(self._free_rows)))
        rows = take_rows(self._free_rows, self.rows, batch.size)
        t = self.table
        t.start[rows] = starts
        t.count[rows] = counts
        t.word_start[rows] = word_starts
        t.word_count[rows] = word_counts
        scatter([(t.attr, batch.attr), (t.value, batch.value)], starts, batch.start)
        scatter([(t.word, batch.word)], word_starts, batch.word_start)
        t.expires[rows] = expires
        t.slot[rows] = slots
        self.rows = max(self.rows, int(rows.max(initial=-1)) + 1)
        return rows

    def release(self, row: int) -> None:
        """Free one row. The index must have forgotten it before."""
        t = self.table
        self._values.give_back(int(t.start[row]), int(t.count[row]))
        self._words.give_back(int(t.word_start[row]), int(t.word_count[row]))
        t.slot[row] = -1
        t.count[row] = 0
        t.word_count[row] = 0
        self._free_rows.append(row)

    def live_rows(self) -> I4:
        """All rows in use."""
        return np.flatnonzero(self.table.slot[: self.rows] >= 0).astype(np.int32)

    def column_counts(self) -> npt.NDArray[np.int64]:
        """By column: how many events have it, roughly (freed ones may count)."""
        used = self.table.attr[: self._values.used]
        counts: npt.NDArray[np.int64] = counts_of(used, self.columns)
        return counts

    @property
    def items(self) -> int:
        """Values and words, freed ones included."""
        return self._values.used + self._words.used

    def codes(self) -> tuple[I4, F8, I4]:
        """Column and value of each value of all live rows, and their words. O(n)."""
        t, rows = self.table, self.live_rows()
        at = items_of(t.start[rows], t.count[rows])
        return t.attr[at], t.value[at], t.word[items_of(t.word_start[rows], t.word_count[rows])]

    def memory_bytes(self) -> int:
        """Bytes of the arrays, spare room included."""
        return sum(int(array.nbytes) for array in self.table)

    def check_invariants(self) -> None:
        """Live runs do not overlap, columns ascend."""
        t = self.table
        covered = np.zeros(self._values.used, np.int8)
        rows = self.live_rows()
        assert rows.size == len(self)
        for row in rows.tolist():
            start, stop = int(t.start[row]), int(t.start[row]) + int(t.count[row])
            covered[start:stop] += 1
            assert bool((np.diff(t.attr[start:stop]) > 0).all())
        assert int(covered.max(initial=0)) <= 1
