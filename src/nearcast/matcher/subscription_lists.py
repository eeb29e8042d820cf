"""Many subscriptions that are objects into rows of integers and floats.

Filters of a well known form that nobody has read are read here, all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.clock import FOREVER
from nearcast.errors import BatchError, NearcastError, ValidationError
from nearcast.kernels import arrange
from nearcast.matcher import texts
from nearcast.matcher.arrow_columns import string_bytes
from nearcast.matcher.bulk import SubscriptionDraft
from nearcast.matcher.encode import EncodedClause, encode_subscription, fixed_region
from nearcast.matcher.looks import Places, box_ends
from nearcast.matcher.pieces import PIECE, Intervals, Piece, arranged_piece, learnt_piece
from nearcast.matcher.places import index_boxes
from nearcast.model.geometry import Box, Circle, Space
from nearcast.model.placing import Whereabouts
from nearcast.model.predicates import Simple
from nearcast.model.schema import Schema
from nearcast.model.subscriptions import Subscription

__all__ = ["encode_objects"]

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]
_MANY = 1000  # predicates beyond which it does not matter how long encoding takes


def encode_objects(
    subscriptions: Sequence[Subscription], schema: Schema, space: Space, at: Whereabouts
) -> SubscriptionDraft:
    """Many subscriptions in the schema's codes; BatchError for one that cannot be encoded."""
    import pyarrow as pa

    batches = []
    for first in range(0, len(subscriptions), PIECE):
        some = subscriptions[first : first + PIECE]
        drawn = _Drawn(schema, space, at, len(some))
        try:
            for row, subscription in enumerate(some):
                drawn.take(row, subscription)
            piece = drawn.piece()
        except BatchError as error:
            raise BatchError(first + error.row, error.cause) from error
        batches.append(arranged_piece(piece._replace(first=first)))
    ids = pa.array([each.id for each in subscriptions], pa.large_string())
    ends = [FOREVER if each.expires is None else each.expires for each in subscriptions]
    return SubscriptionDraft(*string_bytes(ids), np.array(ends, np.int64), batches)


class _Drawn:
    """Objects on their way to arrays; those that have more to them are made by hand."""

    def __init__(self, schema: Schema, space: Space, at: Whereabouts, size: int) -> None:
        self.schema, self.space, self.at = schema, space, at
        self.counts, self.word_counts = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
        self.by_hand = np.zeros(size, bool)
        self.boxes: dict[int, Sequence[float]] = {}
        self.circles: dict[int, Sequence[float]] = {}
        self.attr: list[I4] = [np.empty(0, np.int32)]
        self.low: list[F8] = [np.empty(0)]
        self.high: list[F8] = [np.empty(0)]
        self.words: list[int] = []
        self.texts: dict[int, Subscription] = {}
        """Filters that nobody has read, by row."""
        self.hand_made: list[tuple[int, EncodedClause]] = []
        self._columns: dict[tuple[str, ...], I4] = {}
        """By names: those of one form share the tuple."""

    def take(self, row: int, subscription: Subscription) -> None:
        """Take what a subscription asks for; BatchError with its row."""
        try:
            self._take(row, subscription)
        except NearcastError as error:
            raise BatchError(row, error) from error

    def _take(self, row: int, subscription: Subscription) -> None:
        if not isinstance(subscription, Subscription):
            raise ValidationError("subscription", subscription, "give a Subscription")
        filter = subscription.filter
        place = self._place(subscription) if subscription.region is not None else ()
        if filter.unread is not None and place is not None:
            self.texts[row] = subscription
        else:
            simple = filter.simple
            if simple is None or simple.equals or place is None or len(simple.names) > _MANY:
                self._by_hand(row, subscription)
                return
            self._take_numbers(row, simple)
        if place:
            self.boxes[row] = place[0]
            if place[1]:
                self.circles[row] = place[1]
        if subscription.keywords:
            self.words += [self.schema.word(word) for word in subscription.keywords]
            self.word_counts[row + 1] = len(subscription.keywords)

    def _by_hand(self, row: int, subscription: Subscription) -> None:
        made = encode_subscription(subscription, self.schema, self.space, self.at)
        self.hand_made += [(row, clause) for clause in made]
        self.by_hand[row] = True

    def _take_numbers(self, row: int, simple: Simple) -> None:
        names, low, high, _ = simple
        columns = self._columns.get(names)
        if columns is None:
            codes = [self.schema.column(name, "number") for name in names]
            columns = self._columns[names] = np.array(codes, np.int32)
        self.attr.append(columns)
        self.low.append(low)
        self.high.append(high)
        self.counts[row + 1] = columns.size

    def _read_texts(self) -> texts.Texts:
        """What the filters say that nobody has read; what cannot be told so is made by hand."""
        import pyarrow as pa

        given: list[str | None] = [None] * self.by_hand.size
        for row, subscription in self.texts.items():
            given[row] = subscription.filter.unread
        column = pa.array(given, pa.large_string())
        found = texts.look(*string_bytes(column), ~column.is_null().to_numpy(zero_copy_only=False))
        for row in np.flatnonzero(~found.done).tolist():
            if row in self.texts:
                try:
                    self._by_hand(row, self.texts[row])
                except NearcastError as error:
                    raise BatchError(row, error) from error
        return found

    def _place(self, subscription: Subscription) -> tuple[Sequence[float], ...] | None:
        """The only box of a region and its circle, if it is one; None for other regions."""
        region = fixed_region(subscription, self.at, self.space)
        if not isinstance(region, Box | Circle):
            return None
        boxes = index_boxes(region, self.space)
        if len(boxes) > 1:
            return None
        if isinstance(region, Box):
            return boxes[0], ()
        return boxes[0], (region.x, region.y, region.radius_m)

    def piece(self) -> Piece:
        """All of them."""
        read = self._read_texts() if self.texts else None
        intervals = Intervals(
            self.counts.cumsum(),
            np.concatenate(self.attr),
            np.concatenate(self.low),
            np.concatenate(self.high),
            self.by_hand,
        )
        if read is not None:
            intervals = intervals.with_runs(*texts.runs_of(read, self.schema))
        words = None
        if self.words:
            codes = np.array(self.words, np.int32)
            words = arrange.sort_words(self.word_counts.cumsum(), codes)
        boxes = _table(self.boxes, self.by_hand.size, 4)
        circles = _table(self.circles, self.by_hand.size, 3) if self.circles else None
        places = Places(None, boxes, circles, box_ends(boxes[~self.by_hand]))
        return learnt_piece(self.schema, intervals, self.by_hand, places, words, self.hand_made)


def _table(by_row: dict[int, Sequence[float]], size: int, width: int) -> F8:
    """Numbers by row, NaN where there are none."""
    table = np.full((size, width), np.nan)
    if by_row:
        table[[*by_row]] = [*by_row.values()]
    return table
