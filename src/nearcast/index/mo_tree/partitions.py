"""How each layer is cut: the same everywhere, or by what was measured of its attribute (§4.2, §5).

*Widths* follow from the optimiser: for uniform ends, or for a layer's own intervals and values.
*Numbers* of cells are the same in every layer, or more for selective attributes: a level more for
the layer that gains most by it, as long as there are no more buckets than with the same number
everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.mo_tree.attributes import Attribute, Sample
from nearcast.index.mo_tree.cells import OverlappingCells, overlapping_cells
from nearcast.index.mo_tree.optimiser import Densities, cell_counts, cell_widths, fitted_widths

__all__ = ["Partition", "densities_of", "levels_of", "reached"]

F8 = npt.NDArray[np.float64]

MOST_LEVELS = 10
MOST_DISJOINT = 61
_SAMPLE = 2048


class Partition(NamedTuple):
    """The cells of a layer."""

    cells: OverlappingCells
    disjoint: int
    """Without the null cell."""

    @classmethod
    def fitted(
        cls, levels: int, disjoint: int, eta: float | Fraction | None, densities: Densities | None
    ) -> Partition:
        """So many levels and disjoint cells; widths by densities, None for uniform ones."""
        if densities is None or eta is None:
            return cls(overlapping_cells(cell_counts(levels), cell_widths(levels, eta)), disjoint)
        widths = fitted_widths(levels, float(eta), densities)
        return cls(overlapping_cells(cell_counts(levels), widths), disjoint)


def densities_of(attribute: Attribute, clauses: Sample, events: Sample) -> Densities | None:
    """What was measured of an attribute, in its domain; None if no intervals were."""
    low, high = _normalised(attribute, *clauses.of_column(attribute.column))
    if not low.size:
        return None
    value, _ = _normalised(attribute, *events.of_column(attribute.column))
    return Densities(low, high, value)


def _normalised(attribute: Attribute, low: F8, high: F8) -> tuple[F8, F8]:
    """Ends in 0 … 1 as the kernels take them; some of very many."""
    here = low <= high  # NaN is no value
    low, high = low[here], high[here]
    if low.size > _SAMPLE:
        some = np.linspace(0, low.size - 1, _SAMPLE).astype(np.int64)
        low, high = low[some], high[some]
    width = attribute.high - attribute.low
    if not width > 0:
        return np.zeros(low.size), np.zeros(low.size)
    return (
        (low.clip(attribute.low, attribute.high) - attribute.low) / width,
        (high.clip(attribute.low, attribute.high) - attribute.low) / width,
    )


def reached(levels: int, densities: Densities, popularity: float) -> float:
    """The share of clauses that an event's value leads to, if values are uniform.

    An interval is looked at if the value lies in its cell, and a clause without one always.
    """
    cells = overlapping_cells(cell_counts(levels), cell_widths(levels))
    width = np.ones(densities.low.size)
    for start, stop in reversed([*zip(cells.level[:-1], cells.level[1:], strict=True)]):
        low, high = cells.low[start:stop], cells.high[start:stop]
        at = np.searchsorted(low, densities.low, side="right") - 1
        fits = densities.high <= high[at]
        width[fits] = (high - low)[at][fits]
    return popularity * float(width.mean()) + 1.0 - popularity


def levels_of(
    measured: Sequence[tuple[Densities, float] | None], levels: int, disjoint: int
) -> list[tuple[int, int]]:
    """(levels, disjoint cells) of each layer, more for selective attributes.

    Each has its densities and its popularity; None is not cut at all. As many buckets as with
    `levels` and `disjoint` everywhere, or fewer.
    """
    found = [1] * len(measured)
    room = len(measured) * math.log(_cells(levels))
    share = {(h, 1): 1.0 for h in range(len(measured))}
    while True:
        best: tuple[float, int, float] | None = None
        for h, each in enumerate(measured):
            more = found[h] + 1
            cost = math.log(_cells(more) / _cells(found[h]))
            if each is None or more > MOST_LEVELS or cost > room + 1e-9:
                continue
            if (h, more) not in share:
                share[h, more] = reached(more, *each)
            gain = math.log(share[h, found[h]] / share[h, more]) / cost
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, h, cost
        if best is None:
            break
        _, h, cost = best
        found[h] += 1
        room -= cost
    logs = [math.log(_cells(each)) for each in found]
    total = sum(logs)
    if not total:
        return [(each, disjoint) for each in found]
    events = len(measured) * math.log(disjoint + 1)
    cut = [int(math.exp(events * each / total) + 1e-9) - 1 for each in logs]
    return [
        (each, min(max(d, 1), MOST_DISJOINT)) if each > 1 else (1, 1)
        for each, d in zip(found, cut, strict=True)
    ]


def _cells(levels: int) -> int:
    return levels * (levels + 1) // 2
