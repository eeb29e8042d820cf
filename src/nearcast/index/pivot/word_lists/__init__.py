"""Clauses with words: `pivot`'s lists by rarest word. See `kernels` for how a match works.

Those with a place that is no larger than most stand in cells (`word_cells`) instead, once
there are enough of them to tell how large cells should be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, Pairs, Rows
from nearcast.index.columns import grown
from nearcast.index.pivot.kernels import merged
from nearcast.index.pivot.word_cells import NO_BOXES, Boxes, WordCells
from nearcast.index.pivot.word_lists import kernels

__all__ = ["Lists", "WordLists"]

I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]
F4 = npt.NDArray[np.float32]

_CLASSES = 32
#: Clauses from which on some may stand in cells.
_ENOUGH = 1024


class Lists(NamedTuple):
    """What kernels see."""

    # By word.
    head: I8
    """(word, 5): start in the pool, length, entries in order at the front, room, and how many
    of those entries were ordered together."""
    dead: I4
    frequency: I4
    """Clauses here that have the word, wherever they stand."""
    # By entry, all lists in one pool.
    row: I4
    """The clause, −1: gone. The first of a free span leads to the next free one."""
    signature: npt.NDArray[np.uint64]
    others: npt.NDArray[np.uint64]
    """Two words beside the one it stands under: see `kernels.NO_WORD`."""
    box: F4
    """Sides of boxes, in sixteens: see `kernels.side`."""
    hull: F4
    """The same by 16 entries."""
    group: F4
    """The same by 256 entries."""
    # By row.
    home: I4
    """The word a clause stands under, −1: not here."""
    where: I4
    """Its place in the pool, −2 in cells."""
    # Of the pool.
    used: I8
    free: I8
    """By power of two: a free span, −1 for none."""


def _no_lists() -> Lists:
    return Lists(
        head=np.zeros((0, 5), np.int64),
        dead=np.zeros(0, np.int32),
        frequency=np.zeros(0, np.int32),
        row=np.empty(0, np.int32),
        signature=np.empty(0, np.uint64),
        others=np.empty(0, np.uint64),
        box=np.empty(0, np.float32),
        hull=np.empty(0, np.float32),
        group=np.empty(0, np.float32),
        home=np.empty(0, np.int32),
        where=np.empty(0, np.int32),
        used=np.zeros(1, np.int64),
        free=np.full(_CLASSES, -1, np.int64),
    )


def _filled(array: npt.NDArray[Any], size: int, value: int) -> npt.NDArray[Any]:
    larger = grown(array, size)
    larger[array.shape[0] :] = value
    return larger


def _sides(boxes: int) -> int:
    """Room for the sides of so many boxes."""
    return 64 * (boxes // 16 + 1)


class WordLists:
    """Clauses that want words, each in the list of the one that is rarest when it comes."""

    def __init__(self, clauses: ClauseStore) -> None:
        self._clauses = clauses
        self._lists = _no_lists()
        self._cells = WordCells(clauses)
        self._count = 0
        self._divided = 0
        """How many there were when places were last looked at."""

    def __len__(self) -> int:
        return self._count

    def chosen(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of these rows belong here."""
        t = self._clauses.table
        found: npt.NDArray[np.bool_] = kernels.with_words(t.extra, t.word_count, rows)
        return found

    def holds(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of these rows are here."""
        found: npt.NDArray[np.bool_] = kernels.with_homes(self._lists.home, rows)
        return found

    @property
    def worn(self) -> bool:
        """Whether the cells are no longer where clauses are."""
        return self._cells.worn

    def add_clauses(self, rows: Rows) -> None:
        """Add clause rows that have words: microseconds each, less in bulk."""
        self._count += rows.size
        self._widen()
        c, t = self._clauses.table, self._lists
        if rows.size == 1 and len(self._cells):
            if self._add_one(int(rows[0])):
                return
        else:
            kernels.count_words(c, rows, t.frequency, 1)
            kernels.choose(c, rows, t.frequency, t.home)
        few = 2 * len(self._cells) < self._count
        if few and self._count >= max(_ENOUGH, 2 * self._divided):
            rows = self._divide()
        elif len(self._cells):
            taken = self._cells.insert(rows, t.home)
            t.where[rows[taken]] = kernels.IN_CELLS
            rows = rows[~taken]
        if rows.size:
            self._list(rows)

    def _add_one(self, row: int) -> bool:
        """Choose a home for a row and take it into cells, if that is all there is to do."""
        c, t = self._clauses.table, self._lists
        home = kernels.add_one(
            c.start, c.count, c.attr, c.low, c.high,
            c.extra, c.word_start, c.word_count, c.word,
            t.frequency, t.home, t.where, *self._cells.table, row,
        )  # fmt: skip
        if home < 0:
            return False
        self._cells.note_one()
        return True

    def _divide(self) -> Rows:
        """Make cells afresh of all that fit; returns rows that are to be in lists and are not."""
        t = self._lists
        self._divided = self._count
        here = np.flatnonzero(t.home >= 0).astype(np.int32)
        fit = self._cells.build(here, t.home)
        listed = t.where[here] >= 0
        moving = here[fit & listed]
        homes = t.home[moving]
        kernels.remove(t, moving)
        t.home[moving] = homes
        t.where[here[fit]] = kernels.IN_CELLS
        return here[~fit & ~listed]

    def _list(self, rows: Rows) -> None:
        c = self._clauses.table
        words, coming = np.unique(self._lists.home[rows], return_counts=True)
        self._grow_pool(int(kernels.places_for(self._lists, words, coming)))
        kernels.make_room(self._lists, words, coming)
        kernels.insert_many(c, self._lists, rows)
        kernels.order_some(self._lists, words)

    def _widen(self) -> None:
        """Room for every word and row that the store knows."""
        t, store = self._lists, self._clauses
        words = store.word_codes
        if words > t.dead.size:
            names = ("head", "dead", "frequency")
            t = t._replace(**{n: _filled(getattr(t, n), words, 0) for n in names})
        if store.rows > t.home.size:
            t = t._replace(
                home=_filled(t.home, store.rows, -1), where=_filled(t.where, store.rows, -1)
            )
        self._lists = t

    def _grow_pool(self, places: int) -> None:
        t = self._lists
        size = int(t.used[0]) + places
        if size <= t.row.size:
            return
        row = grown(t.row, size)
        self._lists = t._replace(
            row=row,
            signature=grown(t.signature, row.size),
            others=grown(t.others, row.size),
            box=grown(t.box, _sides(row.size)),
            hull=grown(t.hull, _sides(row.size // kernels.BLOCK + 1)),
            group=grown(t.group, _sides(row.size // kernels.GROUP + 1)),
        )

    def remove_clauses(self, rows: Rows) -> None:
        """Forget clause rows; all of them must be here."""
        self._count -= rows.size
        c, t = self._clauses.table, self._lists
        if rows.size == 1 and kernels.remove_one(
            c.start, c.low, c.high, c.extra, c.word_start, c.word_count, c.word,
            t.frequency, t.home, t.where, *self._cells.table, int(rows[0]),
        ):  # fmt: skip
            self._cells.forget_one()
            return
        kernels.count_words(self._clauses.table, rows, t.frequency, -1)
        in_cells = t.where[rows] == kernels.IN_CELLS
        celled = rows[in_cells]
        if celled.size:
            self._cells.remove(celled, t.home)
            t.home[celled] = t.where[celled] = -1
            rows = rows[~in_cells]
        if rows.size:
            kernels.remove(t, rows)

    def match(self, batch: EventBatch, first: int, stop: int, counters: Counters) -> Pairs:
        """(events counted from `first`, clause rows), in the order of events."""
        return self._match(batch, NO_BOXES, first, stop, counters)

    def match_boxes(self, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        """The same of all events, as if each were everywhere in its box."""
        return self._match(batch, boxes, 0, batch.size, counters)

    def _match(
        self, batch: EventBatch, boxes: Boxes, first: int, stop: int, counters: Counters
    ) -> Pairs:
        if not len(self._cells):
            return self._match_lists(batch, boxes, first, stop, counters)
        found = self._cells.match(batch, boxes, first, stop, counters)
        if len(self._cells) == self._count:
            return found
        more = self._match_lists(batch, boxes, first, stop, counters)
        both: Pairs = merged(*found, *more) if more[0].size else found
        return both

    def _match_lists(
        self, batch: EventBatch, boxes: Boxes, first: int, stop: int, counters: Counters
    ) -> Pairs:
        c, t = self._clauses.table, self._lists
        found: Pairs = kernels.match(
            c.start, c.count, c.attr, c.low, c.high,
            c.extra, c.word_start, c.word_count, c.word,
            t.head, t.row, t.signature, t.others, t.box, t.hull, t.group,
            batch.start, batch.attr, batch.value, batch.word_start, batch.word, batch.columns,
            boxes, first, stop, counters,
        )  # fmt: skip
        return found

    def memory_bytes(self) -> int:
        """Bytes of all tables."""
        return sum(int(array.nbytes) for array in self._lists) + self._cells.memory_bytes()

    def check_rows(self, live: Rows) -> None:
        """Each row stands under one of its words, in cells or once within its block's hull."""
        t = self._lists
        assert np.array_equal(np.flatnonzero(t.home >= 0), live)
        here = np.flatnonzero(t.where >= 0)
        assert np.array_equal(t.row[t.where[here]], here)
        self._cells.check_rows(live[t.where[live] == kernels.IN_CELLS], t.home)
        frequency = np.zeros_like(t.frequency)
        for row in live.tolist():
            words = self._clauses.words(row)
            frequency[words] += 1
            assert t.home[row] in words
            if t.where[row] == kernels.IN_CELLS:
                continue
            start, length, ordered, _, _ = t.head[t.home[row]].tolist()
            at = int(t.where[row]) - start
            assert 0 <= at < length
            if at < ordered:
                k = int(t.where[row])
                for j in range(2):
                    low, high = kernels.side(k, j), kernels.side(k, j + 2)
                    block = k // kernels.BLOCK
                    assert t.hull[kernels.side(block, j)] <= t.box[low]
                    assert t.box[high] <= t.hull[kernels.side(block, j + 2)]
        assert np.array_equal(frequency, t.frequency)
        assert here.size == t.head[:, kernels.LENGTH].sum() - t.dead.sum()
        assert len(self) == live.size == here.size + len(self._cells)
