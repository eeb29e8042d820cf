"""The clause store: every clause's predicates and words in flat arrays, one row a clause.

10 predicates cost 10 × 18 bytes and 14 bytes more for the row. Words, exact shapes and
residual predicates are kept in a side row (`extra`), which most clauses lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.errors import CapacityError
from nearcast.index.clause_runs import ClauseRuns, arrange_into
from nearcast.index.columns import Spans, grown, items_of, scatter, take_rows
from nearcast.kernels import arrange
from nearcast.kernels.geometry import CIRCLE
from nearcast.kernels.rows import counts_of, write_clause
from nearcast.model.predicates import residual_bytes

__all__ = [
    "NO_EXTRA",
    "ClauseBatch",
    "ClauseStore",
    "Clauses",
    "Extra",
    "batch_of",
    "table_of_one",
]

I4 = npt.NDArray[np.int32]
F8 = npt.NDArray[np.float64]

#: `extra` of a clause with neither words nor shapes nor residuals.
NO_EXTRA = -1
_MOST_PREDICATES = 65_535
#: Columns whose numbers fit 16 bits.
_MOST_NARROW = 65_536


class Clauses(NamedTuple):
    """What kernels see. Row r's predicates are start[r] … start[r] + count[r]."""

    start: npt.NDArray[np.uint32]
    count: npt.NDArray[np.uint16]  # type: ignore[assignment]  # hides tuple.count, unused
    owner: I4
    """The subscription's slot, −1 for a free row."""
    extra: I4
    attr: npt.NDArray[np.uint16]
    """Column of each predicate (uint32 beyond 65 535 columns)."""
    low: F8
    high: F8
    word_start: npt.NDArray[np.uint32]
    """By `extra`, not by row."""
    word_count: npt.NDArray[np.uint16]
    word: I4
    """Word codes, ascending within a clause."""
    shape_start: npt.NDArray[np.uint32]
    """By `extra`: first float of the clause's shapes, see `nearcast.kernels.geometry`."""
    shape_count: npt.NDArray[np.uint16]
    shape: F8
    """Shapes one after another: kind, number of floats, floats."""


#: Where every store begins; arrays without items can be shared.
_NO_CLAUSES = Clauses(
    start=np.empty(0, np.uint32),
    count=np.empty(0, np.uint16),
    owner=np.empty(0, np.int32),
    extra=np.empty(0, np.int32),
    attr=np.empty(0, np.uint16),
    low=np.empty(0),
    high=np.empty(0),
    word_start=np.empty(0, np.uint32),
    word_count=np.empty(0, np.uint16),
    word=np.empty(0, np.int32),
    shape_start=np.empty(0, np.uint32),
    shape_count=np.empty(0, np.uint16),
    shape=np.empty(0),
)
#: Start, owner and extra of the only row of a table; never written to.
_FIRST, _OWNED = np.zeros(1, np.uint32), np.zeros(1, np.int32)
_BARE = np.full(1, NO_EXTRA, np.int32)
_OF_ROWS = ("start", "count", "owner", "extra")
_NO_EXTRAS = _NO_CLAUSES[7:]
#: Words and shapes of the only extra of a table, but for the shape itself.
_ONE_SHAPE = (
    _FIRST, np.zeros(1, np.uint16), np.empty(0, np.int32), _FIRST, np.ones(1, np.uint16),
)  # fmt: skip
_OF_PREDICATES = ("attr", "low", "high")
_OF_EXTRAS = ("word_start", "word_count", "shape_start", "shape_count")


class Extra(NamedTuple):
    """What a clause has beside its intervals."""

    words: Sequence[int] = ()
    shapes: Sequence[tuple[int, Sequence[float]]] = ()
    """(kind, floats) of regions whose intervals on x and y are not exact."""
    residuals: tuple[Any, ...] = ()
    """Predicates that only the matcher can test, opaque here."""


def table_of_one(
    attr: I4, low: F8, high: F8, columns: int, circle: Sequence[float] | None = None
) -> Clauses:
    """A table to look at, whose row 0 is a clause of nothing but intervals on so many columns.

    And a circle, if one is given: x, y, radius. Takes 2 µs, a store of its own 35.
    """
    size = np.array((attr.size,), np.uint16)
    narrow: Any = attr.astype(np.uint16 if columns <= _MOST_NARROW else np.uint32)
    if circle is None:
        return Clauses(_FIRST, size, _OWNED, _BARE, narrow, low, high, *_NO_EXTRAS)
    shape = np.array((CIRCLE, 3.0, *circle))
    return Clauses(_FIRST, size, _OWNED, _OWNED, narrow, low, high, *_ONE_SHAPE, shape)


class ClauseBatch(NamedTuple):
    """Encoded clauses to append: predicates and words as runs (n + 1 offsets)."""

    owner: I4
    start: npt.NDArray[np.int64]
    attr: I4
    low: F8
    high: F8
    extras: dict[int, Extra]
    """By position in the batch; for the few. Bulk words and circles come as arrays below."""
    word_start: npt.NDArray[np.int64] | None = None
    word: I4 | None = None
    circle: F8 | None = None
    """(n, 3): x, y, radius; NaN in x for none."""

    @property
    def size(self) -> int:
        """Number of clauses."""
        return int(self.owner.size)

    @property
    def wordless(self) -> int:
        """Number of clauses that ask for no word."""
        worded = sum(bool(extra.words) for extra in self.extras.values())
        if self.word_start is not None:
            worded += int(np.count_nonzero(np.diff(self.word_start)))
        return self.size - worded


def batch_of(runs: ClauseRuns) -> ClauseBatch:
    """The same clauses, each by its position."""
    rows, start, attr, low, high = arrange.arrange(*runs.given())
    return ClauseBatch(rows, start, attr, low, high, {})


class ClauseStore:
    """Rows of clauses that come and go. Freed rows and runs are used again.

    `table` is what kernels take; fetch it anew after each change, arrays may have moved. Clauses
    that were `put_off` are taken in when somebody asks for it.
    """

    def __init__(self) -> None:
        self.rows = 0
        """Rows ever used, free ones included."""
        self.columns = 2
        """One more than the highest column of any predicate so far."""
        self.word_codes = 0
        """One more than the highest word code of any clause so far."""
        self._free_rows: list[int] = []
        self._predicates = Spans()
        self._extra_rows = 0
        self._free_extras: list[int] = []
        self._words = Spans()
        self._shapes = Spans()
        self.residuals: dict[int, tuple[Any, ...]] = {}
        """Row → residual predicates, where there are any."""
        self._residual_bytes = 0
        self._table = _NO_CLAUSES
        self.later: tuple[ClauseRuns, ...] = ()
        """What was put off; then it is all there is."""
        self._owners: list[tuple[I4, I4]] = []
        """Rows of those, and whose they are."""
        self._arriving = Lock()

    def __getstate__(self) -> dict[str, Any]:
        self._arrive()
        passing = {"later", "_owners", "_arriving"}
        return {name: value for name, value in vars(self).items() if name not in passing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, later=(), _owners=[], _arriving=Lock())

    @property
    def table(self) -> Clauses:
        """All clauses."""
        if self.later:
            self._arrive()
        return self._table

    @table.setter
    def table(self, table: Clauses) -> None:
        self._table = table

    def __len__(self) -> int:
        return self.rows - len(self._free_rows)

    @property
    def has_extras(self) -> bool:
        """Whether any clause so far had words, shapes or residuals."""
        return self._extra_rows > 0

    @property
    def has_shapes(self) -> bool:
        """Whether any clause so far had a region that is no box."""
        return self._shapes.used > 0

    # -- growing ---------------------------------------------------------------

    def reserve(self, rows: int, predicates: int) -> None:
        """Make room for so many more."""
        self._arrive()
        fresh = max(0, rows - len(self._free_rows))
        self._reserve(self.rows + fresh, self._predicates.used + predicates, 0, 0, 0)

    def _reserve(self, rows: int, predicates: int, extras: int, words: int, shapes: int) -> None:
        t = self._table
        short = [
            (size, names)
            for have, size, names in (
                (t.start.size, rows, _OF_ROWS),
                (t.attr.size, predicates, _OF_PREDICATES),
                (t.word_start.size, extras, _OF_EXTRAS),
                (t.word.size, words, ("word",)),
                (t.shape.size, shapes, ("shape",)),
            )
            if size > have
        ]
        if not short:
            return
        if predicates >= 2**32 or words >= 2**32 or shapes >= 2**32:
            raise CapacityError(
                "predicates of one matcher", max(predicates, words, shapes), 2**32,
                "split the subscriptions over several matchers",
            )  # fmt: skip
        larger = {name: grown(getattr(t, name), size) for size, names in short for name in names}
        self._table = t._replace(**larger)

    def _widen(self) -> None:
        """Make room for column numbers that do not fit 16 bits."""
        if self.columns > _MOST_NARROW and self._table.attr.dtype == np.uint16:
            self._table = self._table._replace(attr=self._table.attr.astype(np.uint32))

    # -- putting off -----------------------------------------------------------

    def put_off(self, parts: Sequence[ClauseRuns]) -> I4 | None:
        """Add clauses that are taken in later; returns their rows.

        None where not all that is here was put off as well: then `extend`.
        """
        with self._arriving:
            if self.rows and not self.later:
                return None
            first = self.rows
            self.columns = max(self.columns, *(part.columns for part in parts))
            self.rows += sum(part.size for part in parts)
            self.later += tuple(parts)
            return np.arange(first, self.rows, dtype=np.int32)

    def take_back(self, first: int) -> bool:
        """Undo what was put off from row `first` on; whether that was still possible."""
        with self._arriving:
            kept, rows = 0, 0
            while kept < len(self.later) and rows < first:
                rows += self.later[kept].size
                kept += 1
            if not self.later or rows != first:
                return False
            self.later, self.rows = self.later[:kept], first
            return True

    def own(self, rows: I4, owners: I4) -> None:
        """Say whose rows are that had no owner."""
        with self._arriving:
            if self.later:
                self._owners.append((rows, owners))
            else:
                self._table.owner[rows] = owners

    def _arrive(self) -> None:
        """Take in what was put off, or wait for who does."""
        if not self.later:
            return
        with self._arriving:
            if not self.later:  # somebody else has
                return
            parts = [*self.later]
            total = sum(part.predicates for part in parts)
            self._widen()
            self._reserve(self.rows, total, 0, 0, 0)
            t = self._table
            t.owner[: self.rows] = -1
            t.extra[: self.rows] = NO_EXTRA
            t.count[: self.rows] = np.concatenate([part.lengths for part in parts])
            t.start[: self.rows] = arrange_into(parts, t.attr, t.low, t.high)
            for rows, owners in self._owners:
                t.owner[rows] = owners
            self._predicates.used = total
            self._owners.clear()
            self.later = ()  # last: until then, others wait

    # -- adding ----------------------------------------------------------------

    def append(
        self,
        owner: int,
        attr: Sequence[int] | I4,
        low: Sequence[float] | F8,
        high: Sequence[float] | F8,
        extra: Extra | None,
    ) -> int:
        """Add one clause, within limits (`check_clause`); returns its row."""
        attr, low, high = np.asarray(attr, np.int32), np.asarray(low), np.asarray(high)
        if attr.size:
            highest = max(attr.tolist())
            if highest >= self.columns:
                self.columns = highest + 1
                self._widen()
        row, start = self.take(attr.size)
        t = self.table
        write_clause(
            t.start, t.count, t.owner, t.extra, t.attr, t.low, t.high, row, start, attr, low, high
        )
        if extra is not None and (extra.words or extra.shapes or extra.residuals):
            self._add_extra(row, extra)
        self.table.owner[row] = owner
        return row

    def take(self, size: int) -> tuple[int, int]:
        """A free row and the place of a run of so many predicates."""
        self._arrive()
        start = self._predicates.take(size)
        row = self._free_rows[-1] if self._free_rows else self.rows
        if row >= self.table.start.size or self._predicates.used > self.table.attr.size:
            self._reserve(max(self.rows, row + 1), self._predicates.used, 0, 0, 0)
        if self._free_rows:
            self._free_rows.pop()
        else:
            self.table.owner[row] = -1
            self.rows += 1
        return row, start

    def take_plain(self, size: int) -> int:
        """A row for a clause of so many intervals and nothing else, which are still to come."""
        row, start = self.take(size)
        t = self.table
        t.start[row], t.count[row], t.extra[row] = start, size, NO_EXTRA
        return row

    def put_back(self, row: int, start: int, size: int) -> None:
        """Undo `take`."""
        self._predicates.give_back(start, size)
        self.table.owner[row] = -1
        self.table.count[row] = 0
        self.table.extra[row] = NO_EXTRA
        self._free_rows.append(row)

    def take_circle(self, x: float, y: float, radius: float) -> int:
        """A side row with a circle, for a clause that has nothing else beside its intervals."""
        place = self._free_extras[-1] if self._free_extras else self._extra_rows
        start = self._shapes.take(5)
        t = self.table
        if place >= t.word_start.size or self._shapes.used > t.shape.size:
            self._reserve(0, 0, place + 1, 0, self._shapes.used)
            t = self.table
        if self._free_extras:
            self._free_extras.pop()
        else:
            self._extra_rows += 1
        t.word_start[place] = t.word_count[place] = 0
        t.shape_start[place] = start
        t.shape_count[place] = 1
        t.shape[start : start + 5] = CIRCLE, 3, x, y, radius
        return place

    def put_back_circle(self, place: int) -> None:
        """Undo `take_circle`."""
        self._shapes.give_back(int(self.table.shape_start[place]), 5)
        self._free_extras.append(place)

    def _add_extra(self, row: int, extra: Extra) -> None:
        place = self._free_extras.pop() if self._free_extras else self._extra_rows
        self._extra_rows = max(self._extra_rows, place + 1)
        words = sorted(extra.words)
        if words:
            self.word_codes = max(self.word_codes, words[-1] + 1)
        floats: list[float] = []
        for kind, numbers in extra.shapes:
            floats += [float(kind), float(len(numbers)), *numbers]
        word_start = self._words.take(len(words))
        shape_start = self._shapes.take(len(floats))
        self._reserve(0, 0, self._extra_rows, self._words.used, self._shapes.used)
        t = self.table
        t.word_start[place] = word_start
        t.word_count[place] = len(words)
        t.word[word_start : word_start + len(words)] = words
        t.shape_start[place] = shape_start
        t.shape_count[place] = len(extra.shapes)
        t.shape[shape_start : shape_start + len(floats)] = floats
        t.extra[row] = place
        if extra.residuals:
            self.residuals[row] = extra.residuals
            self._residual_bytes += residual_bytes(extra.residuals)

    def extend(self, batch: ClauseBatch) -> I4:
        """Add many clauses, within limits (`check_limits`); returns their rows."""
        self._arrive()
        counts = np.diff(batch.start)
        if batch.attr.size:
            self.columns = max(self.columns, int(batch.attr.max()) + 1)
            self._widen()
        self.reserve(batch.size, batch.attr.size)
        first, fresh = self.rows, not self._free_rows
        rows = take_rows(self._free_rows, first, batch.size)
        self.rows = max(first, int(rows.max(initial=-1)) + 1)
        at: Any = slice(first, self.rows) if fresh else rows  # a slice is quicker
        starts = self._predicates.take_many(counts)
        t = self.table
        t.start[at] = starts
        t.count[at] = counts
        t.extra[at] = NO_EXTRA
        columns = (t.low, batch.low), (t.high, batch.high), (t.attr, batch.attr)
        scatter([*columns], starts, batch.start)
        t.owner[at] = batch.owner
        self._extend_extras(rows, batch)
        for position, extra in batch.extras.items():
            self._add_extra(int(rows[position]), extra)
        return rows

    @staticmethod
    def check_clause(predicates: int, words: int) -> None:
        """Refuse a clause with more predicates or words than a row can count."""
        for what, number in (("predicates", predicates), ("words", words)):
            if number > _MOST_PREDICATES:
                raise CapacityError(f"{what} of one clause", number, _MOST_PREDICATES, "use fewer")

    @staticmethod
    def check_limits(batch: ClauseBatch) -> None:
        """`check_clause` for many."""
        runs = (batch.start, batch.word_start)
        ClauseStore.check_clause(
            *(0 if start is None else int(np.diff(start).max(initial=0)) for start in runs)
        )

    def _extend_extras(self, rows: I4, batch: ClauseBatch) -> None:
        """Words and circles that came as arrays."""
        if batch.word_start is None and batch.circle is None:
            return
        n = batch.size
        words = np.zeros(n + 1, np.int64) if batch.word_start is None else batch.word_start
        round_ = np.zeros(n, bool) if batch.circle is None else ~np.isnan(batch.circle[:, 0])
        having = np.flatnonzero((np.diff(words) > 0) | round_)
        word_counts = np.diff(words)[having]
        places = take_rows(self._free_extras, self._extra_rows, having.size)
        self._extra_rows = max(self._extra_rows, int(places.max(initial=-1)) + 1)
        word_starts = self._words.take_many(word_counts)
        shape_starts = self._shapes.take_many(5 * round_[having])
        self._reserve(0, 0, self._extra_rows, self._words.used, self._shapes.used)
        t = self.table
        t.word_count[places] = word_counts
        t.word_start[places] = word_starts
        if batch.word is not None:
            self.word_codes = max(self.word_codes, 1 + int(batch.word.max(initial=-1)))
            # Clauses without words have no part in them: what is left follows each other.
            offsets = np.append(words[:-1][having], words[-1])
            scatter([(t.word, batch.word)], word_starts, offsets)
        t.shape_count[places] = round_[having]
        t.shape_start[places] = shape_starts
        if batch.circle is not None:
            at = shape_starts[round_[having]]
            t.shape[at] = CIRCLE
            t.shape[at + 1] = 3.0
            for i in range(3):
                t.shape[at + 2 + i] = batch.circle[round_, i]
        t.extra[rows[having]] = places

    # -- removing --------------------------------------------------------------

    def free_rows(self) -> list[int]:
        """Rows below `rows` that hold nothing now."""
        return self._free_rows.copy()

    def release(self, row: int) -> None:
        """Free one row. The index must have forgotten it before."""
        t = self.table
        self._predicates.give_back(int(t.start[row]), int(t.count[row]))
        place = int(t.extra[row])
        if place != NO_EXTRA:
            self._words.give_back(int(t.word_start[place]), int(t.word_count[place]))
            at = start = int(t.shape_start[place])
            for _ in range(int(t.shape_count[place])):
                at += 2 + int(t.shape[at + 1])
            self._shapes.give_back(start, at - start)
            self._free_extras.append(place)
            gone = self.residuals.pop(row, None)
            if gone is not None:
                self._residual_bytes -= residual_bytes(gone)
        t.owner[row] = -1
        t.extra[row] = NO_EXTRA
        t.count[row] = 0
        self._free_rows.append(row)

    # -- looking ---------------------------------------------------------------

    def live_rows(self) -> I4:
        """All rows in use."""
        if self.later:
            return np.concatenate([np.empty(0, np.int32), *(rows for rows, _ in self._owners)])
        return np.flatnonzero(self.table.owner[: self.rows] >= 0).astype(np.int32)

    def column_counts(self) -> npt.NDArray[np.int64]:
        """By column: how many predicates are on it, roughly (freed ones may count)."""
        used = self.table.attr[: self._predicates.used]
        counts: npt.NDArray[np.int64] = counts_of(used, self.columns)
        return counts

    def shapes(self, row: int) -> list[tuple[int, F8]]:
        """(kind, floats) of the row's exact shapes."""
        t = self.table
        place = int(t.extra[row])
        if place == NO_EXTRA:
            return []
        at = int(t.shape_start[place])
        found = []
        for _ in range(int(t.shape_count[place])):
            kind, size = int(t.shape[at]), int(t.shape[at + 1])
            found.append((kind, t.shape[at + 2 : at + 2 + size]))
            at += 2 + size
        return found

    def box(self, row: int) -> tuple[float, float, float, float] | None:
        """xmin, ymin, xmax, ymax of a row's place, None if it has no region."""
        t = self.table
        at = int(t.start[row])
        if t.count[row] < 2 or t.attr[at] != 0:
            return None
        return float(t.low[at]), float(t.low[at + 1]), float(t.high[at]), float(t.high[at + 1])

    def placed(self, rows: I4) -> tuple[I4, F8]:
        """Those of the rows that have a place, and their boxes: xmin, ymin, xmax, ymax."""
        t = self.table
        rows = rows[t.count[rows] >= 2]
        rows = rows[t.attr[t.start[rows]] == 0]
        at = t.start[rows].astype(np.int64)
        return rows, np.stack((t.low[at], t.low[at + 1], t.high[at], t.high[at + 1]), axis=1)

    def plain(self, rows: I4) -> npt.NDArray[np.bool_]:
        """Whether each row's box is its region, and no residual is left to test."""
        t = self.table
        extra = t.extra[rows]
        shaped = np.zeros(rows.size, bool)
        having = extra >= 0
        shaped[having] = t.shape_count[extra[having]] > 0
        if self.residuals:
            shaped |= np.array([row in self.residuals for row in rows.tolist()], bool)
        return ~shaped

    def words(self, row: int) -> I4:
        """The row's word codes."""
        t = self.table
        place = int(t.extra[row])
        if place == NO_EXTRA:
            return np.empty(0, np.int32)
        start = int(t.word_start[place])
        return t.word[start : start + int(t.word_count[place])]

    @property
    def items(self) -> int:
        """Predicates and words, freed ones included."""
        later = sum(part.predicates for part in self.later)
        return self._predicates.used + self._words.used + later

    def codes(self) -> tuple[npt.NDArray[Any], F8, I4]:
        """Column and low end of each predicate of all live rows, and their words. O(n)."""
        t, rows = self.table, self.live_rows()
        at = items_of(t.start[rows], t.count[rows])
        extra = t.extra[rows]
        extra = extra[extra != NO_EXTRA]
        return t.attr[at], t.low[at], t.word[items_of(t.word_start[extra], t.word_count[extra])]

    def memory_bytes(self) -> int:
        """Bytes of the arrays, spare room included, and roughly of residual predicates."""
        later = sum(part.memory_bytes() for part in self.later)
        return sum(int(array.nbytes) for array in self._table) + self._residual_bytes + later

    def check_invariants(self) -> None:
        """Every live run lies in its heap, no two overlap, intervals are closed and ordered."""
        t = self.table
        rows = self.live_rows()
        assert rows.size == len(self)
        covered = np.zeros(self._predicates.used, np.int8)
        for row in rows.tolist():
            start, stop = int(t.start[row]), int(t.start[row]) + int(t.count[row])
            covered[start:stop] += 1
            assert bool((t.low[start:stop] <= t.high[start:stop]).all())
            attrs = t.attr[start:stop]
            assert np.unique(attrs).size == attrs.size
            words = self.words(row)
            assert bool((np.diff(words) > 0).all())
        assert int(covered.max(initial=0)) <= 1
        assert int((covered == 0).sum()) == self._predicates.free_items()
