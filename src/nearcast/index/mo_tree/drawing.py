"""A picture of the tree: its layers, and how many members lie in each cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearcast.index.mo_tree.attributes import Attribute
from nearcast.index.mo_tree.buckets import Buckets

__all__ = ["dot"]


def _cell_counts(buckets: Buckets, layer: int) -> list[int]:
    """Members under each cell of a layer."""
    home, cells = buckets.table.home[:, 0], buckets.table.cells
    below = int(cells[layer + 1 :].prod())
    cell = home[home >= 0] // below % cells[layer]
    return [int(n) for n in np.bincount(cell, minlength=int(cells[layer]))]


def dot(attributes: Sequence[Attribute], clauses: Buckets, events: Buckets) -> str:
    """A Graphviz digraph: a record a layer, clauses above, events below."""
    lines = ["digraph mo_tree {", "  node [shape=record, fontname=monospace];"]
    layers = max(len(attributes), 1)
    for h in range(layers):
        title = "no attribute chosen yet"
        if attributes:
            a = attributes[h]
            title = f"column {a.column}, {a.low:g} to {a.high:g}, score {a.score:.2f}"
        rows = [
            f"{name} | {{{' | '.join(map(str, _cell_counts(side, h)))}}}"
            for name, side in (("clauses", clauses), ("events", events))
        ]
        lines.append(f'  layer{h} [label="{{{title} | {" | ".join(rows)}}}"];')
    lines += [f"  layer{h} -> layer{h + 1};" for h in range(layers - 1)]
    return "\n".join([*lines, "}", ""])
