"""Whose position an event is: fences that count the same positions share one answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.fences import Fence, object_of
from nearcast.model.filters import Filter
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Group", "Groups", "Key", "Object", "key_of"]

#: The attribute, the filter and the words.
Key = tuple[str, str | None, frozenset[str]]
Object = str | float


def key_of(fence: Fence) -> Key:
    """What makes positions count for a fence."""
    return fence.object, fence.where, fence.keywords


@dataclass(eq=False, slots=True)
class Group:
    """The fences that count the same positions."""

    row: int
    key: Key
    filter: Filter
    objects: dict[Object, int] = field(default_factory=dict)
    """The track of each object."""
    members: int = 0
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """How long a silence → its class, and how many fences it has."""
    following: int = 0
    has_forgotten: bool = False
    """Whether live events may be there of objects that are not."""

    @property
    def everything(self) -> bool:
        """Whether all positions of the attribute count."""
        return self.key[1] is None and not self.key[2]

    def subscription(self) -> Subscription:
        """What counts, wherever it is."""
        _, where, keywords = self.key
        return Subscription(str(self.row), None, where, keywords)


class Groups:
    """Groups by what they count. An event's filters are matched once, whatever hangs on them."""

    def __init__(self, space: Space) -> None:
        self._by_key: dict[Key, Group] = {}
        self._plain: dict[str, Group] = {}
        self._filtered: dict[str, int] = {}
        """How many groups with a filter there are of an attribute."""
        self._by_id: dict[str, Group] = {}
        self._space: Space = space
        self._matcher: Matcher | None = None
        self._free: list[int] = []
        self.sole: Group | None = None
        """The one group there is, if it counts everything."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._by_key.values())

    @property
    def matcher(self) -> Matcher | None:
        """What the filters want, under the rows of their groups; None if there was never one."""
        return self._matcher

    def get(self, key: Key) -> Group | None:
        """The group of a key, if there is one."""
        return self._by_key.get(key)

    def add(self, key: Key, filter: Filter) -> Group:
        """A new group."""
        group = Group(self._free.pop() if self._free else len(self._by_key), key, filter)
        if group.everything:
            self._plain[key[0]] = group
        else:
            if self._matcher is None:
                self._matcher = Matcher(space=self._space)
            wanted = group.subscription()
            self._matcher.add_subscriptions([wanted])
            self._by_id[wanted.id] = group
            self._filtered[key[0]] = self._filtered.get(key[0], 0) + 1
        self._by_key[key] = group
        self._set_sole()
        return group

    def _set_sole(self) -> None:
        alone = len(self._by_key) == 1
        self.sole = next(iter(self._plain.values()), None) if alone else None

    def remove(self, group: Group) -> None:
        """A group is over."""
        attribute = group.key[0]
        del self._by_key[group.key]
        self._free.append(group.row)
        if group.everything:
            del self._plain[attribute]
            self._set_sole()
            return
        assert self._matcher is not None
        del self._by_id[str(group.row)]
        self._matcher.remove_subscription(str(group.row))
        self._filtered[attribute] -= 1
        if not self._filtered[attribute]:
            del self._filtered[attribute]
        self._set_sole()

    def counting(self, event: Event) -> list[tuple[Group, Object]]:
        """The groups of which an event is a position, and whose."""
        if event.location is None:
            return []
        found = self._unfiltered(event)
        if any(name in event.attributes for name in self._filtered):
            assert self._matcher is not None
            self._judged(event, self._matcher.match_event(event), found)
        return found

    def counting_many(self, events: Sequence[Event]) -> list[list[tuple[Group, Object]]]:
        """`counting` of many events."""
        found = [[] if e.location is None else self._unfiltered(e) for e in events]
        if self._filtered:
            assert self._matcher is not None
            numbers, ids = self._matcher.match_numbers(events)
            for number, id in zip(numbers.tolist(), ids, strict=True):
                event = events[number]
                if event.location is not None:
                    self._judged(event, [id], found[number])
        return found

    def _unfiltered(self, event: Event) -> list[tuple[Group, Object]]:
        attributes = event.attributes
        found = []
        for name, group in self._plain.items():
            who = object_of(attributes, name)
            if who is not None:
                found.append((group, who))
        return found

    def _judged(self, event: Event, ids: list[str], found: list[tuple[Group, Object]]) -> None:
        for id in ids:
            group = self._by_id[id]
            who = object_of(event.attributes, group.key[0])
            if who is not None:
                found.append((group, who))
