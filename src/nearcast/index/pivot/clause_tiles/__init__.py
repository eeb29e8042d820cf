"""Clauses in tiles: event matching of `pivot`. See `kernels` for how a match works."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, Pairs, Rows
from nearcast.index.pivot.clause_tiles import kernels
from nearcast.index.pivot.kernels import TILE, WORDS
from nearcast.index.pivot.tree import F8, Intervals, TileTree

__all__ = ["ClauseTiles", "Tiles"]

_MOST_DIMS = 24
_POINTS = np.zeros(1)


class Tiles(NamedTuple):
    """What kernels see of the tiles."""

    live: npt.NDArray[np.int64]
    limit: npt.NDArray[np.int64]
    """How many clauses a tile takes before it is looked at again."""
    dims: npt.NDArray[np.int64]
    """Columns of the tile."""
    dim_attr: npt.NDArray[np.int32]
    dim_low: npt.NDArray[np.float32]
    dim_scale: npt.NDArray[np.float32]
    alive: npt.NDArray[np.uint64]
    rest: npt.NDArray[np.uint64]
    """Clauses with a predicate on none of the tile's columns."""
    bits: npt.NDArray[np.uint64]
    """(tile, column · cell · word): one bit a clause."""
    codes: npt.NDArray[np.uint64]
    """(tile, column · bit · word): bit by bit the low codes, then the high codes."""
    rows: npt.NDArray[np.int32]
    where: npt.NDArray[np.int32]
    """Row → tile · 512 + position, −1: not here."""


def _no_tiles(dims: int) -> Tiles:
    return Tiles(
        live=np.empty(0, np.int64),
        limit=np.empty(0, np.int64),
        dims=np.empty(0, np.int64),
        dim_attr=np.empty((0, dims), np.int32),
        dim_low=np.empty((0, dims), np.float32),
        dim_scale=np.empty((0, dims), np.float32),
        alive=np.empty((0, WORDS), np.uint64),
        rest=np.empty((0, WORDS), np.uint64),
        bits=np.empty((0, dims * kernels.BLOCK), np.uint64),
        codes=np.empty((0, dims * kernels.CODE_BLOCK), np.uint64),
        rows=np.empty((0, TILE), np.int32),
        where=np.empty(0, np.int32),
    )


class ClauseTiles(TileTree):
    """The subscription side of `pivot`; see `nearcast.index.base.SubscriptionIndex`.

    Adding or removing one clause costs a few microseconds: its bits are set in place.
    """

    def __init__(self, clauses: ClauseStore) -> None:
        super().__init__(clauses, _no_tiles(_MOST_DIMS))
        self._clauses = clauses

    def _intervals(self) -> Intervals:
        t = self._clauses.table
        return Intervals(t.start, t.count, t.attr, t.low, t.high)

    def _reach(self) -> F8:
        return _POINTS  # events come as points

    def _fill(self, rows: Rows, runs: Any, tiles: Any, columns: int) -> None:
        kernels.fill(self._clauses.table, self._tiles, self._nodes.kid, rows, runs, tiles, columns)

    def _insert_many(self, rows: Rows, first: int, root: int) -> tuple[int, int, bool]:
        at, node, odd = kernels.insert_many(
            self._clauses.table, self._nodes, self._tiles, rows, first, root
        )
        return at, node, odd

    def _fresh_table(self) -> Tiles:
        columns = np.count_nonzero(self._clauses.column_counts())
        return _no_tiles(int(np.clip(columns, 4, _MOST_DIMS)))

    def add_clauses(self, rows: Rows) -> None:
        """Add clause rows."""
        self._add(rows)

    def remove_clauses(self, rows: Rows) -> None:
        """Forget clause rows."""
        self._remove(rows)

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Walk down with one event."""
        c, n, t = self._clauses.table, self._nodes, self._tiles
        found: Rows = kernels.match_event(
            c.start, c.count, c.attr, c.low, c.high,
            n.attr, n.low, n.high, n.kid,
            t.dims, t.dim_attr, t.dim_low, t.dim_scale, t.alive, t.rest, t.bits, t.codes, t.rows,
            batch.start, batch.attr, batch.value, batch.columns, at, counters,
        )  # fmt: skip
        return found

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """Walk down with all events of a batch at once."""
        found: Pairs = kernels.match_events(
            self._clauses.table, self._nodes, self._tiles, batch, counters
        )
        return found
