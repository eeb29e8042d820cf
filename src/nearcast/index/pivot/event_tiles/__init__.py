"""Live events in tiles: subscription matching of `pivot`. See `kernels` for how a match works."""

from __future__ import annotations

from operator import is_
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Counters, EventStore, Rows
from nearcast.index.columns import grown
from nearcast.index.events import LiveEvents
from nearcast.index.pivot.event_tiles import kernels
from nearcast.index.pivot.kernels import FEW, NOTHING, ODD, TILE, WORDS, rows_of_tile
from nearcast.index.pivot.tree import F8, Intervals, Nodes, TileTree, in_parallel

__all__ = ["EventTiles", "Tiles"]

_MOST_DIMS = 24
_NO_PACK: tuple[tuple[Any, ...], Any] = (None,) * 4, None
#: Events up to which it is asked whether they have brought columns without codes.
_FEW = 131_072
#: Events that any clause is done with in less time than it takes to get the GIL back.
_BRIEF = 1 << 15
# A subscription's region covers little of the map, its other intervals much of a domain.
_REACH = np.array([0.03, 0.03, 0.35])


class Tiles(NamedTuple):
    """What kernels see of the tiles."""

    live: npt.NDArray[np.int64]
    limit: npt.NDArray[np.int64]
    """How many events a tile takes before it is looked at again."""
    dim_low: npt.NDArray[np.float32]
    dim_scale: npt.NDArray[np.float32]
    hull_low: F8
    hull_high: F8
    full: npt.NDArray[np.uint8]
    """Whether every event of the tile has the column."""
    alive: npt.NDArray[np.uint64]
    expires: npt.NDArray[np.int64]
    codes: npt.NDArray[np.uint8]
    """(tile, column · position)."""
    rows: npt.NDArray[np.int32]
    where: npt.NDArray[np.int32]
    """Row → tile · 512 + position, −1: not here."""


def _no_tiles(dims: int) -> Tiles:
    return Tiles(
        live=np.empty(0, np.int64),
        limit=np.empty(0, np.int64),
        dim_low=np.empty((0, dims), np.float32),
        dim_scale=np.empty((0, dims), np.float32),
        hull_low=np.empty((0, dims)),
        hull_high=np.empty((0, dims)),
        full=np.empty((0, dims), np.uint8),
        alive=np.empty((0, WORDS), np.uint64),
        expires=np.empty((0, TILE), np.int64),
        codes=np.empty((0, dims * TILE), np.uint8),
        rows=np.empty((0, TILE), np.int32),
        where=np.empty(0, np.int32),
    )


class EventTiles(TileTree):
    """The event side of `pivot`; see `nearcast.index.base.EventIndex`."""

    def __init__(self, events: EventStore) -> None:
        self._columns = np.arange(2, dtype=np.int32)
        """The columns that tiles keep codes of, the most frequent ones."""
        super().__init__(events, _no_tiles(self._columns.size))
        self._events = events
        self._free: list[int] = []
        self._asked = 32
        """How many events there were when columns were last looked at."""
        self._packed = _NO_PACK
        """Tables and their arrays as one, see `_pack_of`."""

    def _intervals(self) -> Intervals:
        t = self._events.table
        return Intervals(t.start, t.count, t.attr, t.value, t.value)

    def _reach(self) -> F8:
        return _REACH

    def _house(self, rows: Rows, runs: Any) -> None:
        tiles = self._take_tiles(len(runs))
        columns = self._columns

        def work(first: int, stop: int) -> None:
            part = runs[first:stop], tiles[first:stop]
            kernels.fill(self._events.table, self._tiles, self._nodes.kid, columns, rows, *part)

        in_parallel(work, len(runs), least=64)

    def _take_tiles(self, count: int) -> npt.NDArray[np.int64]:
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = range(self._used, self._used + count - len(reused))
        self._used += len(fresh)
        self._tiles = self._tiles._replace(
            **{
                name: grown(array, self._used)
                for name, array in self._tiles._asdict().items()
                if name != "where"
            }
        )
        return np.array([*reused, *fresh], np.int64)

    def _make_room(self, node: int, odd: bool) -> None:
        """Give a node a tile, make its tile anew for what came since, or split a full one."""
        kid = int(self._nodes.kid[node])
        if kid == NOTHING:
            self._house(np.empty(0, np.int32), np.array([[node, 0, 0]], np.int64))
            return
        tile = -1 - kid
        rows: Rows = rows_of_tile(self._tiles.alive, self._tiles.rows, tile)
        self._tiles.alive[tile] = 0
        self._tiles.live[tile] = 0
        self._free.append(tile)
        limit = TILE - 1 if rows.size == TILE else TILE
        runs, left_out = self._plan(node, rows, odd, limit)
        self._house(rows, runs)
        self._insert(left_out, ODD)

    def _insert_many(self, rows: Rows, first: int, root: int) -> tuple[int, int, bool]:
        e, n, t = self._events.table, self._nodes, self._tiles
        insert = kernels.insert_few if rows.size <= FEW else kernels.insert_many
        at, node, odd = insert(
            e.start, e.count, e.attr, e.value, e.expires,
            n.attr, n.low, n.high, n.kid, n.split, n.at, n.bottom, n.top,
            t.live, t.limit, t.dim_low, t.dim_scale, t.hull_low, t.hull_high, t.full, t.alive,
            t.expires, t.codes, t.rows, t.where, self._columns, rows, first, root,
        )  # fmt: skip
        return at, node, odd

    def _fresh_table(self) -> Tiles:
        frequency = self._events.column_counts()
        order = np.argsort(-frequency, kind="stable")[:_MOST_DIMS]
        self._columns = order[frequency[order] > 0].astype(np.int32)
        self._free.clear()
        return _no_tiles(self._columns.size)

    def add_events(self, rows: Rows) -> None:
        """Add event rows."""
        if rows.size > FEW:  # tables may be replaced long before the next match
            self._packed = _NO_PACK
        self._add(rows)
        if self._outgrown(len(self._events)):
            self._build(self.rows())

    def _outgrown(self, here: int) -> bool:
        """Whether events that came one at a time have brought columns without codes.

        Asked while there are few, when their number has doubled: a rebuild costs
        microseconds an event.
        """
        if here < 2 * self._asked or here > _FEW:
            return False
        self._asked = here
        columns = int(np.count_nonzero(self._events.column_counts()))
        return min(columns, _MOST_DIMS) > self._columns.size

    def remove_events(self, rows: Rows) -> None:
        """Forget event rows."""
        self._remove(rows)

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """Walk down with one clause."""
        first = int(clauses.start[row])
        tables = self._events.table, self._nodes, self._tiles, self._columns
        brief = len(self._events) <= _BRIEF
        match = kernels.match_clause_briefly if brief else kernels.match_clause
        found: Rows = match(
            self._pack_of(*tables), clauses.attr, clauses.low, clauses.high,
            first, first + int(clauses.count[row]), now, self._events.columns, counters,
        )  # fmt: skip
        return found

    def _pack_of(self, e: LiveEvents, n: Nodes, t: Tiles, columns: npt.NDArray[np.int32]) -> Any:
        """Tables as one; kept as long as none of them is replaced, and held by who is given it."""
        now = e, n, t, columns
        tables, pack = self._packed
        if not all(map(is_, now, tables)):
            pack = kernels.pack_tiles(
                e.start, e.count, e.attr, e.value,
                n.attr, n.low, n.high, n.kid, n.split,
                t.dim_low, t.dim_scale, t.hull_low, t.hull_high, t.full, t.alive, t.expires,
                t.codes, t.rows, columns,
            )  # fmt: skip
            self._packed = now, pack
        return pack

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_packed": _NO_PACK}
