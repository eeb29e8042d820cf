"""Pieces of many subscriptions, in codes: intervals and boxes on their way to clauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.index.clause_runs import ClauseRuns
from nearcast.index.clauses import ClauseBatch, Extra
from nearcast.kernels import arrange, survey
from nearcast.matcher.encode import EncodedClause
from nearcast.matcher.looks import Places
from nearcast.model.schema import Schema

__all__ = ["PIECE", "Intervals", "Piece", "arranged_piece", "learnt_piece", "runs_of"]

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]
I8: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
#: Subscriptions that are encoded together.
PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Intervals:
    """The `intervals` column in codes; `bad` marks rows with something wrong in them."""

    offsets: I8
    attr: I4
    low: F8
    high: F8
    bad: Flags
    ends: tuple[I4, F8, F8] | None = None
    """(columns, lowest ends, highest ends) where all runs can be taken as they are."""

    def of_rows(self, rows: I4) -> tuple[I8, I4, F8, F8]:
        """The runs of some rows."""
        offsets, attr = arrange.pick_runs(self.offsets, self.attr, rows)
        _, low = arrange.pick_runs(self.offsets, self.low, rows)
        _, high = arrange.pick_runs(self.offsets, self.high, rows)
        return offsets, attr, low, high

    def with_runs(self, offsets: I8, attr: I4, low: F8, high: F8) -> Intervals:
        """The same with further intervals behind those of each row."""
        if not self.attr.size:
            return Intervals(offsets, attr, low, high, self.bad)
        both = self.offsets + offsets
        made = Intervals(
            both, np.empty(both[-1], np.int32), np.empty(both[-1]), np.empty(both[-1]), self.bad
        )
        mine = np.arange(self.attr.size) + np.repeat(offsets[:-1], np.diff(self.offsets))
        more = np.arange(attr.size) + np.repeat(self.offsets[1:], np.diff(offsets))
        made.attr[mine], made.low[mine], made.high[mine] = self.attr, self.low, self.high
        made.attr[more], made.low[more], made.high[more] = attr, low, high
        return made


class Piece(NamedTuple):
    """Rows in the schema's codes, not yet in the order of selectivity.

    `rows` are those that `runs` and `boxes` are of, None for all; `domains` are as known
    when the piece had been read. `first` is the number of its first row.
    """

    runs: tuple[I8, I4, F8, F8]
    boxes: F8
    rows: I4 | None
    domains: tuple[F8, F8]
    words: tuple[I8, I4] | None
    circles: F8 | None
    hand_made: list[tuple[int, EncodedClause]]
    plain: bool = False
    """Whether it can be `ClauseRuns`."""
    first: int = 0


def learnt_piece(
    schema: Schema,
    intervals: Intervals,
    by_hand: Flags,
    places: Places,
    words: tuple[I8, I4] | None,
    hand_made: list[tuple[int, EncodedClause]],
) -> Piece:
    """A piece of which those rows are not taken that were made by hand."""
    runs = (intervals.offsets, intervals.attr, intervals.low, intervals.high)
    boxes, circles = places.boxes, places.circles
    easy = None
    if by_hand.any():
        easy = np.flatnonzero(~by_hand).astype(np.int32)
        runs = intervals.of_rows(easy)
        boxes = boxes[easy] if boxes.shape[0] else boxes
    bottom, top = schema.domains()
    plain = True
    if easy is None and intervals.ends is not None:
        columns, lows, highs = intervals.ends
        bottom[columns] = np.minimum(bottom[columns], lows)
        top[columns] = np.maximum(top[columns], highs)
    else:
        plain = bool(survey.survey_runs(*map(arrange.frozen, runs), bottom, top))
        if not plain:
            arrange.learn(*runs[1:], bottom, top)
    schema.learn_all(bottom, top)
    for axis in range(2):
        schema.learn(axis, float(places.ends[0][axis]), float(places.ends[1][axis]))
    plain = plain and easy is None and words is None and circles is None
    return Piece(runs, boxes, easy, (bottom, top), words, circles, hand_made, plain)


def runs_of(piece: Piece) -> ClauseRuns:
    """A plain piece as it is, not arranged."""
    offsets, attr, low, high = map(arrange.frozen, piece.runs)
    count = np.diff(offsets).astype(np.uint16)
    return ClauseRuns(offsets, count, attr, low, high, arrange.frozen(piece.boxes), piece.domains)


def arranged_piece(piece: Piece) -> ClauseBatch:
    """The clauses of a piece."""
    rows, start, attr, low, high = arrange.arrange(*piece.runs, piece.boxes, *piece.domains)
    if piece.rows is not None:
        rows = piece.rows[rows]
    words, circles = piece.words, piece.circles
    word_start, word = (None, None) if words is None else arrange.pick_runs(*words, rows)
    batch = ClauseBatch(
        rows, start, attr, low, high, {}, word_start, word,
        None if circles is None else circles[rows],
    )  # fmt: skip
    batch = _with_rows(batch, piece.hand_made)
    return batch._replace(owner=batch.owner + np.int32(piece.first))


def _with_rows(batch: ClauseBatch, rows: list[tuple[int, EncodedClause]]) -> ClauseBatch:
    """The batch with some clauses behind that were encoded one at a time."""
    if not rows:
        return batch
    clauses = [clause for _, clause in rows]
    extras: dict[int, Extra] = {}
    for k, clause in enumerate(clauses):
        if clause.extra is not None:
            extras[batch.size + k] = clause.extra
    counts = np.cumsum([clause.attr.size for clause in clauses])
    word_start, circle = batch.word_start, batch.circle
    if word_start is not None:
        word_start = np.concatenate([word_start, np.full(len(rows), word_start[-1])])
    if circle is not None:
        circle = np.concatenate([circle, np.full((len(rows), 3), np.nan)])
    return ClauseBatch(
        owner=np.concatenate([batch.owner, np.array([r for r, _ in rows], np.int32)]),
        start=np.concatenate([batch.start, batch.start[-1] + counts]),
        attr=np.concatenate([batch.attr, *(clause.attr for clause in clauses)]),
        low=np.concatenate([batch.low, *(clause.low for clause in clauses)]),
        high=np.concatenate([batch.high, *(clause.high for clause in clauses)]),
        extras=extras,
        word_start=word_start,
        word=batch.word,
        circle=circle,
    )
