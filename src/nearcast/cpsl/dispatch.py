"""Which primitives an event satisfies: by a value of its own, or through the matcher.

A primitive that asks for equality stands under (attribute, constant), and what else it asks is
tested when an event has that value: a microsecond, where a call of the matcher has a price of
its own. Where many share the value (`type = "TAXI"`), and where a primitive asks for none, the
`Matcher` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getsizeof

from nearcast.cpsl.leaves import Constant
from nearcast.cpsl.operators.passing import Primitive
from nearcast.cpsl.predicates import translate
from nearcast.matcher import Matcher
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Dispatch"]

_FEW = 8  # primitives that one value finds


class Dispatch:
    """The primitives of a graph."""

    def __init__(self, space: Space) -> None:
        self.matcher = Matcher(space=space, threads=1)
        self._by_value: dict[str, dict[Constant, tuple[Primitive, ...]]] = {}
        self._matched: dict[str, Primitive] = {}
        self._unmatched: dict[str, Subscription] = {}  # what the matcher has not been told of

    @property
    def matching(self) -> bool:
        """Whether the matcher has anything to find."""
        return bool(self._matched)

    def add(self, node: Primitive) -> None:
        """Find a primitive from now on."""
        leaf = node.leaf
        if leaf.direct:
            rooms = [
                (len(self._by_value.get(name, {}).get(leaf.constants[at], ())), which)
                for which, (at, name) in enumerate(leaf.form.equal)
            ]
            taken, which = min(rooms)
            if taken < _FEW:
                at, name = leaf.form.equal[which]
                table = self._by_value.setdefault(name, {})
                table[leaf.constants[at]] = (*table.get(leaf.constants[at], ()), node)
                node.home = which
                node.tests = leaf.form.checks(leaf.constants, at)
                node.reader = leaf.form.binder
                return
        id, translation = str(node.order), translate(leaf.primitive())
        node.reader = translation if translation.residual else None
        self._matched[id] = node
        self._unmatched[id] = translation.subscription(id)

    def remove(self, node: Primitive) -> None:
        """Forget a primitive."""
        if node.home is None:
            id = str(node.order)
            del self._matched[id]
            if id in self._unmatched:
                del self._unmatched[id]
            else:
                self.matcher.remove_subscription(id)
            return
        at, name = node.leaf.form.equal[node.home]
        table, value = self._by_value[name], node.leaf.constants[at]
        left = tuple(other for other in table[value] if other is not node)
        if left:
            table[value] = left
        else:
            del table[value]
            if not table:
                del self._by_value[name]

    def learn(self) -> None:
        """Tell the matcher of new primitives; once for many composites."""
        if self._unmatched:
            self.matcher.add_subscriptions(list(self._unmatched.values()))
            self._unmatched = {}  # not before: what fails is tried again, and nothing is lost

    def find(self, event: Event) -> list[Primitive]:
        """The primitives that a value of the event finds. O(attributes + found)."""
        found: list[Primitive] = []
        attributes: Mapping[str, Value] = event.attributes
        tables = self._by_value
        for name, value in attributes.items():
            table = tables.get(name)
            if table is None:
                continue
            if isinstance(value, int):
                if isinstance(value, bool):
                    continue
                value = float(value)
            for primitive in table.get(value, ()):
                for other, test in primitive.tests:
                    given = attributes.get(other)
                    if given is None or not test(given):
                        break
                else:
                    found.append(primitive)
        return found

    def match_one(self, event: Event) -> list[Primitive]:
        """The primitives that the matcher finds."""
        return [self._matched[id] for id in self.matcher.match_event(event)]

    def match_many(self, events: Sequence[Event]) -> list[list[Primitive]]:
        """The same for many events at once."""
        found: list[list[Primitive]] = [[] for _ in events]
        rows, ids = self.matcher.match_numbers(events)
        for row, id in zip(rows.tolist(), ids, strict=True):
            found[row].append(self._matched[id])
        return found

    def nbytes(self) -> int:
        """Bytes, as far as Python tells. O(primitives)."""
        tables = self._by_value.values()
        direct = sum(getsizeof(table) + 48 * len(table) for table in tables)
        return direct + self.matcher.memory()["total"] + 300 * len(self._matched)
