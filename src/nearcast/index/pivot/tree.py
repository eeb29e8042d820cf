"""The shell of a tree of tiles: room, planting, splitting. `kernels` does the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, EventStore, Rows
from nearcast.index.columns import grown
from nearcast.index.pivot import kernels
from nearcast.jit import parallel_threads

__all__ = ["Intervals", "Nodes", "TileTree"]

F8 = npt.NDArray[np.float64]
I4 = npt.NDArray[np.int32]


class Nodes(NamedTuple):
    """The tree. A node's children stand side by side, three of them."""

    used: npt.NDArray[np.int64]
    """One number: nodes in use."""
    attr: I4
    """Column that must be satisfied to come here, −1: none."""
    low: F8
    high: F8
    kid: I4
    """First child; −1 − tile for a leaf; NOTHING."""
    split: I4
    """Column by which the children differ, −1: by none."""
    at: F8
    """Middles up to here go left."""
    bottom: F8
    """Hull that middles are cut to."""
    top: F8


class Intervals(NamedTuple):
    """The runs that are in the tree: (start, count, attr, low, high) of a store."""

    start: npt.NDArray[Any]
    count: npt.NDArray[Any]  # type: ignore[assignment]  # hides tuple.count, unused
    attr: npt.NDArray[Any]
    low: F8
    high: F8


def _empty_tree() -> Nodes:
    """A root with an empty tree and an empty tree of odd ones."""
    nodes = Nodes(
        used=np.array([4], np.int64),
        attr=np.full(4, -1, np.int32),
        low=np.zeros(4),
        high=np.zeros(4),
        kid=np.full(4, kernels.NOTHING, np.int32),
        split=np.full(4, -1, np.int32),
        at=np.zeros(4),
        bottom=np.zeros(4),
        top=np.zeros(4),
    )
    nodes.kid[kernels.ROOT] = kernels.MAIN
    return nodes


#: Rows that one core plans alone, and of a branch that others are cut into: at least twice SMALL.
_ALONE, _BRANCH = 65_536, 4096
#: How many rows one of a sample stands for, by which branches are cut.
_EACH = 32
#: Pieces that work is cut into for each core.
_PIECES = 4
#: Tiles that may come before it is asked whether they are filled.
_FEW_TILES = 64


def _nodes_for(rows: int) -> int:
    """Nodes that a plan for so many rows may need."""
    return 6 * (rows // kernels.SMALL + 1)


def _resized(nodes: Nodes, resize: Callable[[Any], Any]) -> Nodes:
    arrays = nodes._asdict()
    used = arrays.pop("used")
    return Nodes(used, **{name: resize(array) for name, array in arrays.items()})


class TileTree(ABC):
    """Rows of a store in tiles of 512 under a tree of hulls.

    A subclass has a table of tiles (`_tiles`, a NamedTuple of arrays, among them `alive`,
    `live` and `rows` by tile, and `where`: row → tile · 512 + position), says what is in the
    store, finds places for tiles, and brings the kernels that know what a tile looks like.
    """

    def __init__(self, store: ClauseStore | EventStore, table: Any) -> None:
        self._store = store
        self._nodes = _empty_tree()
        self._tiles: Any = table
        self._used = 0
        """Tiles ever used."""
        self._looked = 0
        """How many those were when it was last asked whether they are filled."""

    # -- what a subclass says --------------------------------------------------

    @abstractmethod
    def _intervals(self) -> Intervals:
        """The store's runs."""

    @abstractmethod
    def _reach(self) -> F8:
        """By column: the share of what is here that an interval to be matched covers."""

    @abstractmethod
    def _house(self, rows: Rows, runs: Any) -> None:
        """Make a tile of each run (node, first, stop) of rows, wherever there is room."""

    @abstractmethod
    def _make_room(self, node: int, odd: bool) -> None:
        """See to it that a row can enter at a leaf that could not take it."""

    @abstractmethod
    def _insert_many(self, rows: Rows, first: int, root: int) -> tuple[int, int, bool]:
        """Enter rows into tiles until one needs room."""

    @abstractmethod
    def _fresh_table(self) -> Any:
        """An empty table of tiles fit for what the store holds; its `where` is not used."""

    # -- adding ----------------------------------------------------------------

    def _add(self, rows: Rows) -> None:
        """Add rows: one by one, or by planning anew where they outnumber those that are here."""
        self._make_known(self._store.rows)
        here = self.rows() if rows.size > kernels.TILE else rows
        if rows.size > kernels.TILE and rows.size > here.size:
            self._build(np.concatenate([here, rows]))
        else:
            self._insert(rows, kernels.MAIN)
            self._condense()

    def _make_known(self, rows: int) -> None:
        """Give so many rows of the store an entry in `where`."""
        where = self._tiles.where
        if where.size < rows:
            larger = grown(where, rows)
            larger[where.size :] = -1
            self._tiles = self._tiles._replace(where=larger)

    def _condense(self) -> None:
        """Plan anew where tiles are mostly empty; asked when their number has doubled.

        Tiles do not merge: where those that come are ever higher on some column, and those
        that go are the lowest, tiles would be left behind without end.
        """
        if self._used <= 2 * self._looked + _FEW_TILES:
            return
        self._looked = self._used
        if 4 * int(self._tiles.live[: self._used].sum()) < self._used * kernels.TILE:
            self._wear()

    def _wear(self) -> None:
        """What to do about tiles that are mostly empty."""
        self._build(self.rows())

    def rows(self) -> Rows:
        """The rows that are here."""
        found: Rows = np.flatnonzero(self._tiles.where >= 0).astype(np.int32)
        return found

    def _build(self, rows: Rows) -> None:
        """Plan and fill the whole tree for these rows."""
        where = self._tiles.where
        where[:] = -1
        self._tiles = self._fresh_table()._replace(where=where)
        self._nodes = _empty_tree()
        self._used = 0
        runs, odd = self._plan(kernels.MAIN, rows, False, kernels.TILE)
        if odd.size:  # housed together: tables that are full would be copied for a few more
            more, _ = self._plan(kernels.ODD, odd, True, kernels.TILE)
            more[:, 1:] += rows.size
            rows, runs = np.concatenate([rows, odd]), np.concatenate([runs, more])
        self._house(rows, runs)
        used = int(self._nodes.used[0])
        self._nodes = _resized(self._nodes, lambda array: array[:used].copy())
        self._looked = self._used

    def _plan(self, node: int, rows: Rows, keep_odd: bool, limit: int) -> tuple[Any, Rows]:
        """Grow nodes below one for these rows: (runs, odd ones); many on all cores."""
        if rows.size <= _ALONE:
            return self._split(node, rows, keep_odd, limit)
        branches, odd = self._branch(node, rows, keep_odd)
        here, columns, reach = self._intervals(), self._store.columns, self._reach()

        def grow(branch: tuple[int, int, int]) -> tuple[Nodes, Any, Rows]:
            part = rows[branch[1] : branch[2]]
            nodes = _resized(_empty_tree(), lambda array: grown(array, _nodes_for(part.size)))
            nodes.used[0] = 1
            found = kernels.plan(*here, nodes, 0, part, reach, columns, keep_odd, limit, 1)
            return nodes, *found

        runs, odds = [], [odd]
        with ThreadPoolExecutor(parallel_threads()) as pool:
            for branch, (nodes, own, left_out) in zip(
                branches, pool.map(grow, branches), strict=True
            ):
                moved = self._graft(branch[0], nodes, own)
                moved[:, 1:] += branch[1]
                runs.append(moved)
                odds.append(left_out)
        return np.concatenate(runs), np.concatenate(odds)

    def _branch(
        self, node: int, rows: Rows, keep_odd: bool
    ) -> tuple[list[tuple[int, int, int]], Rows]:
        """Split rows (reordered in place) by a plan of a sample: branches, and odd ones.

        Each row is looked at once, and not once a level.
        """
        sample = rows[::_EACH].copy()
        self._split(node, sample, keep_odd, _BRANCH // _EACH, _EACH)
        n, used = self._nodes, int(self._nodes.used[0])
        here = self._intervals()
        leaf = np.empty(rows.size, np.int32)
        cuts = _cuts(rows.size)

        def lead(start: int, stop: int) -> tuple[Any, F8, F8]:
            number = np.zeros(used, np.int64)
            low, high = np.full(used, np.inf), np.full(used, -np.inf)
            kernels.lead(*here, n, node, rows[start:stop], leaf[start:stop], number, low, high)
            return number, low, high

        with ThreadPoolExecutor(parallel_threads()) as pool:
            met = list(pool.map(lead, cuts[:-1], cuts[1:]))
            numbers = np.array([number for number, _, _ in met])
            total = numbers.sum(axis=0)
            low = np.min([low for _, low, _ in met], axis=0)
            high = np.max([high for _, _, high in met], axis=0)
            leaves, odd_leaves = self._leaves(node, total, low, high, keep_odd)
            ends = np.cumsum(total[leaves + odd_leaves])
            place = np.zeros_like(numbers)
            place[:, leaves + odd_leaves] = ends - total[leaves + odd_leaves]
            place[1:] += np.cumsum(numbers[:-1], axis=0)
            came = rows.copy()

            def deal(start: int, stop: int, place: Any) -> None:
                kernels.deal(came[start:stop], leaf[start:stop], place, rows)

            list(pool.map(deal, cuts[:-1], cuts[1:], place))
        stops = ends[: len(leaves)].tolist()
        branches = [*zip(leaves, [0, *stops], stops, strict=False)]
        return branches, rows[stops[-1] if stops else 0 :].copy()

    def _leaves(
        self, root: int, number: Any, low: F8, high: F8, keep_odd: bool
    ) -> tuple[list[int], list[int]]:
        """Leaves below a root, side by side: those that get branches, and those of odd rows.

        By node: how many rows came by, and their hulls, which nodes have from now on.
        """
        n = self._nodes
        leaves: list[int] = []
        odd: list[int] = []
        stack = [root]
        while stack:
            node = stack.pop()
            kid, column = int(n.kid[node]), int(n.split[node])
            if kid < 0:
                leaves.append(node)
                continue
            for j, below in enumerate(range(kid, kid + 3)):
                few = column >= 0 and number[below] < kernels.SMALL
                left_out = n.kid[below] < 0 and few and not keep_odd
                if left_out and number[below]:
                    odd.append(below)
                there = number[below] > 0 and not left_out
                if there:
                    stack.append(below)
                if column >= 0 and j < 2:
                    n.attr[below] = column if there else -1
                    n.low[below], n.high[below] = low[below], high[below]
        return leaves, odd

    def _split(
        self, node: int, rows: Rows, keep_odd: bool, limit: int, each: int = 1
    ) -> tuple[Any, Rows]:
        room = int(self._nodes.used[0]) + _nodes_for(rows.size * each)
        self._nodes = _resized(self._nodes, lambda array: grown(array, room))
        columns = self._store.columns
        runs, odd = kernels.plan(
            *self._intervals(), self._nodes, node, rows, self._reach(), columns, keep_odd, limit,
            each,
        )  # fmt: skip
        return runs, odd

    def _graft(self, node: int, branch: Nodes, runs: Any) -> Any:
        """Put a tree of its own, whose root is 0, in the place of a node; its runs likewise."""
        first, number = int(self._nodes.used[0]), int(branch.used[0])
        self._nodes = _resized(self._nodes, lambda array: grown(array, first + number))
        branch.kid[:number] += (branch.kid[:number] >= 0) * np.int32(first - 1)
        for name, array in self._nodes._asdict().items():
            own = getattr(branch, name)
            if name == "used":
                array[0] = first + number - 1
                continue
            array[first : first + number - 1] = own[1:number]
            if name in ("kid", "split", "at", "bottom", "top"):
                array[node] = own[0]
        moved = runs.copy()
        moved[:, 0] = np.where(runs[:, 0] == 0, node, runs[:, 0] + first - 1)
        return moved

    def _insert(self, rows: Rows, root: int) -> None:
        at = 0
        while at < rows.size:
            at, node, odd = self._insert_many(rows, at, root)
            if node >= 0:
                self._make_room(node, odd)

    def _remove(self, rows: Rows) -> None:
        """Forget rows; their places serve the next that come by."""
        t = self._tiles
        remove = kernels.remove_few if rows.size <= kernels.FEW else kernels.remove
        remove(t.alive, t.live, t.where, rows)

    # -- looking ---------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Bytes of all tables."""
        return sum(int(array.nbytes) for array in (*self._nodes, *self._tiles))

    def check_invariants(self) -> None:
        """The tree holds what the store does; see `check_rows`."""
        self.check_rows(self._store.live_rows())

    def check_rows(self, live: Rows) -> None:
        """Every row stands where the tree leads, once, and within the hulls on its way."""
        t = self._tiles
        assert np.array_equal(self.rows(), live)
        assert sorted(self._found()) == live.tolist()
        places = t.where[live]
        assert np.unique(places).size == places.size
        assert np.array_equal(t.rows[places // kernels.TILE, places % kernels.TILE], live)
        for tile in range(self._used):
            assert sum(int(word).bit_count() for word in t.alive[tile].tolist()) == t.live[tile]

    def _found(self) -> list[int]:
        """The rows that the tree leads to; each is tested against the hulls on its way."""
        n, s = self._nodes, self._intervals()
        found: list[int] = []
        stack: list[tuple[int, dict[int, tuple[float, float]]]] = [(kernels.ROOT, {})]
        while stack:
            node, path = stack.pop()
            if n.attr[node] >= 0:
                hull = float(n.low[node]), float(n.high[node])
                path = path | {int(n.attr[node]): hull}
            kid = int(n.kid[node])
            if kid == kernels.NOTHING:
                continue
            if kid >= 0:
                stack += [(kid + j, path) for j in range(3)]
                continue
            rows = kernels.rows_of_tile(self._tiles.alive, self._tiles.rows, -1 - kid).tolist()
            found += rows
            for row in rows:
                run = range(int(s.start[row]), int(s.start[row]) + int(s.count[row]))
                held = {int(s.attr[k]): (float(s.low[k]), float(s.high[k])) for k in run}
                for column, (low, high) in path.items():
                    own = held[column]
                    hollow = not own[0] <= own[1]  # holds nothing: no matter where
                    assert hollow or low <= own[0] <= own[1] <= high
        return found


def in_parallel(work: Callable[[int, int], None], count: int, least: int) -> None:
    """Do work(first, stop) on all cores, or here if there is little of it."""
    parts = parallel_threads() if count > least else 1
    if parts == 1:
        work(0, count)
        return
    cuts = _cuts(count)
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(work, cuts[:-1], cuts[1:]))


def _cuts(count: int) -> list[int]:
    """Where so many are cut for all cores; one that is busy elsewhere keeps nobody waiting."""
    pieces = min(count, _PIECES * parallel_threads())
    return [count * i // pieces for i in range(pieces + 1)]
