"""`mbr-trie`: MBRTrie, a trie of token sets with rectangles in its nodes (LFilter §3).

A clause is a path: its words in a global order (rarest first). A node knows the rectangle
round the regions below it, so a message follows a child only if it has the child's word
and meets its rectangle.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, Unpack, get_args

import numpy as np

from nearcast.errors import ValidationError
from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Pairs
from nearcast.index.layers import Boxes, Layer, Layered, LayerOptions
from nearcast.index.mbr_trie import kernels
from nearcast.index.mbr_trie.kernels import Trie
from nearcast.kernels.tokens import Entries

__all__ = ["MBRTrie", "Probe", "built", "check_trie"]

Probe: TypeAlias = Literal["token-set", "trie", "cost", "binary"]


class MBRTrie(Layered):
    """The trie with one of four probes.

    `probe="token-set"` looks every child up in the message, "trie" every word of the message
    among the children, "cost" whichever is estimated to be cheaper, node by node; "binary" does
    that by binary searches and the paper's estimate, without hash tables. A node
    with at most `bucket` entries has no children: its entries are compared (0: as in the
    paper). A match costs the nodes whose word and rectangle the message has and meets, and
    the entries in them; memory is about 70 bytes a clause and 50 a node.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,
        probe: Probe = "cost",
        bucket: int = 8,
        **options: Unpack[LayerOptions],
    ) -> None:
        if probe not in get_args(Probe):
            raise ValidationError("probe", probe, f"give one of {', '.join(get_args(Probe))}")
        check_bucket(bucket)
        super().__init__(clauses, events, **options)
        self._probe = get_args(Probe).index(probe)
        self._bucket = bucket

    def _build(self, entries: Entries) -> Trie:
        return built(entries, self._bucket)

    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        found: Pairs = kernels.match(
            layer.structure, layer.entries, self._clauses.table, self._order.rank,
            batch, boxes, self._probe, counters,
        )  # fmt: skip
        return found

    def _check(self, layer: Layer) -> None:
        check_trie(layer.structure, layer.entries, self._bucket)


def check_bucket(bucket: object) -> None:
    """Refuse a bucket size that is none."""
    if not isinstance(bucket, int) or bucket < 0:
        raise ValidationError("bucket", bucket, "give a whole number of entries, 0 or more")


def built(entries: Entries, bucket: int) -> Trie:
    """The trie over entries. Linear in their tokens."""
    return Trie(*kernels.build(entries.start, entries.token, entries.box, bucket))


def check_trie(trie: Trie, entries: Entries, bucket: int) -> None:
    """Raise AssertionError unless nodes, ranges and rectangles follow from the entries."""
    depth = {0: 0}
    assert (trie.lo[0], trie.hi[0]) == (0, entries.row.size)
    for node in range(trie.token.size):
        d, lo, hi = depth.pop(node), int(trie.lo[node]), int(trie.hi[node])
        a, b = int(trie.first[node]), int(trie.first[node + 1])
        boxes = entries.box[lo:hi]
        hull = (*boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0))
        assert tuple(trie.mbr[node]) == hull
        sizes = np.diff(entries.start[lo : hi + 1])
        assert int(trie.end[node]) == lo + int((sizes == d).sum())
        assert bool((np.diff(trie.token[a:b]) > 0).all())
        assert (a == b) == (node > 0 and hi - trie.end[node] <= bucket)
        if a < b:
            edges = [int(trie.end[node]), *trie.hi[a:b].tolist()]
            assert trie.lo[a:b].tolist() == edges[:-1]
            assert edges[-1] == hi
        for child in range(a, b):
            depth[child] = d + 1
            at = entries.start[trie.lo[child] : trie.hi[child]] + d
            assert bool((entries.token[at] == trie.token[child]).all())
    assert not depth
