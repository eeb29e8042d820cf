"""Clauses in tiles: event matching of `pivot`. See `kernels.layout` for how a match works."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, ClauseStore, Counters, EventBatch, Pairs, Rows
from nearcast.index.columns import grown
from nearcast.index.pivot.clause_tiles.kernels import changes, filling, matching
from nearcast.index.pivot.clause_tiles.kernels.layout import (
    AT_ONCE,
    ROW,
    SHELF,
    pack_tiles,
    words_of_shelf,
)
from nearcast.index.pivot.kernels import FEW, MAIN, NOTHING, ODD, TILE, WORDS
from nearcast.index.pivot.tree import F8, Intervals, Nodes, TileTree, in_parallel

__all__ = ["ClauseTiles", "Tiles"]

#: Tiles that a shelf is given at first: the rest of its places is for tiles that split.
_STOCK = 28
_MOST_DIMS = 24
#: Predicates of a clause that a tile has codes for, before there are clauses to go by.
_PREDICATES = 8
_MOST_PREDICATES = 20
_POINTS = np.zeros(1)
#: Tiles that one event meets in less time than it takes to get the GIL back: other threads
#: have to be woken for it.
_BRIEF = 512

I8 = npt.NDArray[np.int64]


class Tiles(NamedTuple):
    """What kernels see of tiles and shelves."""

    # By tile.
    live: I8
    leaf: npt.NDArray[np.int32]
    """The node that leads here."""
    alive: npt.NDArray[np.uint64]
    rest: npt.NDArray[np.uint64]
    """Clauses with a predicate that has no codes."""
    order: npt.NDArray[np.uint8]
    """Columns of the shelf that clauses of this tile ask for, the most telling first."""
    asked: I8
    """How many those are."""
    rows: npt.NDArray[np.int32]
    codes: npt.NDArray[np.uint8]
    """(tile, position · …): by four predicates columns of the shelf, low, high codes; the row."""
    # By shelf.
    entered: I8
    """Clauses that came since the columns were chosen, with those that were there."""
    limit: I8
    """How many may come before the columns are chosen again."""
    dims: I8
    dim_attr: npt.NDArray[np.int32]
    dim_low: F8
    dim_scale: F8
    bits: npt.NDArray[np.uint64]
    """(shelf, column · cell · tile · word): one bit a clause."""
    # By row.
    where: npt.NDArray[np.int32]
    """Row → tile · 512 + position, −1: not here."""


_NO_PACK: tuple[tuple[Any, ...], Any] = (None, None, None), None
_OF_SHELVES = frozenset({"entered", "limit", "dims", "dim_attr", "dim_low", "dim_scale", "bits"})


def _no_tiles(dims: int, predicates: int) -> Tiles:
    return Tiles(
        live=np.empty(0, np.int64),
        leaf=np.empty(0, np.int32),
        alive=np.empty((0, WORDS), np.uint64),
        rest=np.empty((0, WORDS), np.uint64),
        order=np.empty((0, dims), np.uint8),
        asked=np.empty(0, np.int64),
        rows=np.empty((0, TILE), np.int32),
        codes=np.empty((0, TILE * (3 * predicates + ROW)), np.uint8),
        entered=np.empty(0, np.int64),
        limit=np.empty(0, np.int64),
        dims=np.empty(0, np.int64),
        dim_attr=np.empty((0, dims), np.int32),
        dim_low=np.empty((0, dims)),
        dim_scale=np.empty((0, dims)),
        bits=np.empty((0, words_of_shelf(dims)), np.uint64),
        where=np.empty(0, np.int32),
    )


def _width(columns: int, predicates: int) -> tuple[int, int]:
    """Columns of a shelf, and predicates of a clause that have codes, for so many of each."""
    groups = -(-min(predicates, _MOST_PREDICATES) // AT_ONCE)
    return min(max(columns, 4), _MOST_DIMS), AT_ONCE * max(1, groups)


class ClauseTiles(TileTree):
    """The subscription side of `pivot`; see `nearcast.index.base.SubscriptionIndex`.

    Adding or removing one clause costs a few microseconds: its bits are set in place. A full
    tile is split, and a full shelf gives half of its tiles to a new one, as a B-tree does:
    milliseconds, once in thousands of additions.
    """

    def __init__(self, clauses: ClauseStore) -> None:
        super().__init__(clauses, _no_tiles(_MOST_DIMS, _PREDICATES))
        self._clauses = clauses
        self._spare: list[list[int]] = []
        """By shelf: places without a tile."""
        self._open = 0
        """The shelf that takes tiles of no kin."""
        self._packed = _NO_PACK
        """Tables and their arrays as one, see `_pack`."""
        self._tiles_met = 0
        """By the last event that came alone."""
        self.worn = False
        """Whether tiles are mostly empty: whoever holds the index makes it anew when it suits."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_packed": _NO_PACK}

    def _wear(self) -> None:
        self.worn = True

    def _intervals(self) -> Intervals:
        t = self._clauses.table
        return Intervals(t.start, t.count, t.attr, t.low, t.high)

    def _reach(self) -> F8:
        return _POINTS  # events come as points

    def _fresh_table(self) -> Tiles:
        self.worn = False
        self._packed = _NO_PACK
        self._spare.clear()
        self._open = 0
        columns = np.count_nonzero(self._clauses.column_counts())
        counts = self._clauses.table.count[: self._clauses.rows]
        predicates = int(np.quantile(counts, 0.95)) if counts.size else _PREDICATES
        return _no_tiles(*_width(int(columns), predicates))

    @staticmethod
    def least_bytes(columns: int) -> int:
        """Bytes of one shelf, for clauses that may have a predicate on each of some columns.

        Tables that are not made for the clauses that come (`_fresh_table`) have room for many.
        """
        tables = _no_tiles(*_width(_MOST_DIMS, max(columns, _PREDICATES)))._asdict()
        del tables["where"]
        return sum(
            (1 if name in _OF_SHELVES else SHELF) * array.itemsize * int(np.prod(array.shape[1:]))
            for name, array in tables.items()
        )

    # -- shelves ----------------------------------------------------------------

    def _new_shelves(self, count: int) -> int:
        """The first of so many new shelves, empty and without columns."""
        first = len(self._spare)
        shelves = first + count
        self._used = shelves * SHELF
        self._tiles = self._tiles._replace(
            **{
                name: grown(array, shelves if name in _OF_SHELVES else self._used)
                for name, array in self._tiles._asdict().items()
                if name != "where"
            }
        )
        t = self._tiles
        t.live[first * SHELF : self._used] = 0
        t.alive[first * SHELF : self._used] = 0
        t.asked[first * SHELF : self._used] = 0
        t.dims[first:shelves] = 0
        t.entered[first:shelves] = 0
        t.limit[first:shelves] = 8
        for shelf in range(first, shelves):
            self._spare.append(list(range((shelf + 1) * SHELF - 1, shelf * SHELF - 1, -1)))
        return first

    def _house(self, rows: Rows, runs: Any) -> None:
        """Put tiles on new shelves, neighbours in the tree beside each other."""
        if not len(runs):
            return
        count = -(-len(runs) // _STOCK)
        first = self._new_shelves(count)
        tiles = np.array(
            [
                self._spare[first + shelf].pop()
                for shelf in range(count)
                for _ in range(min(_STOCK, len(runs) - shelf * _STOCK))
            ],
            np.int64,
        )

        def work(shelf: int, stop: int) -> None:
            part = slice(shelf * _STOCK, stop * _STOCK)
            self._fill(rows, runs[part], tiles[part], fits=True)

        in_parallel(work, count, least=1)

    def _fill(self, rows: Rows, runs: Any, tiles: I8, *, fits: bool) -> None:
        filling.fill(
            self._clauses.table, self._tiles, self._nodes.kid, rows, runs, tiles, fits,
            self._clauses.columns,
        )  # fmt: skip

    def _on(self, shelf: int) -> I8:
        """The tiles on a shelf."""
        spare = set(self._spare[shelf])
        places = range(shelf * SHELF, (shelf + 1) * SHELF)
        return np.array([tile for tile in places if tile not in spare], np.int64)

    def _refit(self, shelf: int) -> None:
        """Choose a shelf's columns anew, by what stands there now."""
        tiles = self._on(shelf)
        rows, runs = filling.gather(self._tiles, tiles)
        self._fill(rows, runs, tiles, fits=True)

    def _divide(self, shelf: int) -> None:
        """Give half of a shelf's tiles to a new one: those on one side of a column."""
        tiles = self._on(shelf)
        centres = filling.centres(self._tiles, tiles)
        column = int(np.argmax(centres.var(axis=0)))
        tiles = tiles[np.argsort(centres[:, column], kind="stable")]
        leaving = np.sort(tiles[tiles.size // 2 :])
        rows, runs = filling.gather(self._tiles, leaving)
        other = self._new_shelves(1)
        places = np.array([self._spare[other].pop() for _ in leaving], np.int64)
        self._clear(leaving)
        self._fill(rows, runs, places, fits=True)
        self._refit(shelf)

    def _clear(self, tiles: I8) -> None:
        """Take tiles from their shelf."""
        self._tiles.alive[tiles] = 0
        self._tiles.live[tiles] = 0
        for tile in sorted(tiles.tolist(), reverse=True):
            self._spare[tile // SHELF].append(tile)

    # -- adding and removing ------------------------------------------------------

    def _make_room(self, node: int, odd: bool) -> None:
        """Give a leaf a tile, fit its shelf to what came since, or split its full tile."""
        kid = int(self._nodes.kid[node])
        if kid == NOTHING:
            self._give_tile(node)
            return
        t = self._tiles
        tile = -1 - kid
        shelf = tile // SHELF
        if t.entered[shelf] >= t.limit[shelf]:
            self._refit(shelf)
            return
        rows, _ = filling.gather(t, np.array([tile], np.int64))
        runs, left_out = self._plan(node, rows, odd, TILE - 1)
        self._clear(np.array([tile], np.int64))
        if len(self._spare[shelf]) < len(runs):
            self._divide(shelf)
        places = np.array([self._spare[shelf].pop() for _ in runs], np.int64)
        self._fill(rows, runs, places, fits=False)
        self._insert(left_out, ODD)

    def _give_tile(self, node: int) -> None:
        if self._open >= len(self._spare) or not self._spare[self._open]:
            self._open = self._new_shelves(1)
        places = np.array([self._spare[self._open].pop()], np.int64)
        runs = np.array([[node, 0, 0]], np.int64)
        self._fill(np.empty(0, np.int32), runs, places, fits=False)

    def _pack(self) -> Any:
        """What changes work on, as one."""
        return self._pack_of(self._clauses.table, self._nodes, self._tiles)

    def _pack_of(self, c: Clauses, n: Nodes, t: Tiles) -> Any:
        """Tables as one; kept as long as none of them is replaced.

        Whoever does not change them holds them meanwhile: another may replace them and this, too.
        """
        tables, pack = self._packed
        if tables[0] is not c or tables[1] is not n or tables[2] is not t:
            pack = pack_tiles(
                c.start, c.count, c.low, c.high,
                n.attr, n.low, n.high, n.kid, n.split, n.at, n.bottom, n.top,
                t.live, t.alive, t.rest, t.order, t.asked, t.rows, t.codes, t.entered, t.limit,
                t.dims, t.dim_attr, t.dim_low, t.dim_scale, t.bits, t.where,
            )  # fmt: skip
            self._packed = (c, n, t), pack
        return pack

    def _insert_many(self, rows: Rows, first: int, root: int) -> tuple[int, int, bool]:
        insert = changes.insert_few if rows.size <= FEW else changes.insert_many
        at, node, odd = insert(self._pack(), self._clauses.table.attr, rows, first, root)
        if rows.size > FEW:  # tables may be replaced long before the next change
            self._packed = _NO_PACK
        return at, node, odd

    def exchange_clauses(self, going: Rows, coming: Rows) -> None:
        """Forget some rows and add others."""
        self._remove(going)
        if coming.size:
            self._add(coming)

    def move_plain(self, *given: Any) -> tuple[int, int, bool]:
        """See `changes.move_plain`; where there is a node, `enter_late`."""
        done: tuple[int, int, bool] = changes.move_plain(self._pack(), *given)
        return done

    def add_plain(self, row: int, *given: Any) -> tuple[int, int, bool]:
        """See `changes.add_plain`; where there is a node, `enter_late`."""
        if row >= self._tiles.where.size:
            self._make_known(row + 1)
        done: tuple[int, int, bool] = changes.add_plain(self._pack(), *given)
        return done

    def remove_plain(self, *given: Any) -> tuple[int, int, int, int, int]:
        """See `changes.remove_plain`."""
        done: tuple[int, int, int, int, int] = changes.remove_plain(self._pack(), *given)
        return done

    def enter_late(self, row: int, node: int, odd: bool) -> None:
        """Make room for a row and enter it."""
        self._make_room(node, odd)
        self._insert(np.array([row], np.int32), MAIN)
        self._condense()

    def add_clauses(self, rows: Rows) -> None:
        """Add clause rows."""
        self._add(rows)

    def remove_clauses(self, rows: Rows) -> None:
        """Forget clause rows."""
        self._remove(rows)

    # -- matching -------------------------------------------------------------------

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Walk down with one event."""
        c, n, t = self._clauses.table, self._nodes, self._tiles
        seen = counters[1]
        match = matching.match_event_briefly if self._tiles_met <= _BRIEF else matching.match_event
        found: Rows = match(
            self._pack_of(c, n, t), c.attr,
            batch.start, batch.attr, batch.value, batch.columns, at, counters,
        )  # fmt: skip
        self._tiles_met = int(counters[1] - seen) // TILE
        return found

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """Walk down with all events of a batch at once."""
        found: Pairs = matching.match_events(
            self._clauses.table, self._nodes, self._tiles, batch, counters
        )
        return found

    # -- looking -------------------------------------------------------------------

    def check_rows(self, live: Rows) -> None:
        """`TileTree.check_rows`; and the rows behind the codes are those of the tiles."""
        super().check_rows(live)
        t = self._tiles
        places = t.where[live]
        records = t.codes.reshape(-1, t.codes.shape[1] // TILE)[places]
        behind = np.ascontiguousarray(records[:, -ROW:]).view(np.int32).ravel()
        assert np.array_equal(behind, live)
