"""Composites in shards: each sees the plain events that its composites wait for, and no others.

This is how Grus distributes detection: primitive subscriptions go to where the events are, and an
event that satisfies some goes to the composites that wait for it. `deal` says which shard has
which composites, and makes the one matcher that finds the primitives of all of them; a `Shard` is
a detector that is told which primitives an event satisfies.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.cpsl import ast
from nearcast.cpsl.compile import Plan
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.instances import CompositeEvent
from nearcast.cpsl.leaves import Leaf
from nearcast.cpsl.operators.passing import Primitive
from nearcast.cpsl.predicates import translate
from nearcast.errors import BatchError, DuplicateIdError, NearcastError
from nearcast.matcher import Matcher
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Space

__all__ = ["Dealt", "Shard", "deal", "shard_of"]

I8 = npt.NDArray[np.int64]


def shard_of(composite_id: str, count: int) -> int:
    """The shard of a composite: the same everywhere, whatever other composites there are."""
    return zlib.crc32(composite_id.encode()) % count


class Dealt(NamedTuple):
    """Composites dealt out to shards."""

    matcher: Matcher
    """Its subscriptions are the primitives, under their numbers. It finds all that an event
    satisfies, and some of which the shard will say no."""
    starts: I8
    """Where the shards that want a primitive begin among `wanted`, and in the end their number."""
    wanted: I8
    shards: tuple[bytes, ...]
    """What `Shard.open` takes."""
    leaves: tuple[Leaf, ...] = ()
    """The primitives by number."""

    def asked(self) -> tuple[frozenset[str], bool] | None:
        """(the attributes that any primitive looks at, whether any looks at words).

        None if all may be looked at: that of a filter that the matcher leaves out is not known.
        """
        names, words = self.matcher.asked()
        found = set(names)
        for blank in dict.fromkeys(leaf.form.blank for leaf in self.leaves):
            for predicate in blank.predicates:
                if isinstance(predicate, ast.CqlPredicate):
                    if any(left == predicate for left in translate(blank).residual):
                        return None
                    continue
                found.update(test.name for tests in predicate.any_of for test in tests)
        return frozenset(found), words

    def whose(self, rows: I8, numbers: I8) -> tuple[I8, I8, I8]:
        """Who wants events (rows) that satisfy primitives (numbers): shards, rows, numbers.

        Sorted by shard, then by row.
        """
        first = self.starts[numbers]
        counts = self.starts[numbers + 1] - first
        at = np.repeat(first - np.concatenate([[0], counts.cumsum()[:-1]]), counts)
        shards = self.wanted[at + np.arange(counts.sum())]
        rows, numbers = np.repeat(rows, counts), np.repeat(numbers, counts)
        order = np.lexsort((rows, shards))
        return shards[order], rows[order], numbers[order]


def deal(
    composites: Iterable[Composite],
    count: int,
    space: Space = "globe",
    *,
    longest: object = None,
    tolerance_m: float = 1.0,
    max_pending: int = 100_000,
) -> Dealt:
    """Deal composites out to so many shards. O(size of all).

    The first that cannot be detected is an error with its row, an id that comes twice too.
    """
    options: dict[str, Any] = {
        "space": space, "longest": longest, "tolerance_m": tolerance_m, "max_pending": max_pending,
    }  # fmt: skip
    judge = Detector(**options)
    numbers: dict[Leaf, int] = {}
    wanted: list[set[int]] = []
    members: list[list[tuple[Composite, Plan]]] = [[] for _ in range(count)]
    known: set[str] = set()
    for row, composite in enumerate(composites):
        try:
            plan = judge.plan(composite)
            if composite.id in known:
                raise DuplicateIdError("composite", composite.id, "give each an id of its own")
        except NearcastError as error:
            raise BatchError(row, error) from error
        known.add(composite.id)
        shard = shard_of(composite.id, count)
        members[shard].append((composite, plan))
        for leaf in _leaves(plan):
            number = numbers.setdefault(leaf, len(numbers))
            if number == len(wanted):
                wanted.append(set())
            wanted[number].add(shard)
    matcher = Matcher(space=space)
    matcher.add_subscriptions(
        [translate(leaf.primitive()).subscription(str(number)) for leaf, number in numbers.items()]
    )
    parts = []
    for shard, mine in enumerate(members):
        leaves = {number: leaf for leaf, number in numbers.items() if shard in wanted[number]}
        parts.append(pickle.dumps((options, mine, leaves), protocol=5))
    lengths = [len(shards) for shards in wanted]
    every = [shard for shards in wanted for shard in sorted(shards)]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Dealt(matcher, starts, np.array(every, np.int64), tuple(parts), tuple(numbers))


def _leaves(plan: Plan) -> Iterable[Leaf]:
    """Each once, in an order that follows from the plan and not from this process' hashes."""
    found: dict[Leaf, None] = {}
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        if one.kind == "primitive":
            found[one.params[0]] = None
        waiting += [given.plan for given in one.inputs]
    return found


class Shard(Detector):
    """A detector whose plain events are found elsewhere; it knows the primitives by number."""

    _lasting = True  # what waits for it is taken up by others, which have it still
    _known: Mapping[int, Primitive]
    _wanted: Mapping[int, Sequence[int]] = MappingProxyType({})
    """The numbers for each event that is being fed, by its identity."""

    @classmethod
    def open(cls, dealt: bytes) -> Shard:
        """The detector of a shard, as `deal` gave it; take only bytes you trust (a pickle).

        Nothing is parsed. O(size).
        """
        options, members, leaves = pickle.loads(dealt)
        shard = cls(**options)
        for composite, plan in members:
            shard._register(composite, plan, 0, None)
        nodes: Mapping[Any, Any] = shard._graph._by_key
        shard._known = {number: nodes[leaf] for number, leaf in leaves.items()}
        return shard

    def feed_found(
        self, events: Sequence[Event], numbers: Sequence[Sequence[int]]
    ) -> list[CompositeEvent]:
        """As `feed`, with the numbers of the primitives that the matcher found for each event."""
        self._wanted = {id(event): found for event, found in zip(events, numbers, strict=True)}
        try:
            return self.feed(events)
        finally:
            self._wanted = MappingProxyType({})

    @property
    def _ahead(self) -> bool:
        return True

    def _learn(self) -> None:
        """Nothing is looked for here."""

    def _primitives(self, events: list[Event]) -> list[list[Primitive]]:
        known = self._known
        return [
            [known[number] for number in self._wanted[id(event)] if _holds(known[number], event)]
            for event in events
        ]


def _holds(primitive: Primitive, event: Event) -> bool:
    """Whether the tests hold that a detector of its own would not have asked a matcher about."""
    attributes: Mapping[str, Value] = event.attributes
    for name, test in primitive.tests:
        given = attributes.get(name)
        if given is None or not test(given):
            return False
    return True
