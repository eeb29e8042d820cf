"""The subscriptions of a broker by id; those of a store are read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from nearcast.clock import Micros
from nearcast.model.geometry import Around
from nearcast.model.subscriptions import Subscription

__all__ = ["Outline", "Sealed", "Subscriptions"]


_TOGETHER = 50_000


#: What must be known of a subscription at once: its id, when it expires, and whether its region
#: follows its subscriber. A plain tuple: a million of them take a tenth of the time.
Outline: TypeAlias = tuple[str, Micros | None, bool]


class Sealed(NamedTuple):
    """A subscription as a store has it: its filter is not parsed yet."""

    subscriber: str | None
    expires: Micros | None
    follows: bool
    body: str


class Subscriptions(MutableMapping[str, Subscription]):
    """Subscriptions in the order they came; a sealed one is opened when it is looked at.

    Opening a million takes a minute and a half, reading them sealed some seconds.
    """

    def __init__(
        self,
        open: Callable[[str, Sealed], Subscription] | None = None,
        tabled: Callable[[list[tuple[str, Sealed]]], Any] | None = None,
    ) -> None:
        self._known: dict[str, Subscription | Sealed] = {}
        self._open = open
        self._tabled = tabled
        """Makes a table of some."""

    def seal(self, id: str, sealed: Sealed) -> None:
        """Put one there unopened."""
        self._known[id] = sealed

    def __getitem__(self, id: str) -> Subscription:
        found = self._known[id]
        if isinstance(found, Sealed):
            assert self._open is not None
            found = self._known[id] = self._open(id, found)
        return found

    def __setitem__(self, id: str, subscription: Subscription) -> None:
        self._known[id] = subscription

    def __delitem__(self, id: str) -> None:
        del self._known[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def outlines(self) -> Iterator[Outline]:
        """Of all, without opening any."""
        for id, known in self._known.items():
            if isinstance(known, Sealed):
                yield id, known.expires, known.follows
            else:
                yield id, known.expires, isinstance(known.region, Around)

    def get(self, id: str, default: Any = None) -> Any:
        """The one under an id, or what is said instead."""
        return self[id] if id in self._known else default

    def opened(self) -> Iterator[Subscription]:
        """Those that are not sealed."""
        return (known for known in self._known.values() if not isinstance(known, Sealed))

    def tables(self) -> Iterator[Any]:
        """Those that are sealed as Arrow tables for a matcher, some thousands in each.

        Without those that follow somebody: no matcher holds them.
        """
        sealed = (
            (id, known)
            for id, known in self._known.items()
            if isinstance(known, Sealed) and not known.follows
        )
        while some := list(islice(sealed, _TOGETHER)):
            assert self._tabled is not None
            yield self._tabled(some)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Subscriptions):
            other = dict(other)
        return dict(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Subscriptions:
        twin = Subscriptions(self._open, self._tabled)
        twin._known = dict(self._known)  # what is in it never changes
        return twin
