"""Ada-REIN: REIN that skips attributes under load (Qian et al., INFOCOM 2019).

Approximate. Attributes whose predicates hardly ever fail cost REIN as much as the others;
Ada-REIN leaves them out while the share of wrong answers is expected to stay within a
tolerance. It misses nothing. What it reports wrongly: clauses whose every failing
predicate lies on an attribute that is skipped, a missing one included. The paper tunes the
tolerance to the load at run time; here it is an option.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index.base import ClauseStore, EventStore, Rows
from nearcast.index.rivals.ada_rein import kernels
from nearcast.index.rivals.rein import Rein

__all__ = ["AdaRein"]

#: Clauses that the expectation is taken from.
_SAMPLE = 8192


class AdaRein(Rein):
    """REIN without the attributes that filter least.

    `tolerance` is the share of wrong answers among all that is accepted, as expected for
    event values that are spread evenly over the domains.
    """

    def __init__(self, clauses: ClauseStore, events: EventStore, tolerance: float = 0.2) -> None:
        if not 0 <= tolerance < 1:
            raise ValidationError("tolerance", tolerance, "give a share: 0 ≤ tolerance < 1")
        super().__init__(clauses, events)
        self._tolerance = tolerance
        self.skipped: tuple[int, ...] = ()
        """The columns left out since the last fit."""

    def _bits(self, rows: Rows) -> npt.NDArray[np.int8]:
        bits = super()._bits(rows)
        sample = rows[:: max(1, rows.size // _SAMPLE)]
        columns = kernels.tolerated(self._clauses.table, sample, self._domains, self._tolerance)
        self.skipped = tuple(sorted(columns.tolist()))
        bits[columns] = -1
        return bits
