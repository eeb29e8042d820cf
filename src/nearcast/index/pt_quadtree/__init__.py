"""`pt-quadtree`: a quadtree whose nodes know pivotal tokens (LFilter §4).

Each list of clauses has a small set of tokens of which every clause in it has one; a
message that has none of them passes the node by. What all four children have stands in the
parent's cover set alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, Unpack, get_args

import numpy as np

from nearcast.errors import ValidationError
from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Pairs
from nearcast.index.layers import Boxes, Layer, Layered, LayerOptions
from nearcast.index.pt_quadtree import kernels
from nearcast.index.pt_quadtree.kernels import Cells
from nearcast.index.pt_quadtree.pushing.kernels import pushed
from nearcast.kernels.tokens import Entries

__all__ = ["Division", "PTQuadtree", "Storage", "built", "check_cells", "division"]

Storage: TypeAlias = Literal["leaves", "mx-cif", "push-down"]


class Division(NamedTuple):
    """When a node is divided: see `kernels.build`."""

    leaf: int
    least_area: float
    most_copies: float
    once: bool
    room: float
    """Further places for a clause on average, to push it down into."""


def division(leaf: int, least_area: float, most_copies: float, storage: Storage) -> Division:
    """The options of a quadtree, checked."""
    if not isinstance(leaf, int) or leaf < 1:
        raise ValidationError("leaf", leaf, "give a whole number of clauses, 1 or more")
    for name, value, least in (("least_area", least_area, 0), ("most_copies", most_copies, 1)):
        if not isinstance(value, int | float) or not value >= least:
            raise ValidationError(name, value, f"give a number, {least} or more")
    if storage not in get_args(Storage):
        raise ValidationError("storage", storage, f"give one of {', '.join(get_args(Storage))}")
    room = most_copies - 1 if storage == "push-down" else 0
    return Division(
        leaf, float(least_area), float(most_copies), once=storage != "leaves", room=float(room)
    )


class PTQuadtree(Layered):
    """The quadtree, with lists in its leaves or, as MX-CIF, one place for each clause.

    "push-down" is MX-CIF with room for copies: `most_copies` places for a clause on average.

    A node with more than `leaf` clauses is divided unless its area is at most `least_area`
    or its children would hold more than `most_copies` times as many. A match costs the
    lists of the cells it reaches; memory is about 70 bytes a clause and 9 a copy.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,
        leaf: int = 64,
        least_area: float = 0.0,
        most_copies: float = 2.2,
        storage: Storage = "leaves",
        **options: Unpack[LayerOptions],
    ) -> None:
        self._division = division(leaf, least_area, most_copies, storage)
        super().__init__(clauses, events, **options)

    def _build(self, entries: Entries) -> Cells:
        return built(entries, self._division)

    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        found: Pairs = kernels.match(
            layer.structure, layer.entries, self._clauses.table, self._order.rank,
            batch, boxes, counters,
        )  # fmt: skip
        return found

    def _check(self, layer: Layer) -> None:
        check_cells(layer.structure, layer.entries, self._division)


def built(entries: Entries, how: Division) -> Cells:
    """The quadtree over entries. Linear in copies and their tokens."""
    cell, child, start, item, extent = kernels.build(
        entries.box, how.leaf, how.least_area, how.most_copies, how.once
    )
    room = int(how.room * entries.row.size)
    if room:
        start, item = pushed(entries.box, cell, child, start, item, extent, room)
    head, edge, lists, items = kernels.described(
        entries.box, entries.start, entries.token, cell, child, start, item
    )
    cover, rest, pivot = kernels.token_sets(child, start, item, entries.start, entries.token)
    return Cells(cell, child, start, item, head, edge, lists, items, cover, rest, pivot, extent)


def check_cells(cells: Cells, entries: Entries, how: Division) -> None:
    """Raise AssertionError unless lists, sets and counts follow from the entries."""
    nodes = cells.child.size
    stored = np.zeros(entries.row.size, np.int64)
    for node in range(nodes - 1, -1, -1):
        items = cells.item[cells.start[node] : cells.start[node + 1]]
        assert bool((np.diff(items) > 0).all()), "a list is out of order"
        np.add.at(stored, items, 1)
        assert np.array_equal(cells.head[cells.start[node] : cells.start[node + 1]],
                              entries.token[entries.start[items]])  # fmt: skip
        _check_places(cells.cell[node], entries.box[items])
        begins = entries.box[items, :2] >= cells.cell[node, :2]
        edges = cells.edge[cells.start[node] : cells.start[node + 1]]
        assert np.array_equal(edges, begins[:, 0] + 2 * begins[:, 1])
        children = range(cells.child[node], cells.child[node] + 4) if cells.child[node] else ()
        assert not set(_run(cells, cells.cover[node])) & set(_run(cells, cells.rest[node]))
        assert cells.items[node] == items.size + sum(int(cells.items[c]) for c in children)
        assert cells.lists[node] == (items.size > 0) + sum(int(cells.lists[c]) for c in children)
    assert bool((stored >= 1).all())
    assert not how.once or stored.sum() <= stored.size + int(how.room * stored.size)
    _check_pivots(cells, entries, 0, set())
    if nodes > 1:
        _check_pivots(cells, entries, 1, set())


def _check_places(cell: Boxes, boxes: Boxes) -> None:
    """Boxes in a list reach into its cell, which is half-open."""
    upper = np.where(np.isinf(cell[2:]), np.inf, np.nextafter(cell[2:], -np.inf))
    assert bool((boxes[:, :2] <= upper).all())
    assert bool((boxes[:, 2] >= cell[0]).all() and (boxes[:, 3] >= cell[1]).all())


def _check_pivots(cells: Cells, entries: Entries, node: int, above: set[int]) -> None:
    """Every clause has a token in the sets of its node, or in a cover set above it."""
    covers = above | set(_run(cells, cells.cover[node]))
    known = covers | set(_run(cells, cells.rest[node]))
    for i in cells.item[cells.start[node] : cells.start[node + 1]].tolist():
        assert known & set(entries.token[entries.start[i] : entries.start[i + 1]].tolist())
    if cells.child[node]:
        for child in range(cells.child[node], cells.child[node] + 4):
            theirs = _run(cells, cells.cover[child]) + _run(cells, cells.rest[child])
            assert known >= set(theirs)
            _check_pivots(cells, entries, child, covers)


def _run(cells: Cells, run: Boxes) -> list[int]:
    tokens: list[int] = cells.pivot[int(run[0]) : int(run[1])].tolist()
    return tokens
