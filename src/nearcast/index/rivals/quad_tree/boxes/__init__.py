"""The subscription side of `quad-tree`."""

from __future__ import annotations

import numpy as np

from nearcast.errors import ValidationError
from nearcast.index.base import ClauseStore, Counters, EventBatch, Pairs, Rows
from nearcast.index.rivals.quad_tree.boxes import kernels
from nearcast.index.rivals.quad_tree.boxes.checks import check_boxes
from nearcast.kernels.quadtree import LEAF, ROOT, bulk_of, root_place
from nearcast.kernels.runs import NO_RUN, lengthened, new_heap

__all__ = ["BoxTree"]

#: A cell without anything: columns of `Boxes.node`.
_BLANK = np.array([LEAF, -1, 0, 0, NO_RUN, 0, 0, NO_RUN, 0], np.int64)
#: So many regions may lie outside the root before it is made anew.
_STRAYS = 64


def _new_boxes(rows: int) -> kernels.Boxes:
    cells = ROOT + 1 + kernels.SPARE_CELLS
    return kernels.Boxes(
        state=np.array([ROOT + 1, -1, 0, 0], np.int64),
        need=np.zeros(2, np.int64),
        node=np.tile(_BLANK, (cells, 1)),
        geo=np.zeros((cells, 3)),
        cover_heap=new_heap(),
        cover_row=np.empty(0, np.int32),
        part_heap=new_heap(),
        part_row=np.empty(0, np.int32),
        part_box=np.empty((0, 4), np.float32),
        place=np.full(rows, kernels.ABSENT, np.int32),
    )


class BoxTree:
    """Clauses by region. Matching walks one path from the root to a leaf.

    The root's place is learnt from the first regions; when a quarter of them lie outside,
    the tree is built anew.
    """

    def __init__(self, clauses: ClauseStore, capacity: int) -> None:
        if not 1 <= capacity < 2**31:
            raise ValidationError("box_capacity", capacity, "give a leaf room for 1 … 2³¹ pieces")
        self._clauses = clauses
        self._capacity = capacity
        self._boxes = _new_boxes(0)
        self._known_strays = 0

    # -- changing --------------------------------------------------------------

    def add(self, rows: Rows) -> None:
        """Take clause rows in."""
        known = self._boxes.place.size
        if known < self._clauses.rows:
            place = lengthened(self._boxes.place, known, self._clauses.rows - known)
            place[known:] = kernels.ABSENT
            self._boxes = self._boxes._replace(place=place)
        if self._boxes.geo[ROOT, 2] == 0.0:
            self._place_root(rows)
        self._insert(rows)
        strays, located = int(self._boxes.state[kernels.STRAY]), self._boxes.state[kernels.LOCATED]
        if strays > max(2 * self._known_strays + _STRAYS, located >> 2):
            self._rebuild()

    def _place_root(self, rows: Rows) -> None:
        boxes = kernels.boxes_of(self._clauses.table, rows).astype(np.float64)
        place = bulk_of(boxes[:, [0, 2]].ravel(), boxes[:, [1, 3]].ravel())
        if not np.isnan(place[0]):
            self._boxes.geo[ROOT] = root_place(*place, 0.0)

    def _insert(self, rows: Rows) -> None:
        table, done = self._clauses.table, 0
        while True:
            done = kernels.add(self._boxes, table, rows, done, self._capacity)
            if done == rows.size:
                return
            self._make_room()

    def _rebuild(self) -> None:
        rows = np.flatnonzero(self._boxes.place != kernels.ABSENT).astype(np.int32)
        self._boxes = _new_boxes(self._boxes.place.size)
        self._place_root(rows)
        self._insert(rows)
        self._known_strays = int(self._boxes.state[kernels.STRAY])

    def remove(self, rows: Rows) -> None:
        """Forget clause rows."""
        kernels.remove(self._boxes, self._clauses.table, rows)

    def _make_room(self) -> None:
        """Lengthen what the last call found too short."""
        b = self._boxes
        used = int(b.state[kernels.USED])
        covers, parts = (int(n) for n in b.need)
        used_covers, used_parts = int(b.cover_heap[0]), int(b.part_heap[0])
        self._boxes = b._replace(
            node=lengthened(b.node, used, kernels.SPARE_CELLS),
            geo=lengthened(b.geo, used, kernels.SPARE_CELLS),
            cover_row=lengthened(b.cover_row, used_covers, covers),
            part_row=lengthened(b.part_row, used_parts, parts),
            part_box=lengthened(b.part_box, used_parts, parts),
        )

    # -- matching --------------------------------------------------------------

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """The clause rows that event `at` satisfies."""
        table = self._clauses.table
        found: Rows = kernels.match_event(self._boxes, table, batch, at, counters)
        return found

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """(event numbers, clause rows) for the whole batch."""
        found: Pairs = kernels.match_events(self._boxes, self._clauses.table, batch, counters)
        return found

    def memory_bytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(array.nbytes) for array in self._boxes)

    def check_invariants(self) -> None:
        """See `check_boxes`."""
        check_boxes(self._boxes, self._clauses.table)
