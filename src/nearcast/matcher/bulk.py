"""Whole Arrow tables into rows of integers and floats.

Rows that a column-wise pass can decide take it: ready intervals, texts of a known form, words,
boxes, circles away from the poles and the antimeridian. All others, and every row that looks
wrong, go through the same objects as single ones, so errors and semantics are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from nearcast.clock import FOREVER, NEVER
from nearcast.errors import BatchError, NearcastError, ValidationError
from nearcast.index.clause_runs import ClauseRuns
from nearcast.index.clauses import ClauseBatch, ClauseStore, Extra
from nearcast.index.events import EventBatch
from nearcast.kernels import arrange, strings, survey
from nearcast.matcher import texts
from nearcast.matcher.arrow_columns import (
    any_valid,
    bad_names,
    bad_times,
    coded,
    column_of,
    doubles,
    list_runs,
    numbers_of,
    string_bytes,
    times_of,
    validity,
)
from nearcast.matcher.encode import (
    EncodedClause,
    EncodedEvent,
    encode_event,
    encode_subscription,
    encoded_row,
)
from nearcast.matcher.event_lists import encode_list
from nearcast.matcher.looks import Look, Seen, look
from nearcast.matcher.pieces import PIECE, Intervals, Piece, arranged_piece, learnt_piece, runs_of
from nearcast.matcher.places import shape_floats
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Polygon, Space
from nearcast.model.letters import letters_of
from nearcast.model.placing import Whereabouts
from nearcast.model.predicates import residual_bytes
from nearcast.model.schema import Schema
from nearcast.model.subscriptions import Subscription
from nearcast.model.words import normalise_word

__all__ = [
    "EventDraft",
    "SubscriptionDraft",
    "encode_events",
    "encode_subscriptions",
    "extra_bytes",
    "is_arrow",
    "listed",
]

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]
I8: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
_NO_WORD = -2
_AHEAD = 2  # pieces that are looked at before they are read
_OBJECTS = 1024  # rows that are objects at a time: more would keep the collector busy
_MATRIX = 1 << 25  # cells of a column matrix at a time: 256 MiB


def is_arrow(value: object) -> bool:
    """Whether this is an Arrow table or record batch (without importing pyarrow to ask)."""
    return type(value).__module__.startswith("pyarrow") and hasattr(value, "schema")


def listed(given: Any, kind: type[Event] | type[Subscription]) -> Any:
    """An Arrow table as it is, anything else as a list; one value is a list of one.

    Called before a lock is taken: what an iterable does is not ours to know.
    """
    if type(given) in (list, tuple):
        return list(given)
    if is_arrow(given):
        return given
    if isinstance(given, kind):
        return [given]
    if not isinstance(given, Iterable):
        name = kind.__name__.lower()
        raise ValidationError(f"{name}s", given, f"give {kind.__name__} objects or an Arrow table")
    return list(given)


# --- subscriptions ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubscriptionDraft:
    """A table of subscriptions, encoded piece by piece; an `owner` is the table's row."""

    id_offsets: I8
    id_data: npt.NDArray[np.uint8]
    expires: I8
    pieces: list[ClauseBatch]
    runs: list[ClauseRuns] = field(default_factory=list)
    """Instead of pieces, where they may wait and can: a clause a row."""
    entered: Future[Any] | None = None
    """What became of the ids, if somebody was to enter them meanwhile."""

    @property
    def clauses(self) -> int:
        """Number of clauses."""
        return sum(piece.size for piece in self.pieces) + sum(run.size for run in self.runs)

    @property
    def wordless(self) -> int:
        """Number of clauses that ask for no word."""
        return sum(piece.wordless for piece in self.pieces) + sum(run.size for run in self.runs)

    @property
    def positions(self) -> I4 | None:
        """The row of each clause; None for a clause a row."""
        if self.runs:
            return None
        return np.concatenate([np.empty(0, np.int32), *(piece.owner for piece in self.pieces)])

    def check_limits(self) -> None:
        """Refuse clauses with more predicates or words than can be counted."""
        for piece in self.pieces:
            ClauseStore.check_limits(piece)

    def bytes_needed(self) -> int:
        """Bytes this will take in the stores."""
        rows = sum(_clause_bytes(piece) for piece in self.pieces)
        sizes = np.diff(self.id_offsets)
        long_ids = int(sizes.sum(where=sizes > strings.SHORT))
        return rows + long_ids + 25 * int(self.expires.size)


def _clause_bytes(clauses: ClauseBatch) -> int:
    words = 0 if clauses.word is None else int(clauses.word.size)
    circles = 0 if clauses.circle is None else 64 * clauses.size
    extras = sum(extra_bytes(extra) for extra in clauses.extras.values())
    return 60 * clauses.size + 18 * int(clauses.attr.size) + 4 * words + circles + extras


def extra_bytes(extra: Extra) -> int:
    """Bytes that the words, shapes and residuals of a clause take in the store, roughly."""
    shapes = 8 * sum(2 + len(floats) for _, floats in extra.shapes)
    return 24 + 4 * len(extra.words) + shapes + residual_bytes(extra.residuals)


def encode_subscriptions(
    table: Any,
    schema: Schema,
    space: Space,
    at: Whereabouts,
    *,
    enter: Callable[[I8, npt.NDArray[np.uint8]], Any] | None = None,
    wait: bool = False,
) -> SubscriptionDraft:
    """A table of subscriptions in the schema's codes; BatchError for the first bad row.

    Works through the table in pieces that stay in the cache, and never copies it whole. Other
    threads look at the next pieces while one is read, arrange it then, and `enter` the ids. With
    `wait` clauses are not arranged if all are of nothing but intervals and boxes.
    """
    from nearcast.model.codec import check_subscription_columns

    table = check_subscription_columns(table, combine=False)
    ids = string_bytes(column_of(table, "id"))
    waiting: list[Piece] = []
    arranged: list[Future[ClauseBatch]] = []
    first = 0
    pieces = list(_pieces(table))
    with ThreadPoolExecutor(2) as pool:
        looked = deque(pool.submit(look, piece, space) for piece in pieces[:_AHEAD])
        entered = None if enter is None else pool.submit(enter, *ids)
        for number, piece in enumerate(pieces, _AHEAD):
            if number < len(pieces):
                looked.append(pool.submit(look, pieces[number], space))
            try:
                read = _read_piece(piece, looked.popleft().result(), schema, space, at)
            except BatchError as error:
                raise BatchError(first + error.row, error.cause) from error
            waiting.append(read._replace(first=first))
            wait = wait and read.plain
            if not wait:
                arranged += [pool.submit(arranged_piece, each) for each in waiting]
                waiting.clear()
            first += piece.num_rows
    batches = [batch.result() for batch in arranged]
    runs = [runs_of(piece) for piece in waiting]
    ends = times_of(table, "expires", FOREVER)
    return SubscriptionDraft(*ids, ends, batches, runs, entered)


def _pieces(table: Any) -> Iterator[Any]:
    """The table in tables of one chunk, neither huge nor tiny."""
    import pyarrow as pa

    batches = table.to_batches(max_chunksize=PIECE)
    if len(batches) > 1 and table.num_rows < len(batches) * (PIECE // 16):
        batches = table.combine_chunks().to_batches(max_chunksize=PIECE)
    for batch in batches:
        yield pa.Table.from_batches([batch])


def _read_piece(table: Any, seen: Look, schema: Schema, space: Space, at: Whereabouts) -> Piece:
    by_hand = np.zeros(table.num_rows, bool)
    for flags in (seen.by_hand, seen.places.by_hand):
        if flags is not None:
            by_hand |= flags
    intervals = _intervals(seen.intervals, table.num_rows, schema)
    if seen.texts is not None:
        by_hand |= validity(table, "where") & (~seen.texts.done | (np.diff(intervals.offsets) > 0))
        intervals = intervals.with_runs(*texts.runs_of(seen.texts, schema))
    words = _words(table, schema, intern=True)
    by_hand |= intervals.bad
    hand_made = _encode_by_hand(table, np.flatnonzero(by_hand), schema, space, at)
    return learnt_piece(schema, intervals, by_hand, seen.places, words, hand_made)


def _encode_by_hand(
    table: Any, rows: npt.NDArray[np.intp], schema: Schema, space: Space, at: Whereabouts
) -> list[tuple[int, EncodedClause]]:
    """(row, clause) of the rows that are made into objects first."""
    if not rows.size:
        return []
    from nearcast.model.codec import subscriptions_from_arrow

    found: list[tuple[int, EncodedClause]] = []
    for first in range(0, rows.size, _OBJECTS):
        some = rows[first : first + _OBJECTS]
        try:
            made = subscriptions_from_arrow(table.take(some))
        except BatchError as error:
            raise BatchError(int(some[error.row]), error.cause) from error
        for row, subscription in zip(some.tolist(), made, strict=True):
            try:
                clauses = encode_subscription(subscription, schema, space, at)
            except NearcastError as error:
                raise BatchError(row, error) from error
            found += [(row, clause) for clause in clauses]
    return found


def _intervals(seen: Seen | None, n: int, schema: Schema) -> Intervals:
    """The same in the schema's codes."""
    bad = np.zeros(n, bool)
    if seen is None:
        none = np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0), np.empty(0)
        return Intervals(*none, bad)
    offsets, codes, distinct, low, high, ends = seen
    known = np.array([schema.column(name, "number") if name else -1 for name in distinct], np.int32)
    if ends is not None:
        survey.recode(codes, known)
        return Intervals(offsets, codes, low, high, bad, (known, *ends))
    attr = known[codes] if known.size else np.zeros(codes.size, np.int32)
    wrong = seen.wrong() | (attr < 0)
    if wrong.any():
        bad[np.searchsorted(offsets, np.flatnonzero(wrong), side="right") - 1] = True
    return Intervals(offsets, attr, low, high, bad)


# --- events -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventDraft:
    """Events, encoded."""

    ids: Any
    """Arrow string array."""
    batch: EventBatch
    ends: I8
    """The event's own `end`, `NEVER` for none."""
    expires: I8
    view: Sequence[Event]
    """The events as objects, made when asked for."""
    extended: list[tuple[int, Event, EncodedEvent]] = field(default_factory=list)
    """Those whose location is not a point."""

    @property
    def size(self) -> int:
        """Number of events."""
        return self.batch.size

    def id_bytes(self) -> tuple[I8, npt.NDArray[np.uint8]]:
        """The ids in Arrow's layout."""
        return string_bytes(self.ids)

    def encoded(self) -> Iterator[EncodedEvent]:
        """One event after the other."""
        return (encoded_row(self.batch, row) for row in range(self.size))

    def bytes_needed(self) -> int:
        """Bytes these will take in the stores."""
        offsets, _ = self.id_bytes()
        shapes = sum(
            len(shape_floats(event.location)[1]) for _, event, _ in self.extended if event.location
        )
        ids = 25 * self.size + int(offsets[-1] - offsets[0])
        values = 12 * int(self.batch.attr.size) + 4 * int(self.batch.word.size)
        return 80 * self.size + ids + values + 300 * len(self.extended) + 60 * shapes


def encode_events(events: Any, schema: Schema, space: Space, *, intern: bool) -> EventDraft:
    """Events (see `listed`) in the schema's codes; BatchError for the first bad one."""
    if is_arrow(events):
        return _encode_event_table(events, schema, space, intern)
    return _encode_event_list(events, schema, space, intern)


def encode_each(
    events: list[Event], schema: Schema, space: Space, *, intern: bool
) -> list[EncodedEvent]:
    """Event objects in the schema's codes; BatchError for the first bad one."""
    encoded = []
    for i, event in enumerate(events):
        try:
            if not isinstance(event, Event):
                raise ValidationError("event", event, "give an Event")
            encoded.append(encode_event(event, schema, space, intern=intern))
        except NearcastError as error:
            raise BatchError(i, error) from error
    return encoded


def _encode_event_list(
    events: list[Event], schema: Schema, space: Space, intern: bool
) -> EventDraft:
    import pyarrow as pa

    batch = encode_list(events, schema, space, intern=intern)
    extended = [
        (i, event, encoded_row(batch, i))
        for i, event in enumerate(events)
        if isinstance(event.location, Box | Polygon)
    ]
    return EventDraft(
        ids=pa.array([event.id for event in events], pa.string()),
        batch=batch,
        ends=np.array([NEVER if e.end is None else e.end for e in events], np.int64),
        expires=np.array([FOREVER if e.expires is None else e.expires for e in events], np.int64),
        view=events,
        extended=extended,
    )


def _encode_event_table(table: Any, schema: Schema, space: Space, intern: bool) -> EventDraft:
    from nearcast.model.codec import check_event_columns, events_from_arrow

    table = check_event_columns(table).combine_chunks()
    if _needs_objects(table, space) or (intern and _has_nan(table)):
        return _encode_event_list(events_from_arrow(table), schema, space, intern)
    columns, values = _attribute_columns(table, schema, intern)
    if any_valid(table, ["lon"]).any():
        x = numbers_of(table, "lon")
        if space == "globe":
            x = np.where(x == 180.0, -180.0, x)
        columns = [0, 1, *columns]
        values = [x, numbers_of(table, "lat"), *values]
    order = np.argsort(columns, kind="stable")
    start, attr, value = _runs(
        np.array(columns, np.int32)[order], [values[k] for k in order], table.num_rows
    )
    words = _words(table, schema, intern=intern)
    if words is None:
        words = np.zeros(table.num_rows + 1, np.int64), np.empty(0, np.int32)
    if intern:
        bottom, top = schema.domains()
        arrange.learn(attr, value, value, bottom, top)
        schema.learn_all(bottom, top)
    return EventDraft(
        ids=column_of(table, "id"),
        batch=EventBatch(start, attr, value, *words, len(schema.columns)),
        ends=times_of(table, "end", NEVER),
        expires=times_of(table, "expires", FOREVER),
        view=_TableView(table),
    )


def _needs_objects(table: Any, space: Space) -> bool:
    """Whether some row has what only objects can carry, or looks wrong."""
    for name in ("geometry", "attributes_json"):
        if name in table.column_names and validity(table, name).any():
            return True
    if bad_names(table).any():
        return True
    if any(bad_times(table, name).any() for name in ("start", "end", "expires")):
        return True
    start, end, expires = (times_of(table, name, NEVER) for name in ("start", "end", "expires"))
    if ((end < start) & (end != NEVER)).any() or ((expires < start) & (expires != NEVER)).any():
        return True
    here = [name for name in ("lon", "lat") if name in table.column_names]
    located = any_valid(table, here)
    if not located.any():
        return False
    x, y = numbers_of(table, "lon")[located], numbers_of(table, "lat")[located]
    fine = np.isfinite(x) & np.isfinite(y)
    if space == "globe":
        fine &= (abs(x) <= 180) & (abs(y) <= 90)
    return not bool(fine.all())


def _has_nan(table: Any) -> bool:
    """Whether some attribute is NaN: it is there, unlike null, though no interval holds it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "attributes" not in table.column_names:
        return False
    numbers = (c for c in column_of(table, "attributes").flatten() if pa.types.is_floating(c.type))
    return any(pc.any(pc.is_nan(column)).as_py() for column in numbers)


def _attribute_columns(table: Any, schema: Schema, intern: bool) -> tuple[list[int], list[F8]]:
    """Column codes and values (NaN where missing) of the `attributes` struct."""
    import pyarrow as pa

    if "attributes" not in table.column_names:
        return [], []
    struct = column_of(table, "attributes")
    codes: list[int] = []
    values: list[F8] = []
    for child, kind in zip(struct.flatten(), struct.type, strict=True):
        if pa.types.is_boolean(kind.type):
            type_, numbers = "bool", child
        elif pa.types.is_floating(kind.type) or pa.types.is_integer(kind.type):
            type_, numbers = "number", child
        else:
            type_, numbers = "string", child
        known = schema.codes[type_].get(kind.name)  # type: ignore[index]
        if known is None:
            if not intern or child.null_count == len(child):
                continue
            known = schema.column(kind.name, type_)  # type: ignore[arg-type]
        codes.append(known)
        values.append(
            _string_codes(numbers, schema, intern) if type_ == "string" else doubles(numbers)
        )
        if type_ == "string" and schema.letters:
            codes.append(schema.letters_column(kind.name))
            values.append(_coded(numbers, letters_of))
    return codes, values


def _string_codes(array: Any, schema: Schema, intern: bool) -> F8:
    return _coded(array, schema.string if intern else lambda text: schema.strings.get(text, -1))


def _coded(array: Any, look: Callable[[str], float]) -> F8:
    """A number for each string, NaN where there is none."""
    codes, uniques = coded(array)
    known = np.array([look(text) for text in uniques], np.float64)
    if not known.size:
        return np.full(codes.size, np.nan)
    return np.where(codes < 0, np.nan, known[codes])


def _runs(columns: I4, values: list[F8], n: int) -> tuple[I8, I4, F8]:
    """Runs of (column, value) by row, in pieces that fit in memory."""
    step = max(1, _MATRIX // max(1, len(values)))
    parts = []
    for first in range(0, n, step):
        block = [value[first : first + step] for value in values]
        matrix = np.array(block) if block else np.empty((0, min(step, n - first)))
        parts.append(arrange.rows_of_columns(columns, matrix))
    if len(parts) == 1:
        start, attr, value = parts[0]
        return start, attr, value
    if not parts:
        return np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0)
    counts = np.concatenate([np.diff(p[0]) for p in parts])
    start = np.concatenate([[0], np.cumsum(counts)])
    return start, np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])


class _TableView(Sequence[Event]):
    """The rows of a table as events, each made when first asked for."""

    def __init__(self, table: Any, first: int = 0, made: dict[int, Event] | None = None) -> None:
        self._table = table
        self._first = first
        self._made: dict[int, Event] = {} if made is None else made

    def __len__(self) -> int:
        return int(self._table.num_rows) - self._first

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        from nearcast.model.codec import events_from_arrow

        if isinstance(at, slice):
            return _TableView(self._table, self._first + (at.start or 0), self._made)
        row = self._first + at
        event = self._made.get(row)
        if event is None:
            event = self._made[row] = events_from_arrow(self._table.slice(row, 1))[0]
        return event


# --- words ---------------------------------------------------------------------


def _words(table: Any, schema: Schema, *, intern: bool) -> tuple[I8, I4] | None:
    """Word codes by row, ascending; unknown words are left out unless interned."""
    if "keywords" not in table.column_names:
        return None
    column = column_of(table, "keywords")
    if column.null_count == len(column):
        return None
    offsets, items = list_runs(column)
    codes, uniques = coded(items)
    known = np.array([_word_code(text, schema, intern) for text in uniques], np.int32)
    words = known[codes] if known.size else codes.astype(np.int32)
    wrong = np.flatnonzero((codes < 0) | (words == _NO_WORD))
    if wrong.size:
        row = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        try:
            normalise_word(items[int(wrong[0])].as_py())
        except NearcastError as error:
            raise BatchError(row, error) from error
    runs: tuple[I8, I4] = arrange.sort_words(offsets, words)
    return runs


def _word_code(text: str, schema: Schema, intern: bool) -> int:
    try:
        word = normalise_word(text)
    except NearcastError:
        return _NO_WORD
    return schema.word(word) if intern else schema.words.get(word, -1)
