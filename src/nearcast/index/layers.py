"""Layers: an index out of structures that are built once and never changed.

Rows that come are first kept in a short list and compared one by one. When it is full they
become a layer, together with every older layer that is not much larger (the logarithmic
method): layers at least double in size, so a row is built into a new one O(log n) times,
and a match asks O(log n) of them. After a bulk load there is one. A removed row is a hole
in its layer, which is built again when a quarter is holes. So ids keep the order of their
token sets, and words are ranked anew whenever all layers become one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Pairs, Rows
from nearcast.index.columns import grown
from nearcast.index.tokens import Order, Spelling, TokenOrder
from nearcast.kernels import tokens as kernels
from nearcast.kernels.tokens import Entries

__all__ = ["Boxes", "Layer", "LayerOptions", "Layered"]

Boxes: TypeAlias = npt.NDArray[np.float64]


class LayerOptions(TypedDict, total=False):
    """Options that every layered index takes."""

    order: Order
    spelling: Spelling | None
    few: int


@dataclass(slots=True)
class Layer:
    """Entries and the structure over them; `dead` of them were removed."""

    entries: Entries
    structure: Any
    dead: int = 0

    @property
    def size(self) -> int:
        """Entries, the removed ones included."""
        return int(self.entries.row.size)

    @property
    def hollow(self) -> bool:
        """Whether more than a quarter is gone."""
        return self.dead * 4 > self.size

    def live(self) -> Rows:
        """The rows that were not removed."""
        row = self.entries.row
        return row[row >= 0]


class Layered(ABC):
    """The shell of a token-set index: everything of the contract but one structure.

    `order` is the order of words (`nearcast.index.tokens`), `few` how many rows are compared
    one by one before they become a layer. Adding costs O(log n) builds a
    row, amortised; removing O(1), amortised over rebuilds.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,  # noqa: ARG002  # every index is made with both stores
        order: Order = "idf",
        spelling: Spelling | None = None,
        few: int = 256,
    ) -> None:
        if not isinstance(few, int) or few < 0:
            raise ValidationError("few", few, "give a whole number of rows, 0 or more")
        self._clauses = clauses
        self._few = few
        self._order = TokenOrder(order, spelling)
        self._layers: dict[int, Layer] = {}
        self._serial = 0
        self._fresh: Rows = np.empty(0, np.int32)
        self._layer_of: Rows = np.empty(0, np.int32)
        """By row: the layer's serial number, 0 for a fresh row, -1 for none."""
        self._at: Rows = np.empty(0, np.int32)
        """By row: its entry."""

    # -- the structure -----------------------------------------------------------------

    @abstractmethod
    def _build(self, entries: Entries) -> Any:
        """The structure over entries: a NamedTuple of arrays."""

    @abstractmethod
    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        """(events, rows) of one layer, sorted by event."""

    def _arrays(self, layer: Layer) -> tuple[npt.NDArray[Any], ...]:
        """The arrays of a layer's structure."""
        return tuple(layer.structure)

    @abstractmethod
    def _check(self, layer: Layer) -> None:
        """Raise AssertionError where a structure contradicts its entries."""

    # -- changes -----------------------------------------------------------------------

    def add_clauses(self, rows: Rows) -> None:
        """Take rows in; builds a layer when there are more than a few."""
        if rows.size == 0:
            return
        self._reserve(int(rows.max()) + 1)
        fresh = np.concatenate([self._fresh, rows])
        if fresh.size <= self._few:
            self._keep_fresh(fresh)
        else:
            self._settle(fresh)

    def _reserve(self, rows: int) -> None:
        if rows > self._at.size:
            old = self._at.size
            self._at = grown(self._at, rows)
            self._layer_of = grown(self._layer_of, rows)
            self._layer_of[old:] = -1

    def _keep_fresh(self, fresh: Rows) -> None:
        self._fresh = fresh
        self._layer_of[fresh] = 0

    def _settle(self, rows: Rows) -> None:
        """Build a layer of the rows and of all layers they outgrow."""
        self._fresh = np.empty(0, np.int32)
        for serial, layer in sorted(self._layers.items(), key=lambda item: item[1].size):
            if layer.size > 2 * rows.size:
                break
            rows = np.concatenate([layer.live(), rows])
            del self._layers[serial]
        if rows.size == 0:
            return
        words = self._words(rows)
        if not self._layers:
            self._order.fit(words)
        elif not self._order.extend(words):
            rows = np.concatenate([*(layer.live() for layer in self._layers.values()), rows])
            self._layers.clear()
            self._order.fit(self._words(rows))
        self._serial += 1
        layer = self._layers[self._serial] = self._layer(rows)
        self._layer_of[layer.entries.row] = self._serial
        self._at[layer.entries.row] = np.arange(rows.size, dtype=np.int32)

    def _words(self, rows: Rows) -> Rows:
        """Every word of the rows."""
        words: Rows = kernels.words_of(self._clauses.table, rows)
        return words

    def _layer(self, rows: Rows) -> Layer:
        table = self._clauses.table
        start, token = kernels.token_runs(table, rows, self._order.rank)
        key = kernels.prefix_keys(start, token)
        order = np.argsort(key, kind="stable")
        kernels.refine(order, key, start, token)
        entries = Entries(*kernels.entries_of(table, rows, order, start, token))
        return Layer(entries, self._build(entries))

    def remove_clauses(self, rows: Rows) -> None:
        """Forget rows; builds a layer again when a quarter of it is gone."""
        if rows.size == 0:
            return
        serials = self._layer_of[rows]
        self._layer_of[rows] = -1
        if (serials == 0).any():
            self._fresh = self._fresh[self._layer_of[self._fresh] == 0]
        touched = np.unique(serials[serials > 0]).tolist()
        for serial in touched:
            gone = rows[serials == serial]
            layer = self._layers[serial]
            layer.entries.row[self._at[gone]] = -1
            layer.dead += int(gone.size)
        for serial in touched:  # one that is built again may take others in
            if serial in self._layers and self._layers[serial].hollow:
                layer = self._layers[serial]
                del self._layers[serial]
                left = np.concatenate([layer.live(), self._fresh])
                if left.size <= self._few:
                    self._keep_fresh(left)
                else:
                    self._settle(left)

    # -- matching ----------------------------------------------------------------------

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """The clause rows that event number `at` of the batch satisfies."""
        one = batch._replace(
            start=batch.start[at : at + 2], word_start=batch.word_start[at : at + 2]
        )
        return self.match_events(one, counters)[1]

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """(event numbers, clause rows) for the whole batch, on one core."""
        return self.match_boxes(batch, kernels.point_boxes(batch), counters)

    def match_boxes(
        self,
        batch: EventBatch,
        boxes: Boxes,
        counters: Counters,
        room: int | None = None,  # noqa: ARG002 - nothing is made
    ) -> Pairs:
        """`match_events` as if event i were everywhere in boxes[i]."""
        parts = [
            self._match(layer, batch, boxes, counters) for layer in list(self._layers.values())
        ]
        if self._fresh.size:
            found = kernels.scan_rows(self._clauses.table, self._fresh, batch, boxes, counters)
            parts.append(found)
        if len(parts) == 1:
            return parts[0]
        events = np.concatenate([np.empty(0, np.int32), *(part[0] for part in parts)])
        rows = np.concatenate([np.empty(0, np.int32), *(part[1] for part in parts)])
        order = np.argsort(events, kind="stable")
        return events[order], rows[order]

    # -- looking inside ----------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Entries, structures, and the maps from rows."""
        held = 0
        for layer in self._layers.values():
            arrays: tuple[npt.NDArray[Any], ...] = (*layer.entries, *self._arrays(layer))
            held += sum(int(array.nbytes) for array in arrays)
        maps = (self._fresh, self._layer_of, self._at)
        return held + self._order.memory_bytes() + sum(int(array.nbytes) for array in maps)

    def check_invariants(self) -> None:
        """Every live row is fresh or in one layer; entries say what the store says."""
        found = [self._fresh, *(layer.live() for layer in self._layers.values())]
        rows = np.sort(np.concatenate(found))
        assert np.array_equal(rows, self._clauses.live_rows())
        assert self._fresh.size <= self._few
        assert bool((self._layer_of[self._fresh] == 0).all())
        for serial, layer in self._layers.items():
            self._check_layer(serial, layer)
            self._check(layer)

    def _check_layer(self, serial: int, layer: Layer) -> None:
        e = layer.entries
        runs = [tuple(e.token[e.start[i] : e.start[i + 1]].tolist()) for i in range(e.row.size)]
        assert runs == sorted(runs), "entries are out of token-set order"
        live = np.flatnonzero(e.row >= 0)
        assert live.size == layer.size - layer.dead
        assert not layer.hollow
        for i in live.tolist():
            row = int(e.row[i])
            assert (self._layer_of[row], self._at[row]) == (serial, i)
            ranks = sorted(self._order.rank[self._clauses.words(row)].tolist()) or [kernels.ANY]
            assert runs[i] == tuple(ranks)
            box = self._clauses.box(row) or (-np.inf, -np.inf, np.inf, np.inf)
            assert tuple(e.box[i].tolist()) == box
