"""Clauses without words, for events that are everywhere in a box.

Tiles take points. Clauses that have a place stand in cells beside them (`word_cells`), all under
one word; few are too large for that, and are compared one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, Pairs, Rows
from nearcast.index.columns import grown
from nearcast.index.pivot import kernels
from nearcast.index.pivot.word_cells import Boxes, WordCells
from nearcast.kernels.tokens import scan_rows

__all__ = ["PlacedClauses", "bytes_expected", "without_places"]

_ELSEWHERE, _IN_CELLS, _ASIDE = 0, 1, 2
#: Bytes of a clause that has a place (a million of `mo`), and of any row.
_TAKES, _AT_LEAST = 100, 5


class PlacedClauses:
    """Those of some rows that have a place."""

    def __init__(self, clauses: ClauseStore, rows: Rows) -> None:
        self._clauses = clauses
        self._cells = WordCells(clauses)
        self._aside: Rows = np.empty(0, np.int32)
        self._where = np.zeros(clauses.rows, np.int8)
        self._home = np.zeros(clauses.rows, np.int32)
        """By row: the word of all, 0."""
        self._keep(rows, self._cells.build(rows, self._home))

    @property
    def worn(self) -> bool:
        """Whether it should be made anew."""
        return self._cells.worn

    def _keep(self, rows: Rows, taken: npt.NDArray[np.bool_]) -> None:
        """Note which rows are in cells, and set aside those of the others that have a place."""
        self._where[rows[taken]] = _IN_CELLS
        aside, _ = self._clauses.placed(rows[~taken])
        self._where[aside] = _ASIDE
        self._aside = np.concatenate([self._aside, aside])

    def add(self, rows: Rows) -> None:
        """Take rows in, whether they have a place or not."""
        if rows.size == 1 and rows[0] < self._where.size and self._cells.insert_one(rows[0], 0):
            self._where[rows[0]] = _IN_CELLS
            return
        size = self._where.size
        self._where = grown(self._where, self._clauses.rows)
        self._where[size:] = _ELSEWHERE
        self._home = grown(self._home, self._clauses.rows)
        self._home[size:] = 0
        self._keep(rows, self._cells.insert(rows, self._home))

    def remove(self, rows: Rows) -> None:
        """Forget rows, whether they have a place or not."""
        rows = rows[rows < self._where.size]  # some may never have come
        if rows.size == 1 and self._where[rows[0]] == _IN_CELLS:
            self._where[rows[0]] = _ELSEWHERE
            self._cells.remove_one(rows[0], 0)
            return
        where = self._where[rows]
        self._where[rows] = _ELSEWHERE
        if (where == _IN_CELLS).any():
            self._cells.remove(rows[where == _IN_CELLS], self._home)
        if (where == _ASIDE).any():
            self._aside = self._aside[self._where[self._aside] == _ASIDE]

    def match(self, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        """(events, rows) as if each event were everywhere in its box, in the order of events."""
        worded = batch._replace(
            word_start=np.arange(batch.size + 1), word=np.zeros(batch.size, np.int32)
        )
        found = self._cells.match(worded, boxes, 0, batch.size, counters)
        if not self._aside.size:
            return found
        more = scan_rows(self._clauses.table, self._aside, batch, boxes, counters)
        both: Pairs = kernels.merged(*found, *more)
        return both

    def memory_bytes(self) -> int:
        """Bytes of all tables."""
        own = int(self._where.nbytes + self._home.nbytes + self._aside.nbytes)
        return own + self._cells.memory_bytes()

    def check_rows(self, rows: Rows) -> None:
        """Raise AssertionError unless it holds those of the rows that have a place."""
        placed, _ = self._clauses.placed(rows)
        assert np.array_equal(np.flatnonzero(self._where), np.sort(placed))
        assert np.array_equal(np.sort(self._aside), np.flatnonzero(self._where == _ASIDE))
        here = np.flatnonzero(self._where == _IN_CELLS).astype(np.int32)
        self._cells.check_rows(here, self._home)


def bytes_expected(clauses: ClauseStore, rows: Rows) -> int:
    """About how many bytes `PlacedClauses` of these rows will take."""
    return _TAKES * int(clauses.placed(rows)[0].size) + _AT_LEAST * clauses.rows + 4096


def without_places(batch: EventBatch) -> EventBatch:
    """The events without x and y, which satisfy no clause with a place."""
    if not batch.attr.size or int(batch.attr.min()) > 1:
        return batch
    start, stop = int(batch.start[0]), int(batch.start[-1])
    kept = batch.attr[start:stop] > 1
    ends = np.concatenate([[0], np.cumsum(kept)])[batch.start - start]
    return batch._replace(
        start=ends, attr=batch.attr[start:stop][kept], value=batch.value[start:stop][kept]
    )
