"""The two partitions of an indexing attribute's domain, normalised to [0, 1] (§4.3).

Event values fall into equal disjoint cells, or into a null cell where there is none.
Intervals fall into overlapping cells in several levels, the topmost of which is the
whole domain and also takes the subscriptions without a predicate. Cells are numbered
from 0 (the paper: from 1), level by level from the bottom; all are closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = ["OverlappingCells", "bucket_number", "overlapping_cells"]


@dataclass(frozen=True, slots=True)
class OverlappingCells:
    """Ends of the cells, and where each level begins (one entry more than levels)."""

    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    level: npt.NDArray[np.int32]

    @property
    def size(self) -> int:
        """Number of cells in all levels."""
        return int(self.low.size)

    def stabbed(self, value: float) -> list[int]:
        """The cells that contain a value, borders included."""
        hit = np.flatnonzero((self.low <= value) & (value <= self.high))
        return [int(cell) for cell in hit]


def overlapping_cells(
    counts: Sequence[int], widths: Sequence[float | Fraction]
) -> OverlappingCells:
    """Levels of equally wide, evenly spaced cells that cover [0, 1], bottom level first."""
    low: list[float] = []
    high: list[float] = []
    level = [0]
    for count, width in zip(counts, widths, strict=True):
        step = (1 - width) / (count - 1) if count > 1 else Fraction(0)
        low += [float(step * j) for j in range(count)]
        high += [float(step * j + width) for j in range(count)]
        high[-1] = 1.0  # rounding must not leave the domain's end uncovered
        level.append(len(low))
    return OverlappingCells(np.array(low), np.array(high), np.array(level, np.int32))


def bucket_number(cells: Sequence[int], fan_out: int) -> int:
    """The bucket of one cell a layer, the first layer most significant."""
    number = 0
    for cell in cells:
        number = number * fan_out + cell
    return number
