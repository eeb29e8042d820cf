"""Clauses with a place, by cell and word: `pivot`'s cells. See `kernels` for how a match works."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, Pairs, Rows
from nearcast.index.columns import grown
from nearcast.index.pivot.word_cells import kernels
from nearcast.index.pivot.word_cells.kernels import Cells

__all__ = ["NO_BOXES", "Boxes", "WordCells"]

I4 = npt.NDArray[np.int32]
F8 = npt.NDArray[np.float64]
Boxes = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: For events at points.
NO_BOXES: Boxes = np.empty((0, 4))
_CLASSES = 20
#: A clause so many times as large as most would stand in too many cells.
_WIDE = 8.0
#: How much larger than the places of today the grid is, on each side.
_MARGIN = 1.0


def _no_cells(plan: F8, nodes: int, places: int) -> Cells:
    return Cells(
        child=np.zeros(nodes, np.int32),
        head=np.zeros((nodes, 5), np.int64),
        shelf=np.zeros(places // 4 + 1, np.int32),
        word=np.empty(places, np.int32),
        sides=np.empty(places, np.uint64),
        rest=np.empty((places, 4), np.int32),
        plan=plan,
        used=np.zeros(3, np.int64),
        free=np.full(_CLASSES, -1, np.int64),
    )


class WordCells:
    """Rows that have a place, each under a word that its holder has chosen.

    Adding or removing one takes microseconds; a cell is put in order, or divided, once in some
    dozens of additions.
    """

    def __init__(self, clauses: ClauseStore) -> None:
        self._clauses = clauses
        self._cells = _no_cells(np.zeros(4), 1, 0)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def worn(self) -> bool:
        """Whether many came from outside of the grid: a new one would be divided better."""
        return 4 * int(self._cells.used[2]) > self._count + 4096

    def build(self, rows: Rows, home: I4) -> Flags:
        """Hold those of the rows that cells are good for, and nothing else; tells which."""
        t = self._clauses.table
        fit: Flags
        fit, size = kernels.placed(t.start, t.count, t.attr, t.low, t.high, rows)
        most = size[fit]
        with np.errstate(all="ignore"):  # any plan is right; one over such numbers is slow
            if most.size:
                fit &= size <= _WIDE * np.partition(most, most.size // 2)[most.size // 2]
            hull = kernels.extent(t.start, t.low, t.high, rows[fit])
            side = np.maximum(hull[2:] - hull[:2], np.finfo(float).tiny)
            scale = 2.0**kernels.BITS / ((1 + 2 * _MARGIN) * side)
            plan = np.nan_to_num(np.concatenate([hull[:2] - _MARGIN * side, scale]))
        while True:
            chosen = rows[fit]
            lines = kernels.all_lines(t.start, t.low, t.high, chosen, plan)
            child, cells, item = kernels.divided(lines)
            crowded = kernels.crowded(cells, item, chosen.size)
            if not crowded.any():
                break
            fit[np.flatnonzero(fit)[crowded]] = False
        word, rest = kernels.entries_of(
            t.count, t.extra, t.word_start, t.word_count, t.word, chosen, home
        )
        places = int(kernels.places_for(cells))
        # Room for cells that move, or the first of them would wait for a copy of all.
        table = _no_cells(plan, child.size + child.size // 8 + 64, places + (places >> 3))
        table.child[: child.size] = child
        kernels.fill(table, t.start, t.low, t.high, cells, item, word, rest)
        table.used[1] = child.size
        self._cells = table
        self._count = chosen.size
        return fit

    def insert(self, rows: Rows, home: I4) -> Flags:
        """Take in those of the rows that cells are good for; tells which."""
        t = self._clauses.table
        taken = np.zeros(rows.size, bool)
        done = 0
        try:
            while done < rows.size:
                done, places = kernels.insert_many(
                    self._cells, t.start, t.count, t.attr, t.low, t.high,
                    t.extra, t.word_start, t.word_count, t.word, rows, home, taken, done,
                )  # fmt: skip
                if places:
                    self.grow(int(places))
        except BaseException:  # no memory, or an interrupt: none of them comes
            kernels.remove_many(self._cells, t.start, t.low, t.high, rows[taken], home)
            raise
        self._count += int(np.count_nonzero(taken))
        return taken

    def insert_one(self, row: int, word: int) -> bool:
        """Take a row in under a word, in little time; False if it takes more."""
        c = self._clauses.table
        done: bool = kernels.insert_one(
            c.start, c.count, c.attr, c.low, c.high,
            c.extra, c.word_start, c.word_count, c.word, *self._cells, np.int32(word), row,
        )  # fmt: skip
        self._count += done
        return done

    def remove_one(self, row: int, word: int) -> None:
        """Forget a row that is here."""
        c = self._clauses.table
        self._count -= 1
        kernels.remove_one(c.start, c.low, c.high, *self._cells, np.int32(word), row)

    def note_one(self) -> None:
        """Count a row that came in beside `insert`."""
        self._count += 1

    def forget_one(self) -> None:
        """Count a row less, which was taken out beside `remove`."""
        self._count -= 1

    @property
    def table(self) -> Cells:
        """For kernels of who holds the cells."""
        return self._cells

    def grow(self, places: int) -> None:
        """Room for so many more entries, and for the nodes of one addition."""
        t = self._cells
        word = grown(t.word, int(t.used[0]) + places)
        nodes = int(t.used[1]) + 4 * kernels.MOST_CELLS
        self._cells = t._replace(
            word=word,
            child=grown(t.child, nodes),
            head=grown(t.head, nodes),
            shelf=grown(t.shelf, word.size // 4 + 1),
            sides=grown(t.sides, word.size),
            rest=grown(t.rest, word.size),
        )

    def remove(self, rows: Rows, home: I4) -> None:
        """Forget rows, all of which are here."""
        t = self._clauses.table
        self._count -= rows.size
        kernels.remove_many(self._cells, t.start, t.low, t.high, rows, home)

    def match(
        self, batch: EventBatch, boxes: Boxes, first: int, stop: int, counters: Counters
    ) -> Pairs:
        """(events counted from `first`, rows), in the order of events."""
        c, t = self._clauses.table, self._cells
        found: Pairs = kernels.match(
            c.start, c.count, c.attr, c.low, c.high,
            c.extra, c.word_start, c.word_count, c.word,
            t.child, t.head, t.shelf, t.word, t.sides, t.rest, t.plan,
            batch.start, batch.attr, batch.value, batch.word_start, batch.word,
            boxes, first, stop, max(1, self._clauses.word_codes), counters,
        )  # fmt: skip
        return found

    def memory_bytes(self) -> int:
        """Bytes of all tables."""
        return sum(int(array.nbytes) for array in self._cells)

    def check_rows(self, rows: Rows, home: I4) -> None:
        """Each row stands in the cells that it reaches, once, by board, with its own sides."""
        t = self._cells
        c = self._clauses.table
        lines = kernels.all_lines(c.start, c.low, c.high, rows, t.plan)
        wanted: dict[int, set[int]] = {}
        where: dict[int, tuple[int, int, int]] = {}
        for row, its in zip(rows.tolist(), lines.tolist(), strict=True):
            met, n = kernels.cells_met(t.child, *its, np.empty((1, 4), np.int64))
            for node, x, y, bits in met[:n].tolist():
                wanted.setdefault(node, set()).add(row)
                where[node] = x, y, bits
        by_row = dict(zip(rows.tolist(), lines.tolist(), strict=True))
        for node in range(int(t.used[1])):
            start, length, ordered, room, dead = t.head[node].tolist()
            assert not (t.child[node] and length)
            assert 0 <= ordered <= length <= room
            entries = np.arange(start, start + length)
            live = entries[t.rest[entries, kernels.ROW] != kernels.GONE]
            found = [int(kernels.row_of(t.rest[k, kernels.ROW])) for k in live]
            assert len(found) == length - dead == len(set(found))
            assert set(found) == wanted.get(node, set())
            for k, row in zip(live.tolist(), found, strict=True):
                assert t.word[k] == max(home[row], 0)
                assert t.sides[k] == kernels.sides_in(*by_row[row], *where[node])
                if k < start + ordered:
                    board = start // 4 + (int(t.word[k]) & (kernels.boards_of(room) - 1))
                    assert t.shelf[board] <= k - start < t.shelf[board + 1]
        assert self._count == rows.size
