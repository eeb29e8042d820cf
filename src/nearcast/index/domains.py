"""Learnt domains of columns, and when they must be learnt anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Rows
from nearcast.index.columns import grown
from nearcast.index.events import LiveEvents
from nearcast.kernels import cells
from nearcast.kernels.cells import HALVINGS, Domains

__all__ = [
    "Drift",
    "cell_bits",
    "given_domain",
    "learnt",
    "learnt_from_events",
    "no_domains",
    "widened",
]

I8 = npt.NDArray[np.int64]

#: Rows whose ends a domain is learnt from.
_SAMPLE = 8192


def no_domains() -> Domains:
    """No column is known yet."""
    return Domains(lo=np.empty(0), hi=np.empty(0), scale=np.empty(0))


def learnt(clauses: Clauses, rows: Rows, columns: int) -> Domains:
    """The domains of the rows' columns, from a sample."""
    step = max(1, rows.size // _SAMPLE)
    return Domains(*cells.domains_of(*cells.sampled_ends(clauses, rows, step, columns)))


def learnt_from_events(live: LiveEvents, rows: Rows, columns: int) -> Domains:
    """The same from the values of events."""
    step = max(1, rows.size // _SAMPLE)
    return Domains(*cells.domains_of(*cells.sampled_values(live, rows, step, columns)))


def given_domain(lo: float, hi: float, columns: int) -> Domains:
    """One domain for every column."""
    scale = (1 << HALVINGS) / (hi - lo) if hi > lo else 0.0
    return Domains(*(np.full(columns, number) for number in (lo, hi, scale)))


def widened(domains: Domains, columns: int) -> Domains:
    """The domains with room for more columns, whose domain is 0 … 0."""
    known = domains.lo.size
    if columns <= known:
        return domains
    wider = Domains(*(grown(array, columns) for array in domains))
    for array in wider:
        array[known:] = 0.0
    return wider


def cell_bits(entries: I8, per_cell: int, most: int) -> npt.NDArray[np.int8]:
    """Halvings of a domain that leave about so many entries in a cell."""
    cells_wanted = np.clip(entries // per_cell, 1, 1 << most)
    return np.floor(np.log2(cells_wanted)).astype(np.int8)


class Drift:
    """Counts what has changed since the structure was fitted to the data."""

    __slots__ = ("added", "fitted", "outside")

    def __init__(self, fitted: int = 0) -> None:
        self.fitted = fitted
        """Rows then."""
        self.added = 0
        self.outside = 0
        """Ends outside of the domains among what was added."""

    def note(self, rows: int, outside: int) -> None:
        """Rows were added, so many of their ends outside of the domains."""
        self.added += rows
        self.outside += outside

    def due(self, rows: int) -> bool:
        """Whether to fit again now that so many rows come: twice as many, or too many strays."""
        added = self.added + rows
        return added > self.fitted + 4096 or self.outside > (self.fitted + added) // 4 + 512
