"""How wide the overlapping cells of each level should be (§5 of the paper), in exact fractions.

Level i of L has c_i = L − i + 1 cells and is meant for intervals of width (t_{i−1}, t_i],
t_i = i / L. Wider cells catch more of them, but a value then stabs more cells. Given a
bound η on the cells stabbed, Theorem 1 asks for the widths that catch most. With
interval ends and event values uniform, level i catches a share

    γ_i = ∫ P_w − a_i (w_i − W_i^max)²     for w_i in [W_i^min, W_i^max],

a parabola through the exact value at W_i^min = t_i, and the stabbed cells are Σ c_i w_i.

Other distributions have no such form. `fitted_widths` takes them as they were measured, samples of
intervals and of event values, so that Eqs 2 to 6 are sums over a sample, and looks for the best
widths within the same limits. Both sums of a level depend on its own width alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError

__all__ = [
    "Densities",
    "cell_counts",
    "cell_widths",
    "coefficients",
    "fewest_stabs",
    "fitted_widths",
    "most_stabs",
]

F8 = npt.NDArray[np.float64]

#: Widths of a level that are tried, and choices of several levels that are kept of many.
_STEPS = 48
_KEPT = 2000


def cell_counts(levels: int) -> list[int]:
    """c_i = L − i + 1: L cells at the bottom, one at the top."""
    return list(range(levels, 0, -1))


def _target(levels: int, i: int) -> Fraction:
    """t_i of Lemma 2."""
    return Fraction(i, levels)


def _widest(levels: int, i: int) -> Fraction:
    """W_i^max of Lemma 3: neighbours overlap by t_i, so no interval of that width slips through."""
    cells = levels - i + 1
    return (_target(levels, i) * (cells - 1) + 1) / cells


def _caught_at_narrowest(levels: int, i: int) -> Fraction:
    """∫ r_i(x) P_w(x) dx for w_i = t_i and P_w = 2 (1 − x), by Lemma 4.

    r_i reaches 1 only at the overlap o_i of cells that narrow, and for c_i = L − i + 1
    that is t_{i−1}, the integral's lower end: its minimum with 1 never bites.
    """
    t, width = _target(levels, i), Fraction(1, levels)
    low = t - width
    return (levels - i + 1) * (2 * t * width - (t * t - low * low))


def coefficients(levels: int) -> list[Fraction]:
    """a_i of the parabolas of the levels below the topmost one."""
    found = []
    for i in range(1, levels):
        t, low = _target(levels, i), _target(levels, i - 1)
        all_there_are = 2 * (t - low) - (t * t - low * low)
        drop = all_there_are - _caught_at_narrowest(levels, i)
        found.append(drop / (_widest(levels, i) - t) ** 2)
    return found


def most_stabs(levels: int) -> Fraction:
    """Σ c_i W_i^max: from this η on there is no bound."""
    return sum((c * _widest(levels, levels - c + 1) for c in cell_counts(levels)), Fraction(0))


def fewest_stabs(levels: int) -> Fraction:
    """Σ c_i W_i^min: no η below can be kept."""
    return sum((c * _target(levels, levels - c + 1) for c in cell_counts(levels)), Fraction(0))


def cell_widths(levels: int, eta: float | Fraction | None = None) -> list[Fraction]:
    """The widths w_1 … w_L that catch most intervals with at most η cells stabbed by a value.

    `eta=None` sets no bound: w_i = W_i^max.

    >>> [str(w) for w in cell_widths(4, 6)]
    ['3/8', '11/18', '5/6', '1']
    """
    widest = [_widest(levels, i) for i in range(1, levels + 1)]
    if eta is None or eta >= most_stabs(levels):
        return widest
    bound = Fraction(eta)
    if bound < fewest_stabs(levels):
        raise ValidationError(
            "eta", eta, f"with {levels} levels it must be at least {float(fewest_stabs(levels)):g}"
        )
    return _narrowed(levels, widest, most_stabs(levels) - bound)


def _narrowed(levels: int, widest: list[Fraction], excess: Fraction) -> list[Fraction]:
    """Take `excess` off Σ c_i w_i where it costs least: ∂F/∂w_i = 0, inside the limits.

    The stationary point is w_i = W_i^max − λ c_i / (2 a_i). A level that would fall below
    W_i^min stays there, and the others share what is left.
    """
    counts, a = cell_counts(levels), coefficients(levels)
    widths = list(widest)
    free = list(range(levels - 1))
    while free:
        slope = excess / sum((counts[i] ** 2 / (2 * a[i]) for i in free), Fraction(0))
        for i in free:
            widths[i] = widest[i] - slope * counts[i] / (2 * a[i])
        stuck = [i for i in free if widths[i] < _target(levels, i + 1)]
        if not stuck:
            break
        for i in stuck:
            widths[i] = _target(levels, i + 1)
            excess -= counts[i] * (widest[i] - widths[i])
            free.remove(i)
    return widths


# --- any distribution -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Densities:
    """P_w and P_l, as a sample of intervals in [0, 1]; P_e as one of event values."""

    low: F8
    high: F8
    value: F8

    def caught(self, levels: int, i: int, width: float) -> float:
        """γ_i of Eqs 4 and 6: the share of all intervals that are meant for level i and fit."""
        count = levels - i + 1
        lengths = self.high - self.low
        meant = (lengths > (i - 1) / levels) & (lengths <= i / levels)
        if i == 1:
            meant |= lengths <= 0.0
        low, high = self.low[meant], self.high[meant]
        step = _step(count, width)
        cell = np.minimum(np.floor(low / step), count - 1) if count > 1 else np.zeros(low.size)
        fits = (high <= cell * step + width) | (cell == count - 1)  # the last cell ends at 1
        return float(np.count_nonzero(fits)) / max(self.low.size, 1)

    def stabbed(self, count: int, width: float) -> float:
        """ρ_i of Eqs 2 and 3: how many of a level's cells hold an event value on average."""
        if count == 1 or not self.value.size:
            return count * width
        step = _step(count, width)
        last = np.minimum(np.floor(self.value / step), count - 1)
        first = np.maximum(np.ceil((self.value - width) / step), 0)
        return float((last - first + 1).mean())


def _step(count: int, width: float) -> float:
    """How far apart the cells of a level begin."""
    return (1.0 - width) / (count - 1) if count > 1 else 1.0


def fitted_widths(levels: int, eta: float | None, densities: Densities) -> list[float]:
    """The widths that catch most of measured intervals, with at most η cells stabbed on average.

    Where no widths within the limits of Lemma 3 keep the bound, those that stab fewest. Without a
    bound it is W_i^max for any distribution. O(levels · sample), some 10 ms for 4 levels.
    """
    widest = [float(_widest(levels, i)) for i in range(1, levels + 1)]
    if eta is None:
        return widest
    choices: list[tuple[float, float, tuple[float, ...]]] = [(0.0, 0.0, ())]
    for i, most in enumerate(widest, start=1):
        tried = np.linspace(i / levels, most, _STEPS).tolist() if i < levels else [1.0]
        level = [
            (densities.stabbed(levels - i + 1, w), densities.caught(levels, i, w), w) for w in tried
        ]
        choices = _best(
            [(a + rho, b + gamma, (*ws, w)) for a, b, ws in choices for rho, gamma, w in level]
        )
    within = [choice for choice in choices if choice[0] <= eta + 1e-9]
    _, _, widths = max(within, key=lambda choice: choice[1]) if within else min(choices)
    return list(widths)


def _best(choices: list[tuple[float, float, tuple[float, ...]]]) -> list[Any]:
    """Those that catch more than all that stab fewer cells; of very many, some all over."""
    choices.sort(key=lambda choice: (choice[0], -choice[1]))
    kept: list[Any] = []
    for choice in choices:
        if not kept or choice[1] > kept[-1][1]:
            kept.append(choice)
    if len(kept) > _KEPT:
        kept = [kept[at] for at in np.linspace(0, len(kept) - 1, _KEPT).astype(int).tolist()]
    return kept
