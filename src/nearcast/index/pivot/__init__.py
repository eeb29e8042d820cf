"""`pivot`, ours: every clause by its most selective access path.

Clauses with words and a place stand in cells of the plane, by their rarest word; those without
a place, or with one that is too large for cells, in the list of that word.
Selective clauses, and all live events, stand in tiles of 512 whose members lie near each
other in the columns that tell most of them apart; a tree finds the tiles, and for a tile a
few cache lines decide on many members at once. Broad clauses, which so many events
satisfy that no path leads past them, are kept in a DI-Tree, whose cost does not depend on
how many match. Single additions and removals change tiles in place, without a write
buffer; while somebody matches, the matcher keeps them back (`Standing.stage`).

The first large addition is not planned at once: its clauses wait. Whole batches of events are
arranged instead, and the clauses go past them (`event_blocks`), until that has cost as much as
tiles would have, or a single call comes. So a join of few events does not pay for an index, and
whoever stays pays about twice at most. An addition
that is a fair part of all, and tiles most places of which have been left, ask for a plan
afresh: `rebuilt` makes one beside this index, which is matched meanwhile. What does take its
time while matches wait is the DI-Tree when its broad clauses have doubled.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.index.base import (
    Clauses,
    ClauseStore,
    Coming,
    Counters,
    EventBatch,
    EventStore,
    Pairs,
    Rows,
)
from nearcast.index.di_tree import DITree
from nearcast.index.pivot import kernels
from nearcast.index.pivot.boxed import PlacedClauses, bytes_expected, without_places
from nearcast.index.pivot.clause_tiles import ClauseTiles
from nearcast.index.pivot.event_blocks import Piece, joined, pieces_of_rows, pieces_of_runs
from nearcast.index.pivot.event_tiles import EventTiles
from nearcast.index.pivot.tree import F8, in_parallel
from nearcast.index.pivot.word_lists import WordLists
from nearcast.kernels.tokens import scan_rows

__all__ = ["Pivot"]


#: Share of events above which a clause is broad: tiles then pay for their matches more than
#: the DI-Tree for its clauses (some 40 ns a match against 2 ns a clause).
_BROAD = 0.05
#: Broad clauses in one addition from which on a second structure is worth its call.
_ENOUGH = 4096
#: Rows that are better taken in one by one, however few are there.
_ASIDE = 4096
#: Clauses that are looked through one by one before there are tiles: a shelf has room for
#: thousands, a megabyte of it.
_FEW = 64
#: About what it costs to plan and fill tiles, a clause, in nanoseconds of one core: twice the
#: 0.7 µs that two cores take at a million of `mo`. See `joined`.
_PLANNED = 1400.0


class Pivot:
    """Word lists, clause tiles, a DI-Tree for broad clauses, event tiles."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:
        self._store = clauses
        self._few: Rows = np.empty(0, np.int32)
        """The first clauses, while there are no more than a few."""
        self._small = True
        """Whether there are no tiles yet."""
        self._waiting: Rows | None = None
        """Clauses that no tile and no tree holds yet; then there are no others without words."""
        self._spent = 0.0
        """What it has cost to do without, in nanoseconds."""
        self._clauses = ClauseTiles(clauses)
        self._words = WordLists(clauses)
        self._broad: DITree | None = None
        self._is_broad = np.zeros(0, bool)
        """By row: whether the clause is in the DI-Tree."""
        self._bottom = np.empty(0)
        self._top = np.empty(0)
        """By column: the hull of all finite ends so far."""
        self._boxed: PlacedClauses | None = None
        """The clauses in tiles and DI-Tree once more, since an event came that was a box."""
        self._misjudged = 1.0
        """How much more than expected those took when there was no room for them."""
        self._events = EventTiles(events)
        self._making = Lock()
        """Held by who makes tiles, or what boxes are matched with; others wait for it."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_making"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._making = Lock()

    def add_clauses(self, rows: Rows) -> None:
        """Add clause rows: microseconds each, less in bulk."""
        if self._store.has_extras:
            wordy = self._words.chosen(rows)
            number = np.count_nonzero(wordy)
            if number == rows.size:
                self._words.add_clauses(rows)
                return
            if number:
                self._words.add_clauses(rows[wordy])
                rows = rows[~wordy]
        if rows.size:
            self._add_wordless(rows)

    @property
    def waits(self) -> bool:
        """Whether so many rows as come now may wait as well: nobody has asked for tiles yet."""
        return self._waiting is not None or (self._small and not self._few.size)

    def prepare(self) -> None:
        """Make the tiles that were put off; the first match would. Within a match, too."""
        if self._waiting is not None:
            self._take_in()

    def _take_in(self) -> None:
        """Plan what waits, or wait for who does."""
        with self._making:
            rows = self._waiting
            if rows is None:  # somebody else has made them
                return
            self._small = False
            try:
                self._plan(rows)
            except BaseException:  # no memory, or an interrupt: to be done again
                self._clauses, self._broad = ClauseTiles(self._store), None
                self._is_broad, self._small = np.zeros(0, bool), True
                raise
            self._waiting = None  # last: until then, others wait

    def join(self, batch: EventBatch, threads: int) -> Pairs | None:
        """`match_events` without tiles, on so many threads; None where tiles are the better way."""
        rows = self._waiting
        if rows is None or len(self._words) or not batch.size:
            return None
        left = rows.size * _PLANNED - self._spent
        found, cost = joined(self._pieces(rows), batch, threads, left)
        self._spent += cost
        return found

    def _pieces(self, rows: Rows) -> list[Piece]:
        """Rows that wait, as the store has them. Some more may have come that are not ours yet."""
        later = self._store.later  # may be taken in at any moment
        return (
            pieces_of_runs(later, rows.size) if later else pieces_of_rows(self._store.table, rows)
        )

    def _add_wordless(self, rows: Rows) -> None:
        if self._waiting is not None:
            if rows.size > _FEW:
                self._waiting = np.concatenate([self._waiting, rows])
                return
            self.prepare()
        if self._small:
            rows = np.concatenate([self._few, rows])
            self._small = rows.size <= _FEW
            self._few = rows if self._small else rows[:0]
            if self._small:
                return
        if self._boxed is not None:
            self._box(rows)
        self._plan(rows)

    def _plan(self, rows: Rows) -> None:
        """Add rows to tiles or, the broad ones, to the DI-Tree."""
        if self._broad is None and rows.size < _ENOUGH:
            self._clauses.add_clauses(rows)
            return
        broad = self._shares(rows) > _BROAD
        if self._broad is None and np.count_nonzero(broad) >= _ENOUGH:
            self._broad = DITree(self._store, EventStore())
        if self._broad is None or not broad.any():
            self._clauses.add_clauses(rows)
            return
        if self._is_broad.size < self._store.rows:
            flags = self._is_broad
            self._is_broad = np.zeros(self._store.rows + self._store.rows // 8, bool)
            self._is_broad[: flags.size] = flags
        self._is_broad[rows] = broad
        self._broad.add_clauses(rows[broad])
        self._clauses.add_clauses(rows[~broad])

    def exchange_clauses(self, going: Rows, coming: Rows) -> None:
        """Forget clause rows and add others."""
        self.remove_clauses(going)
        self.add_clauses(coming)

    @property
    def one_step(self) -> ClauseTiles | None:
        """Where a plain subscription comes or moves in one step, from its id to its tile."""
        self.prepare()
        alone = not self._small and self._broad is None and self._boxed is None
        return self._clauses if alone else None

    def _box(self, rows: Rows) -> None:
        """Let boxes meet these rows, too; so many that all should be planned afresh, later."""
        assert self._boxed is not None
        if self._boxed.worn or self.outgrown(int(rows.size)):
            self._boxed = None
        else:
            made, self._boxed = self._boxed, None  # if this fails, it is made anew
            made.add(rows)
            self._boxed = made

    @property
    def worn(self) -> bool:
        """Whether most places of the tiles have been left, or cells are in the wrong place."""
        return self._clauses.worn or self._words.worn

    def outgrown(self, rows: int) -> bool:
        """Whether so many more rows are a fair part of all: planning afresh then pays."""
        return rows > _ASIDE and 4 * rows > len(self._store)

    def rebuilt(self, rows: Rows, *, wait: bool = False) -> Pivot:
        """A new one with these clauses and the same live events; they may `wait` for matches."""
        fresh = Pivot(self._store, EventStore())
        fresh._events = self._events
        if wait:
            fresh._waiting, fresh._spent = rows[:0], self._spent
        fresh.add_clauses(rows)
        return fresh

    def _shares(self, rows: Rows) -> npt.NDArray[np.float64]:
        """The share of events that each clause is expected to let through."""
        t, columns = self._store.table, self._store.columns
        if columns > self._bottom.size:
            more = columns - self._bottom.size
            self._bottom = np.concatenate([self._bottom, np.full(more, np.inf)])
            self._top = np.concatenate([self._top, np.full(more, -np.inf)])
        shares = np.ones(rows.size)
        clauses = t.start, t.count, t.attr, t.low, t.high

        def widen(first: int, stop: int) -> None:
            bottom, top = self._bottom.copy(), self._top.copy()
            kernels.widen_hulls(*clauses, rows[first:stop], bottom, top)
            hulls.append((bottom, top))

        def weigh(first: int, stop: int) -> None:
            given = rows[first:stop], self._bottom, self._top
            kernels.expected_shares(*clauses, *given, shares[first:stop])

        hulls: list[tuple[F8, F8]] = []
        in_parallel(widen, rows.size, least=_ASIDE)
        self._bottom = np.min([bottom for bottom, _ in hulls], axis=0)
        self._top = np.max([top for _, top in hulls], axis=0)
        in_parallel(weigh, rows.size, least=_ASIDE)
        return shares

    def remove_clauses(self, rows: Rows) -> None:
        """Forget clause rows."""
        if len(self._words):
            wordy = self._words.holds(rows)
            number = np.count_nonzero(wordy)
            if number == rows.size:
                self._words.remove_clauses(rows)
                return
            if number:
                self._words.remove_clauses(rows[wordy])
                rows = rows[~wordy]
        if rows.size:
            self.prepare()
        if self._small:
            self._few = self._few[~np.isin(self._few, rows)]
            return
        if self._boxed is not None:
            self._boxed.remove(rows)
        if self._broad is None:
            self._clauses.remove_clauses(rows)
            return
        known = rows < self._is_broad.size
        broad = np.zeros(rows.size, bool)
        broad[known] = self._is_broad[rows[known]]
        self._is_broad[rows[broad]] = False
        self._broad.remove_clauses(rows[broad])
        self._clauses.remove_clauses(rows[~broad])

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """The clause rows that want event `at`."""
        self.prepare()
        if self._small:
            found = self._look_through(batch, at, at + 1, counters)[1]
        else:
            found = self._clauses.match_event(batch, at, counters)
        if self._broad is not None:
            found = np.concatenate([found, self._broad.match_event(batch, at, counters)])
        if batch.word.size and len(self._words):
            more = self._words.match(batch, at, at + 1, counters)[1]
            found = np.concatenate([found, more]) if found.size else more
        return found

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """(event numbers, clause rows): the events of a batch share each tile they meet."""
        self.prepare()
        if self._small:
            found = self._look_through(batch, 0, batch.size, counters)
        else:
            found = self._clauses.match_events(batch, counters)
        if self._broad is not None:
            found = _merged(found, self._broad.match_events(batch, counters))
        if batch.word.size and len(self._words):
            found = _merged(found, self._words.match(batch, 0, batch.size, counters))
        return found

    def match_boxes(
        self,
        batch: EventBatch,
        boxes: npt.NDArray[np.float64],
        counters: Counters,
        room: int | None = None,
    ) -> Pairs:
        """`match_events` as if event i were everywhere in boxes[i].

        The first call makes cells of the clauses without words: a second for a million. From
        then on they are kept up to date. Where they would take more than `room` bytes, such
        clauses are compared one by one.
        """
        self.prepare()
        if self._small:
            t = self._store.table
            found: Pairs = (self._few, self._few)
            if self._few.size:
                found = scan_rows(t, self._few, batch, boxes, counters)
        else:
            found = self._boxes_met(batch, boxes, counters, room)
        if batch.word.size and len(self._words):
            found = _merged(found, self._words.match_boxes(batch, boxes, counters))
        return found

    def _boxes_met(
        self,
        batch: EventBatch,
        boxes: npt.NDArray[np.float64],
        counters: Counters,
        room: int | None,
    ) -> Pairs:
        """`match_boxes` for the clauses in tiles and DI-Tree."""
        boxed = self._made_for_boxes(room)
        if boxed is None:
            found: Pairs = scan_rows(self._store.table, self._wordless(), batch, boxes, counters)
            return found
        placeless = without_places(batch)
        found = self._clauses.match_events(placeless, counters)
        if self._broad is not None:
            found = _merged(found, self._broad.match_events(placeless, counters))
        return _merged(found, boxed.match(placeless, boxes, counters))

    def _made_for_boxes(self, room: int | None) -> PlacedClauses | None:
        """What boxes are matched with, made if need be; None if that takes too many bytes."""
        with self._making:
            if self._boxed is not None:
                return self._boxed
            rows = self._wordless()
            if room is not None:
                expected = bytes_expected(self._store, rows)
                if room < expected * self._misjudged:
                    return None
            made = PlacedClauses(self._store, rows)
            if room is not None and room < made.memory_bytes():
                self._misjudged = made.memory_bytes() / expected  # once in vain is enough
                return None
            self._boxed = made
            return made

    def _wordless(self) -> Rows:
        """The rows in tiles and DI-Tree."""
        broad = np.flatnonzero(self._is_broad).astype(np.int32)
        return np.concatenate([self._clauses.rows(), broad])

    def _look_through(self, batch: EventBatch, first: int, stop: int, counters: Counters) -> Pairs:
        t = self._store.table
        counters[0] += stop - first
        if not self._few.size:  # a call would cost more than all words of an event
            return self._few, self._few
        found: Pairs = kernels.look_through(
            t.start, t.count, t.attr, t.low, t.high, self._few, batch, first, stop, counters
        )
        return found

    def add_events(self, rows: Rows) -> None:
        """Add live event rows."""
        self._events.add_events(rows)

    def remove_events(self, rows: Rows) -> None:
        """Forget live event rows."""
        self._events.remove_events(rows)

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """The live event rows that one clause wants."""
        return self._events.match_clause(clauses, row, now, counters)

    def least_bytes(self, coming: Coming) -> int:
        """See `nearcast.index.base.ForeseenIndex`: the first shelf of tiles comes all at once."""
        if not coming.wordless or len(self._store) - coming.leaving + coming.wordless <= _FEW:
            return 0
        return ClauseTiles.least_bytes(coming.columns)

    def memory_bytes(self) -> int:
        """Bytes of all parts."""
        broad = 0 if self._broad is None else self._broad.memory_bytes()
        own = int(self._few.nbytes + self._is_broad.nbytes + self._bottom.nbytes + self._top.nbytes)
        waiting = self._waiting  # a reader may take it in meanwhile
        own += 0 if waiting is None else int(waiting.nbytes)
        parts = (self._clauses, self._words, self._events)
        made = self._boxed  # a reader may make it meanwhile
        boxed = 0 if made is None else made.memory_bytes()
        return sum(part.memory_bytes() for part in parts) + broad + boxed + own

    def check_invariants(self) -> None:
        """Raise AssertionError where a part contradicts its store."""
        live = self._store.live_rows()
        wordy = self._words.chosen(live)
        self._words.check_rows(live[wordy])
        live = live[~wordy]
        if self._waiting is not None:
            assert np.array_equal(np.sort(self._waiting), live)
            assert self._small
            live = live[:0]
        if self._small:
            assert np.array_equal(np.sort(self._few), live)
            live = live[:0]
        if self._boxed is not None:
            self._boxed.check_rows(live)
        if self._broad is not None:
            self._broad.check_invariants()
            flags = np.zeros(self._store.rows, bool)
            flags[: self._is_broad.size] = self._is_broad[: self._store.rows]
            assert not flags[np.setdiff1d(np.arange(flags.size), live)].any()
            live = live[~flags[live]]
        self._clauses.check_rows(live)
        self._events.check_invariants()


def _merged(first: Pairs, second: Pairs) -> Pairs:
    """Two lists of pairs in the order of events as one."""
    if not first[0].size:
        return second
    merged: Pairs = kernels.merged(*first, *second) if second[0].size else first
    return merged
