"""LFilter as it is printed: what its cost model takes from the structures; `kernels` matches."""

from __future__ import annotations

import numpy as np

from nearcast.index.lfilter.printed.kernels import Measures
from nearcast.index.mbr_trie.kernels import Trie
from nearcast.index.pt_quadtree.kernels import ROOT, Cells
from nearcast.kernels.tokens import Entries

__all__ = ["Measures", "measured"]


def measured(trie: Trie, cells: Cells, entries: Entries) -> Measures:
    """Measure both structures. Linear."""
    level, first, stop = [], 0, 1
    while first < stop:
        level.append(float(stop - first))
        first, stop = stop, int(trie.first[stop])
    height, below = 1, [int(cells.child[ROOT])] if cells.child.size > ROOT else [0]
    while any(below):
        height += 1
        below = [int(cells.child[c + q]) for c in below if c for q in range(4)]
    sets = cells.cover[:, 1] - cells.cover[:, 0] + cells.rest[:, 1] - cells.rest[:, 0]
    return Measures(
        np.array(level),
        float(max(1, np.unique(entries.token).size)),
        entries.token.size / max(1, entries.row.size),
        float(sets.mean()) if sets.size else 0.0,
        float(height),
    )
