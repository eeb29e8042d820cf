"""The contract between the matcher and every index.

What an index sees is integers and floats. The matcher encodes a subscription's clauses
into rows of a `ClauseStore` (shared by matcher and index) and events into an
`EventBatch` or rows of an `EventStore`:

- A *column* is an attribute of one type: `price` as a number and `price` as a string are
  two columns. Columns 0 and 1 are x and y of a point location, so a clause's region
  comes as two closed intervals like any other, always in front of the rest.
- A *predicate* is a closed interval `low ≤ value ≤ high` on a column (equality is
  `low = high`; strings and bools are codes). A column the event lacks, or NaN in it,
  satisfies no predicate. A clause has at most one predicate a column, low ≤ high.
- *Words* are codes; a clause wants all of its words in the event.

An index answers with clause rows (event rows), in any order, each once. It is exact for
what its capabilities declare and may ignore the rest; circles, polygons, residual
predicates, expiry and the de-duplication of subscriptions are the matcher's work.

One writer at a time: the matcher serialises changes of an index against matching. Rows may
come into the store beside matching, for an index that is being built (`RebuiltIndex`): look
only at rows you were given.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from nearcast.index.clauses import Clauses, ClauseStore
from nearcast.index.events import EventBatch, EventStore

__all__ = [
    "CHOICES",
    "BoxIndex",
    "Capabilities",
    "ClauseStore",
    "Clauses",
    "Coming",
    "Counters",
    "DroppingIndex",
    "EventBatch",
    "EventIndex",
    "EventStore",
    "ForeseenIndex",
    "MatchReport",
    "Pairs",
    "RebuiltIndex",
    "Rows",
    "SubscriptionIndex",
    "match_each",
    "new_counters",
]

Rows: TypeAlias = npt.NDArray[np.int32]
Pairs: TypeAlias = tuple[Rows, Rows]
Counters: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an index decides by itself; what it does not, the matcher checks on its answer."""

    intervals: bool = True
    """Closed intervals on columns; x and y of a point are columns too."""
    words: bool = False
    """All words of the clause occur in the event."""
    boxes: bool = False
    """Regions meet the box of an extended location (`BoxIndex.match_boxes`)."""
    updates: bool = True
    """Rows can be added and removed after the first build."""
    exact: bool = True
    """Misses nothing and reports nothing wrong, for what it declares."""
    threads: bool = False
    """Several threads may match at once (no scratch space is shared between calls)."""

    def words_for_people(self) -> str:
        """The declared capabilities in a few words."""
        return ", ".join(f.name for f in fields(self) if getattr(self, f.name)) or "nothing"


class MatchReport(NamedTuple):
    """How much work one match was."""

    nodes: int
    """Nodes, cells, lists or tiles looked into."""
    candidates: int
    """Rows whose predicates were compared."""
    matches: int
    """Rows the index answered with."""
    estimated: int = 0
    """What an index with a cost model expected the work to be, in about nanoseconds; with the
    paper's own model (`choose="paper"` of `lfilter`) in steps."""
    actual: int = 0
    """The work that was done, counted in the same unit."""
    choice: str = ""
    """What the cost model chose most often, of `CHOICES`; empty without a model."""

    @classmethod
    def of(cls, counters: Counters) -> MatchReport:
        """The report of the counters that a match filled in."""
        made = counters[5:]
        choice = CHOICES[int(made.argmax())] if made.any() else ""
        nodes, candidates, matches, estimated, actual = (int(c) for c in counters[:5])
        return cls(nodes, candidates, matches, estimated, actual, choice)


#: What a cost model can choose, in the order of their counters.
CHOICES = ("mbr-trie", "pt-quadtree", "list-pruning")


def new_counters() -> Counters:
    """Fresh counters: the numbers of a `MatchReport`, then how often each choice was made.

    Matching adds to them.
    """
    return np.zeros(5 + len(CHOICES), np.int64)


@runtime_checkable
class SubscriptionIndex(Protocol):
    """Event matching: which clause rows want this event.

    Built as `factory(clauses, events, **options)`.
    """

    def add_clauses(self, rows: Rows) -> None:
        """Take rows of the clause store in; their contents are final until removed."""

    def remove_clauses(self, rows: Rows) -> None:
        """Forget rows. Their contents still stand during this call, and may be anything after."""

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """The clause rows that event number `at` of the batch satisfies."""

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """(event numbers, clause rows) for the whole batch, sorted by event number."""

    def memory_bytes(self) -> int:
        """Bytes held by the index itself, beside the shared stores."""

    def check_invariants(self) -> None:
        """Raise AssertionError where the structure contradicts itself. Slow; for tests."""


@runtime_checkable
class RebuiltIndex(Protocol):
    """A subscription index that is built anew beside itself, so that no match waits for that.

    Single changes are staged beside matches; it is a `BoxIndex`, since the matcher's own way to
    find who meets a box would see what is staged.
    """

    @property
    def worn(self) -> bool:
        """Whether changes have left so much behind that it should be rebuilt."""

    @property
    def one_step(self) -> Any:
        """What adds, moves and removes plain clauses in one step (`ClauseTiles`), or None."""

    def exchange_clauses(self, going: Rows, coming: Rows) -> None:
        """Forget clause rows and add others; rows that go may never have come."""

    def outgrown(self, rows: int) -> bool:
        """Whether so many rows more are better taken in by rebuilding."""

    @property
    def waits(self) -> bool:
        """Whether nobody has needed what the index would make of its rows, if it has any."""

    def rebuilt(self, rows: Rows, *, wait: bool = False) -> Any:
        """An index with these clause rows and the same live events; this one stays as it is.

        It is matched meanwhile, and rows that it was not given may stand in the store. With
        `wait` it may put off its work to the first match that is not a `join`.
        """

    def prepare(self) -> None:
        """Do now what was put off; a match beside this waits for it."""

    def join(self, batch: EventBatch, threads: int) -> Pairs | None:
        """`match_events` as long as the work is put off; None where it is not, or should not be.

        The events of many calls may be matched so, as long as that is the cheaper way.
        """


class Coming(NamedTuple):
    """Rows that are about to be added."""

    columns: int
    """On which all rows may have predicates or values, those that are there included."""
    clauses: int = 0
    wordless: int = 0
    """Of the clauses, those without words."""
    leaving: int = 0
    """Clauses that go before the others come."""
    events: int = 0


@runtime_checkable
class ForeseenIndex(Protocol):
    """An index that takes much at once, long before its rows need it."""

    def least_bytes(self, coming: Coming) -> int:
        """Bytes that it will take at the least with these rows, 0 if it cannot tell."""


@runtime_checkable
class BoxIndex(Protocol):
    """Event matching for extended locations: a subscription index that declares `boxes`."""

    def match_boxes(
        self,
        batch: EventBatch,
        boxes: npt.NDArray[np.float64],
        counters: Counters,
        room: int | None = None,
    ) -> Pairs:
        """`match_events` as if event i were everywhere in boxes[i] (xmin, ymin, xmax, ymax).

        A clause's region must meet the closed box; a clause without a region meets any. What is
        made for it and kept takes at most `room` bytes; None: as many as it needs.
        """


@runtime_checkable
class EventIndex(Protocol):
    """Subscription matching: which live event rows does this clause want."""

    def add_events(self, rows: Rows) -> None:
        """Take rows of the event store in."""

    def remove_events(self, rows: Rows) -> None:
        """Forget rows; those that were dropped before, because they expired, are no error."""

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """The live event rows (now < expires) that satisfy the row of this clause table.

        The table need not be the index's own store. Expired rows met on the way may be
        dropped for good, see `DroppingIndex`: `now` does not go back.
        """

    def memory_bytes(self) -> int:
        """Bytes held by the index itself, beside the shared stores."""

    def check_invariants(self) -> None:
        """Raise AssertionError where the structure contradicts itself. Slow; for tests."""


@runtime_checkable
class DroppingIndex(Protocol):
    """An event index whose matches drop expired rows that they meet."""

    def dropped(self) -> Rows:
        """The rows dropped since this was asked last, but for those removed or added since.

        They are no longer in the index: their owner can let go of them, too.
        """


def match_each(index: SubscriptionIndex, batch: EventBatch, counters: Counters) -> Pairs:
    """`match_events` for an index without a batch path of its own: one event at a time."""
    rows: list[Rows] = []
    sizes = np.zeros(batch.size, np.int64)
    for at in range(batch.size):
        found = index.match_event(batch, at, counters)
        sizes[at] = found.size
        rows.append(found)
    events = np.repeat(np.arange(batch.size, dtype=np.int32), sizes)
    joined: Any = np.concatenate(rows) if rows else np.empty(0, np.int32)
    return events, joined.astype(np.int32, copy=False)
