"""Which attributes to index, and over which domain: measured, not declared (§4.2).

An attribute is worth indexing if many clauses have a predicate on it (popularity), if
these predicates are narrow (selectivity) and if their centres are spread over the whole
domain (uniformity). Each is measured on a sample as a number between 0 and 1, and the
product decides. String attributes come as codes and are treated like numbers: their
codes make the domain, or, in a schema with letters, the numbers of their first letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Attribute", "Sample", "best_attributes", "moved"]

F8 = npt.NDArray[np.float64]

#: Share of the ends left outside a domain, on each side: one absurd value must not
#: squeeze all others into one cell.
_TAIL = 0.002
#: A domain is kept this far from the largest float, so that its width is finite.
_LARGEST = 4e307
_BINS = 16
#: Intervals that are all alike are not told apart by cells, but refuse the events outside.
_LEAST = 0.01
#: Without clauses their widths can only be guessed: a region is small, the rest is not.
_PLACE = (0, 1)
_GUESS_PLACE = 0.95
_GUESS_OTHER = 0.2
#: Two domains are the same if no end is off by more than this share of the width.
_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """Predicates of some clauses (or values of some events, low = high), flat."""

    members: int
    """How many clauses or events it is taken from."""
    column: npt.NDArray[np.int64]
    low: F8
    high: F8
    points: bool = False
    """Whether these are values of events."""

    @classmethod
    def of_runs(
        cls,
        start: npt.NDArray[np.integer],
        count: npt.NDArray[np.integer],
        column: npt.NDArray[np.integer],
        low: F8,
        high: F8,
        *,
        points: bool,
    ) -> Sample:
        """The items of runs start … start + count of flat arrays."""
        counts = count.astype(np.int64)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if ends.size else 0
        flat = np.arange(total) + np.repeat(start.astype(np.int64) - (ends - counts), counts)
        return cls(start.size, column[flat].astype(np.int64), low[flat], high[flat], points)

    def of_column(self, column: int) -> tuple[F8, F8]:
        """Low and high of the predicates on one column."""
        here = self.column == column
        return self.low[here], self.high[here]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column, its domain and how well it serves as an indexing attribute."""

    column: int
    low: float
    high: float
    popularity: float
    selectivity: float
    uniformity: float

    @property
    def score(self) -> float:
        """The product of the three."""
        return self.popularity * self.selectivity * self.uniformity


def best_attributes(sample: Sample, others: Sample, height: int) -> list[Attribute]:
    """At most `height` attributes of the sample, best first; ties go to the lower column.

    `others` (the other side's values) only widen the domains. Looks closer at the four
    times `height` most popular columns: O(items of the samples · height).
    """
    if sample.members == 0:
        return []
    columns, counts = np.unique(sample.column, return_counts=True)
    popular = columns[np.argsort(-counts, kind="stable")[: 4 * height]]
    found = [_measured(int(column), sample, others) for column in popular]
    useful = [attribute for attribute in found if attribute.score > 0]
    useful.sort(key=lambda attribute: (-attribute.score, attribute.column))
    return useful[:height]


def _measured(column: int, sample: Sample, others: Sample) -> Attribute:
    low, high = sample.of_column(column)
    low, high = low[low <= high], high[low <= high]  # NaN is no value
    popularity = min(low.size / sample.members, 1.0)
    ends = np.concatenate([low, high, *others.of_column(column)])
    ends = ends[np.isfinite(ends)].clip(-_LARGEST, _LARGEST)
    if ends.size == 0 or low.size == 0:
        return Attribute(column, 0.0, 0.0, popularity, 0.0, 0.0)
    bottom, top = (float(end) for end in np.quantile(ends, (_TAIL, 1 - _TAIL)))
    if not top > bottom:
        return Attribute(column, bottom, top, popularity, 1.0, 1.0 / _BINS)
    a = (low.clip(bottom, top) - bottom) / (top - bottom)
    b = (high.clip(bottom, top) - bottom) / (top - bottom)
    share = np.bincount(((a + b) / 2 * _BINS).astype(np.int64).clip(0, _BINS - 1)) / a.size
    selectivity = max(1.0 - float((b - a).mean()), _LEAST)
    if sample.points:
        selectivity = _GUESS_PLACE if column in _PLACE else _GUESS_OTHER
    uniformity = 1.0 / (_BINS * float(share @ share))
    return Attribute(column, bottom, top, popularity, selectivity, uniformity)


def moved(old: Iterable[Attribute], new: Iterable[Attribute]) -> bool:
    """Whether other attributes were chosen, or a domain has shifted noticeably."""
    before = {attribute.column: attribute for attribute in old}
    after = {attribute.column: attribute for attribute in new}
    if before.keys() != after.keys():
        return True
    for column, a in after.items():
        b = before[column]
        off = max(abs(a.low - b.low), abs(a.high - b.high))
        if off > _TOLERANCE * (b.high - b.low):
            return True
    return False
