"""How wide the overlapping cells of each level should be (§5 of the paper), in exact fractions.

Level i of L has c_i = L − i + 1 cells and is meant for intervals of width (t_{i−1}, t_i],
t_i = i / L. Wider cells catch more of them, but a value then stabs more cells. Given a
bound η on the cells stabbed, Theorem 1 asks for the widths that catch most. With
interval ends and event values uniform, level i catches a share

    γ_i = ∫ P_w − a_i (w_i − W_i^max)²     for w_i in [W_i^min, W_i^max],

a parabola through the exact value at W_i^min = t_i, and the stabbed cells are Σ c_i w_i.
"""

from __future__ import annotations

from fractions import Fraction

from nearcast.errors import ValidationError

__all__ = ["cell_counts", "cell_widths", "coefficients", "fewest_stabs", "most_stabs"]


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
