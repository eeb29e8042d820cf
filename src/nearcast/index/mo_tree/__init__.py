"""`mo-tree`: one structure for subscriptions and events, after the MO-Tree paper.

T. Dian, S. Qian, J. Cao, G. Xue, Y. Zhu, J. Yu, M. Li: *MO-Tree: An Efficient Forwarding
Engine for Spatiotemporal-aware Pub/Sub Systems*. Section numbers are the paper's; what
we do differently, and why, is in `docs/indexes/mo-tree.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from nearcast.errors import ValidationError
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
from nearcast.index.mo_tree import kernels
from nearcast.index.mo_tree.attributes import Attribute, Sample, best_attributes, moved
from nearcast.index.mo_tree.buckets import Buckets
from nearcast.index.mo_tree.cells import OverlappingCells, overlapping_cells
from nearcast.index.mo_tree.drawing import dot
from nearcast.index.mo_tree.kernels import Layout
from nearcast.index.mo_tree.members import FEW, ClauseMembers, EventMembers, runs_of
from nearcast.index.mo_tree.optimiser import (
    cell_counts,
    cell_widths,
    fewest_stabs,
    most_stabs,
)
from nearcast.index.mo_tree.partitions import Partition, densities_of, levels_of

__all__ = ["MOTree"]

_MOST_BUCKETS = 2**25
#: Columns that an option may name: each costs a byte.
_MOST_COLUMNS = 2**20
#: A prefix keeps one bit a cell.
_MOST_CELLS = 62
#: The inverse of a narrower domain would not be finite.
_NARROWEST = 1e-300
_NO_ROWS = np.empty(0, np.int32)


class MOTree:
    """Clauses and live events in flat bucket arrays over at most `height` attributes.

    Options: `height` (H, attributes to index), `levels` (L, of overlapping cells),
    `disjoint_cells` (for event values), `eta` (η, the bound on the cells that a value
    stabs; None for no bound, as in the paper's experiments: 6.5 for 4 levels), `attributes`
    (which columns to index, as (column, low, high), best first; None to measure them, and
    again when they no longer fit), `densities` ("uniform" ends and values in the optimiser,
    or "measured" ones), `cells_by` ("even": as many cells in every layer; "selectivity": more
    for selective attributes, in no more buckets).

    Matching costs the members of the buckets met, O(N (η / Σ c_i)^H) clauses for an
    event; adding, updating and removing a row O(H) amortised.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,
        *,
        height: int = 6,
        levels: int = 4,
        disjoint_cells: int = 10,
        eta: float | None = None,
        attributes: Sequence[tuple[int, float, float]] | None = None,
        densities: str = "uniform",
        cells_by: str = "even",
    ) -> None:
        if densities not in ("uniform", "measured"):
            raise ValidationError("densities", densities, "give 'uniform' or 'measured'")
        if cells_by not in ("even", "selectivity"):
            raise ValidationError("cells_by", cells_by, "give 'even' or 'selectivity'")
        if attributes is not None:
            attributes = [_checked(each) for each in attributes]
            height = min(height, len(attributes))
        if eta is not None and not (isinstance(eta, int | float) and math.isfinite(eta)):
            raise ValidationError("eta", eta, "give a number, or None for no bound")
        _require("height", height, 16)
        _require("levels", levels, 10)
        _require("disjoint_cells", disjoint_cells, _MOST_CELLS - 1)
        self.cells: OverlappingCells = overlapping_cells(
            cell_counts(levels), cell_widths(levels, eta)
        )
        """The overlapping cells of a layer of which nothing was measured."""
        fan_out = max(self.cells.size, disjoint_cells + 1)
        if fan_out**height > _MOST_BUCKETS:
            raise ValidationError(
                "height", height,
                f"{fan_out} cells in each of {height} layers make more than {_MOST_BUCKETS} "
                "buckets; take fewer layers, levels or disjoint cells",
            )  # fmt: skip
        self._fixed = attributes is not None
        self.attributes: tuple[Attribute, ...] = tuple(
            Attribute(column, low, high, 1.0, 1.0, 1.0)
            for column, low, high in (attributes or ())[:height]
        )
        """The indexing attributes, best first; none before there are enough rows to choose."""
        self._height = height
        self._levels, self._eta = levels, eta
        self._disjoint = disjoint_cells
        self._by_densities, self._by_selectivity = densities == "measured", cells_by != "even"
        self.partitions: list[Partition] = self._even()
        """The cells of each layer."""
        self._layout = self._layout_now()
        self._clauses = clauses
        self._events = events
        self._wants = ClauseMembers(clauses, self._layout)
        self._live = EventMembers(events, self._layout)
        self._changes = 0
        self._look_at = FEW
        self._dropped: set[int] = set()
        """Rows of events that matches dropped and whose owner has not been told."""

    # -- clauses ---------------------------------------------------------------

    def add_clauses(self, rows: Rows) -> None:
        """Take rows in; the first many decide which attributes are indexed."""
        self._count(rows, _NO_ROWS)
        self._wants.add(self._layout, rows)

    def remove_clauses(self, rows: Rows) -> None:
        """Forget rows. O(H) each."""
        self._wants.buckets.remove(rows)
        self._changes += int(rows.size)

    def update_clauses(self, rows: Rows) -> None:
        """Take new contents of rows in: where the bucket stays, nothing moves (§4.6.2)."""
        self._count(rows, _NO_ROWS)
        self._wants.update(self._layout, rows)

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Algorithm 2: compare the members of all buckets under the stabbed cells."""
        return self._match(batch, at, at + 1, counters)[1]

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """Algorithm 2 for one event after another, on one core."""
        return self._match(batch, 0, batch.size, counters)

    def _match(self, batch: EventBatch, first: int, stop: int, counters: Counters) -> Pairs:
        found: Pairs = kernels.match_events(
            self._layout,
            self._wants.buckets.table,
            runs_of(self._clauses.table),
            batch,
            first,
            stop,
            counters,
        )
        return found

    # -- events ----------------------------------------------------------------

    def add_events(self, rows: Rows) -> None:
        """Take rows of the event store in."""
        self._count(_NO_ROWS, rows)
        self._live.add(self._layout, rows)
        self._settle(rows)

    def remove_events(self, rows: Rows) -> None:
        """Forget rows; those dropped before, because they expired, are no error."""
        self._live.buckets.remove(rows)
        self._changes += int(rows.size)
        self._settle(rows)

    def _settle(self, rows: Rows) -> None:
        """Their owner knows what became of these rows."""
        if self._dropped:
            self._dropped.difference_update(rows.tolist())

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """Algorithm 1: compare the members of all buckets met, and drop those that expired."""
        found: Rows
        found, dropped = kernels.match_clause(
            self._layout,
            self._live.buckets.table,
            runs_of(clauses),
            row,
            self._events.table,
            now,
            counters,
        )
        if dropped.size:
            self._dropped.update(dropped.tolist())
            self._changes += int(dropped.size)
        return found

    def dropped(self) -> Rows:
        """See `nearcast.index.base.DroppingIndex`."""
        rows = np.fromiter(self._dropped, np.int32, len(self._dropped))
        self._dropped.clear()
        return rows

    # -- both ------------------------------------------------------------------

    def least_bytes(self, coming: Coming) -> int:
        """See `nearcast.index.base.ForeseenIndex`: empty buckets come all at once."""
        members = (
            self._wants.buckets.live - coming.leaving + coming.clauses,
            self._live.buckets.live + coming.events,
        )  # fmt: skip
        fan_outs = ClauseMembers.fan_outs(self._layout), EventMembers.fan_outs(self._layout)
        layers = len(fan_outs[0])
        if not self._fixed and not self._by_selectivity and max(members) >= FEW:
            layers = max(layers, min(self._height, coming.columns))
        return sum(
            Buckets.empty_bytes(fan_out + fan_out[-1:] * (layers - len(fan_out)))
            for side, fan_out in zip(members, fan_outs, strict=True)
            if side
        )

    def memory_bytes(self) -> int:
        """Bytes of both sides' buckets, the empty ones included."""
        return self._wants.buckets.memory_bytes() + self._live.buckets.memory_bytes()

    def check_invariants(self) -> None:
        """Every row lies where its contents say, and the arrays agree with each other."""
        self._wants.check_invariants(self._layout)
        self._live.check_invariants(self._layout)

    def to_dot(self) -> str:
        """The layers with the members of each cell, as a Graphviz digraph."""
        return dot(self.attributes, self._wants.buckets, self._live.buckets)

    # -- fitting ---------------------------------------------------------------

    def _layout_now(self) -> Layout:
        """The kernels' view of cells and attributes; without any, one layer that nothing uses."""
        chosen = self.attributes
        layer_of = np.full(max((a.column + 1 for a in chosen), default=0), -1, np.int8)
        for layer, attribute in enumerate(chosen):
            layer_of[attribute.column] = layer
        domain = np.array([(a.low, a.high, 0.0) for a in chosen] or [(0.0, 0.0, 0.0)])
        width = domain[:, 1] - domain[:, 0]
        np.divide(1.0, width, out=domain[:, 2], where=width > _NARROWEST)
        cells = [partition.cells for partition in self.partitions]
        ends = np.zeros((len(cells), max(each.size for each in cells), 2))
        level = np.empty((len(cells), max(each.level.size for each in cells)), np.int32)
        for h, each in enumerate(cells):
            ends[h, : each.size] = np.column_stack([each.low, each.high])
            level[h] = each.size
            level[h, : each.level.size] = each.level
        disjoint = np.array([partition.disjoint for partition in self.partitions], np.int64)
        return Layout(layer_of, domain, ends, level, disjoint)

    def _even(self) -> list[Partition]:
        """As many cells in every layer, for uniform ends."""
        return [Partition(self.cells, self._disjoint)] * max(1, len(self.attributes))

    def _measured(self, clauses: Sample, events: Sample) -> list[Partition]:
        """The cells of each layer, by what was measured of it."""
        found = [densities_of(attribute, clauses, events) for attribute in self.attributes]
        if not found or clauses.members < FEW or not (self._by_densities or self._by_selectivity):
            return self._even()
        sizes = [(self._levels, self._disjoint)] * len(found)
        if self._by_selectivity:
            known = [
                None if each is None
                else (each, clauses.of_column(a.column)[0].size / clauses.members)
                for a, each in zip(self.attributes, found, strict=True)
            ]  # fmt: skip
            sizes = levels_of(known, self._levels, self._disjoint)
        return [
            Partition.fitted(
                levels, disjoint, self._bound(levels), each if self._by_densities else None
            )
            for (levels, disjoint), each in zip(sizes, found, strict=True)
        ]

    def _bound(self, levels: int) -> float | Fraction | None:
        """η for so many levels: as tight, between what stabs fewest and most, as was asked for."""
        if self._eta is None or levels == self._levels:
            return self._eta
        least, most = fewest_stabs(self._levels), most_stabs(self._levels)
        tight = Fraction(1)
        if most > least:
            tight = min(tight, (Fraction(self._eta) - least) / (most - least))
        least, most = fewest_stabs(levels), most_stabs(levels)
        return least + (most - least) * tight

    def _count(self, clauses: Rows, events: Rows) -> None:
        """Note changes; after half as many as there are members, see whether the layers fit.

        A look that leads to a rebuild costs O(members), so each change pays a constant.
        """
        self._changes += clauses.size + events.size
        if self._changes < self._look_at:
            return
        self._changes = 0
        wants, live = self._wants, self._live
        members = wants.buckets.live + live.buckets.live + clauses.size + events.size
        self._look_at = max(FEW, members // 2)
        learns = not self._fixed or self._by_densities or self._by_selectivity
        if learns and (wants.strained(clauses.size) or live.strained(events.size)):
            self._fit(clauses, events)
        for side in (wants, live):
            if side.buckets.wasteful:
                side.refill(self._layout, side.buckets.rows())

    def _fit(self, clauses: Rows, events: Rows) -> None:
        """Choose attributes and domains from what is there and what is about to come."""
        wants, live = self._wants, self._live
        of_clauses, of_events = wants.sample(clauses), live.sample(events)
        first, second = of_clauses, of_events
        if of_clauses.members < FEW:
            first, second = of_events, of_clauses
        wants.settle(clauses.size)
        live.settle(events.size)
        chosen = self.attributes
        if not self._fixed:
            chosen = tuple(best_attributes(first, second, self._height))
        if not (moved(self.attributes, chosen) or self._by_densities or self._by_selectivity):
            return
        self.attributes = chosen
        self.partitions = self._measured(of_clauses, of_events)
        self._layout = self._layout_now()
        wants.refill(self._layout, wants.buckets.rows())
        live.refill(self._layout, live.buckets.rows())


def _checked(attribute: Any) -> tuple[int, float, float]:
    """A column and its domain as an option gives them."""
    try:
        column, low, high = attribute
        fits = 0 <= column < _MOST_COLUMNS and column == int(column) and -math.inf < low <= high
        if fits and high < math.inf:
            return int(column), float(low), float(high)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValidationError(
        "attributes", attribute, "give (column, low, high) with finite low ≤ high for each"
    )


def _require(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ValidationError(name, value, f"it must be between 1 and {most}")
