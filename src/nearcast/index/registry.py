"""Every index by name. Factories are imported when first asked for, not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from nearcast.errors import CapabilityError, ValidationError
from nearcast.index.base import Capabilities

__all__ = ["AUTO", "Entry", "entry", "names", "require"]

#: What `index="auto"` stands for.
AUTO = "pivot"


@dataclass(frozen=True, slots=True)
class Entry:
    """One index: where it lives and what it can do."""

    name: str
    target: str
    """`module:Class`, called as `Class(clauses, events, **options)`."""
    summary: str
    paper: str = ""
    subscriptions: Capabilities | None = None
    """What it does in event matching; None if it cannot."""
    events: Capabilities | None = None
    """What it does in subscription matching; None if it cannot."""
    options: tuple[tuple[str, Any], ...] = ()
    """Fixed options of a variant."""

    @property
    def approximate(self) -> bool:
        """Whether an answer may be wrong."""
        sides = (self.subscriptions, self.events)
        return any(side is not None and not side.exact for side in sides)

    def load(self) -> Callable[..., Any]:
        """The class, imported now."""
        module, _, attribute = self.target.partition(":")
        factory: Callable[..., Any] = getattr(import_module(module), attribute)
        return factory


_THREADED = Capabilities(threads=True)
_DI_TREE = (
    "DI-Tree: A Dual-ended Interval Tree for Efficient Event Matching in "
    "Content-based Pub/Sub Systems"
)
_ELAPS = "Location-Aware Pub/Sub System: When Continuous Moving Queries Meet Dynamic Event Streams"

_LFILTER = "A Cost-based Method for Location-Aware Publish/Subscribe Services"
_TEXTUAL = Capabilities(words=True, boxes=True, threads=True)

_ENTRIES = {
    e.name: e
    for e in (
        Entry(
            name="scan",
            target="nearcast.index.scan:Scan",
            summary="brute force over flat arrays, compiled: the yardstick",
            subscriptions=Capabilities(words=True, threads=True),
            events=Capabilities(words=True, threads=True),
        ),
        Entry(
            name="pivot",
            target="nearcast.index.pivot:Pivot",
            summary="ours: tiles of 512 under a tree of hulls, decided a cache line at a time",
            subscriptions=_TEXTUAL,
            events=Capabilities(threads=True),
        ),
        Entry(
            name="mo-tree",
            target="nearcast.index.mo_tree:MOTree",
            summary="overlapping cells of several attributes, stacked into flat buckets",
            paper="MO-Tree: An Efficient Forwarding Engine for "
            "Spatiotemporal-aware Pub/Sub Systems",
            subscriptions=Capabilities(threads=True),
            events=Capabilities(),
        ),
        *(
            Entry(
                name=name,
                target="nearcast.index.di_tree:DITree",
                summary=summary,
                paper=_DI_TREE,
                subscriptions=_THREADED,
                options=(("variant", variant),),
            )
            for name, variant, summary in (
                ("di-tree", "fo", "interval trees over both ends, forward, with bitsets"),
                ("di-tree:f", "f", "interval trees over both ends, counting what holds"),
                ("di-tree:b", "b", "interval trees over both ends, marking what fails"),
                ("di-tree:fn", "fn", "interval trees over both ends, B_null marked as printed"),
                ("di-tree:bo", "bo", "interval trees over both ends, backward, with bitsets"),
            )
        ),
        Entry(
            name="rein",
            target="nearcast.index.rivals.rein:Rein",
            summary="buckets of lower and of upper ends, marking what fails",
            paper="Rein: A fast event matching approach for content-based "
            "publish/subscribe systems",
            subscriptions=_THREADED,
        ),
        Entry(
            name="ada-rein",
            target="nearcast.index.rivals.ada_rein:AdaRein",
            summary="rein without the attributes that filter least: may answer too much",
            paper="Adjusting matching algorithm to adapt to workload fluctuations in "
            "content-based publish/subscribe systems",
            subscriptions=Capabilities(exact=False, threads=True),
        ),
        Entry(
            name="tama",
            target="nearcast.index.rivals.tama:Tama",
            summary="cells of several levels that cover the intervals, counted and verified",
            paper="Towards approximate event processing in a large-scale content-based network",
            subscriptions=_THREADED,
        ),
        Entry(
            name="op-index",
            target="nearcast.index.rivals.op_index:OpIndex",
            summary="partitions by rarest attribute, then lists by operator, counted",
            paper="An efficient publish/subscribe index for e-commerce databases",
            subscriptions=_THREADED,
            events=_THREADED,
        ),
        Entry(
            name="k-index",
            target="nearcast.index.rivals.k_index:KIndex",
            summary="partitions by number of predicates, then posting lists, counted and verified",
            paper="Indexing boolean expressions",
            subscriptions=_THREADED,
            events=_THREADED,
        ),
        Entry(
            name="beq-tree",
            target="nearcast.index.beq_tree:BEQTree",
            summary="events in a quadtree with sorted lists in its leaves, counted",
            paper=_ELAPS,
            events=_THREADED,
        ),
        Entry(
            name="quad-tree",
            target="nearcast.index.rivals.quad_tree:QuadTree",
            summary="the place first, by a quadtree; then candidates compared in full",
            paper=_ELAPS,
            subscriptions=_THREADED,
            events=_THREADED,
        ),
        Entry(
            name="r-star-tree",
            target="nearcast.index.rivals.r_star_tree:RStarTree",
            summary="the place first, by libspatialindex; then candidates compared in full",
            paper="The R*-tree: an efficient and robust access method for points and rectangles",
            subscriptions=Capabilities(),
            events=Capabilities(),
        ),
        *(
            Entry(name=name, target=target, summary=summary, paper=paper, subscriptions=_TEXTUAL)
            for name, target, summary, paper in (
                (
                    "lfilter",
                    "nearcast.index.lfilter:LFilter",
                    "words and places: trie, quadtree or both, as a cost model chooses",
                    _LFILTER,
                ),
                (
                    "mbr-trie",
                    "nearcast.index.mbr_trie:MBRTrie",
                    "words first: a trie of token sets with rectangles in its nodes",
                    _LFILTER,
                ),
                (
                    "pt-quadtree",
                    "nearcast.index.pt_quadtree:PTQuadtree",
                    "the place first: a quadtree with pivotal tokens in its nodes",
                    _LFILTER,
                ),
                (
                    "token-grid",
                    "nearcast.index.rivals.token_grid:TokenGrid",
                    "lists by rarest word, long ones cut by a grid",
                    "",
                ),
                (
                    "rt-tree",
                    "nearcast.index.rivals.rt_tree:RTTree",
                    "an R-tree with representative words in its nodes",
                    "Location-Aware Publish/Subscribe",
                ),
                (
                    "ir-tree",
                    "nearcast.index.rivals.ir_tree:IRTree",
                    "an R-tree with an inverted file in its nodes",
                    "Efficient retrieval of the top-k most relevant spatial web objects",
                ),
            )
        ),
        Entry(
            name="pem",
            target="nearcast.index.rivals.pem:Pem",
            summary="rein for wide predicates, tama for narrow ones",
            paper="Parallel ensemble matching based on subscription partitioning for "
            "content-based publish/subscribe systems",
            subscriptions=_THREADED,
        ),
    )
}


def names(*, subscriptions: bool = False, events: bool = False) -> list[str]:
    """The registered names; only those that can do what is asked for."""
    return sorted(
        e.name
        for e in _ENTRIES.values()
        if (not subscriptions or e.subscriptions) and (not events or e.events)
    )


def entry(name: str) -> Entry:
    """The entry of a name; `auto` is the default index."""
    wanted = AUTO if name == "auto" else name
    found = _ENTRIES.get(wanted)
    if found is None:
        close = get_close_matches(wanted, _ENTRIES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValidationError("index", name, f"{hint}there are: {', '.join(names())}")
    return found


def require(name: str, *, subscriptions: bool = False, events: bool = False) -> Entry:
    """The entry of a name, refused if it cannot do what is asked for."""
    found = entry(name)
    if subscriptions and found.subscriptions is None:
        raise CapabilityError(found.name, "event matching", names(subscriptions=True))
    if events and found.events is None:
        raise CapabilityError(found.name, "subscription matching", names(events=True))
    return found
