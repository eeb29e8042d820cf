"""What every call of the broker answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, overload

from nearcast.broker.reporter import SafeRectangle
from nearcast.broker.seats import Found
from nearcast.clock import Micros
from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Notice
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.events import Event, Value
from nearcast.model.fences import Transition

__all__ = ["Notes", "Notification", "Pairs", "Reply", "notification"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NOBODY: Iterable[None] = repeat(None)
_id, _subscriber = attrgetter("id"), attrgetter("subscriber")


class Notification(NamedTuple):
    """This event matches this subscription: told once.

    `subscription_id` may be a composite's id; then `event` is the composite event. `at` is
    the broker's time when it told, in microseconds. It may be a fence's id, too: then
    `transition` and `object` say what was seen, `at` when that was, and `event` is the object's
    last position. `seq` is its number among all that the subscriber was ever told, from 1 and
    without holes; None where nobody is named or nothing is stored. `digest` says how many of the
    same digest come behind this one; None: it is of none. (A tuple: a broker makes
    many, and a frozen dataclass takes three times as long.)
    """

    subscription_id: str
    subscriber: str | None
    event: Event
    at: Micros
    transition: Transition | None = None
    object: Value | None = None
    seq: int | None = None
    digest: int | None = None


#: A notification of a tuple of its fields: a third of the time of naming them.
notification: Callable[[tuple[object, ...]], Notification] = partial(tuple.__new__, Notification)


class Pairs(NamedTuple):
    """Notifications by columns: who wants each of some events, one behind the other."""

    to: Found
    events: Sequence[Event]
    ats: Sequence[Micros]

    def notifications(
        self, number: Callable[[str | None], int | None] | None = None
    ) -> list[Notification]:
        """All of them, under numbers; 1 µs each, nearly all of it to find them in memory."""
        to, counts = [*self.to], self.to.counts
        of = chain.from_iterable(map(repeat, self.events, counts))
        at = chain.from_iterable(map(repeat, self.ats, counts))
        whom = [*map(_subscriber, to)]
        seqs = _NOBODY if number is None else map(number, whom)
        fields = zip(map(_id, to), whom, of, at, _NOBODY, _NOBODY, seqs, _NOBODY, strict=False)
        return [*map(notification, fields)]


class Notes:
    """The notifications of one call, in order; many are made when somebody looks at them."""

    __slots__ = ("_count", "_made", "_parts")

    def __init__(self) -> None:
        self._parts: list[Callable[[], Iterable[Notification]]] = []
        """Behind what is made: what makes more."""
        self._made: list[Notification] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._made) + self._count

    def add(self, count: int, make: Callable[[], Iterable[Notification]]) -> None:
        """So many more, made later, be it repeatedly."""
        self._parts.append(make)
        self._count += count

    def all(self) -> tuple[Notification, ...]:
        """All, to be read; nothing changes, whoever else asks meanwhile."""
        return (*self._made, *chain.from_iterable(make() for make in self._parts))

    def made(self) -> list[Notification]:
        """All, to be added to."""
        if self._parts:
            parts, self._parts, self._count = self._parts, [], 0
            for make in parts:
                self._made += make()
        return self._made


class Reply(Sequence[Notification]):
    """The notifications of one call, in order, and what movers are to hear.

    `safe_regions` says where a subscriber may move silently from now on; `location_requests`
    names those who must report now, whatever region they hold. A reply equals another with
    the same contents, and a list or tuple of the same notifications.
    """

    __slots__ = (
        "_after", "_told", "location_requests", "publish_requests", "safe_rectangles",
        "safe_regions",
    )  # fmt: skip

    def __init__(
        self,
        notifications: Iterable[Notification] | Notes = (),
        safe_regions: Mapping[str, SafeRegion] = _NOTHING,
        requests: Mapping[str, int] = _NOTHING,
        rectangles: Mapping[str, SafeRectangle] = _NOTHING,
        void: Mapping[str, int] = _NOTHING,
    ) -> None:
        self._told = notifications if isinstance(notifications, Notes) else tuple(notifications)
        self.safe_regions: Mapping[str, SafeRegion] = _kept(safe_regions)
        self.location_requests: tuple[str, ...] = tuple(sorted(requests)) if requests else ()
        self._after: Mapping[str, int] = _kept(requests)
        self.safe_rectangles: Mapping[str, SafeRectangle] = _kept(rectangles)
        self.publish_requests: Mapping[str, int] = _kept(void)

    @property
    def _notifications(self) -> tuple[Notification, ...]:
        told = self._told
        if isinstance(told, Notes):
            told = self._told = told.all()
        return told

    def __len__(self) -> int:
        return len(self._told)

    def __iter__(self) -> Iterator[Notification]:
        return iter(self._notifications)

    @overload
    def __getitem__(self, at: int) -> Notification: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Notification, ...]: ...
    def __getitem__(self, at: int | slice) -> Notification | tuple[Notification, ...]:
        return self._notifications[at]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Reply):
            return self._contents() == other._contents()
        return isinstance(other, list | tuple) and self._notifications == tuple(other)

    def _contents(self) -> tuple[object, ...]:
        """All of it, to be compared."""
        return (
            self._notifications, dict(self.safe_regions), dict(self._after),
            dict(self.safe_rectangles), dict(self.publish_requests),
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        parts = [repr(list(self._notifications))]
        if self.safe_regions:
            parts.append(f"safe_regions={dict(self.safe_regions)!r}")
        if self.location_requests:
            parts.append(f"location_requests={self.location_requests!r}")
        if self.safe_rectangles:
            parts.append(f"safe_rectangles={dict(self.safe_rectangles)!r}")
        if self.publish_requests:
            parts.append(f"publish_requests={dict(self.publish_requests)!r}")
        return f"Reply({', '.join(parts)})"

    def messages(self, subscriber: str) -> list[Message]:
        """The part of one subscriber, as `nearcast.mobility.mover.Mover` takes it."""
        out: list[Message] = [
            Notice(told.subscription_id, subscriber, told.event.id, told.at)
            for told in self._notifications
            if told.subscriber == subscriber
        ]
        if subscriber in self.safe_regions:
            out.append(NewRegion(subscriber, self.safe_regions[subscriber]))
        if subscriber in self._after:
            out.append(LocationRequest(subscriber, self._after[subscriber]))
        return out


def _kept(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy that nobody changes; most replies have none."""
    return MappingProxyType(dict(given)) if given else _NOTHING
