"""What every call of the broker answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, overload

from nearcast.clock import Micros
from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Notice
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.events import Event, Value
from nearcast.model.fences import Transition

__all__ = ["Notification", "Reply"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Notification(NamedTuple):
    """This event matches this subscription: told once.

    `subscription_id` may be a composite's id; then `event` is the composite event. `at` is
    the broker's time when it told, in microseconds. It may be a fence's id, too: then
    `transition` and `object` say what was seen, `at` when that was, and `event` is the object's
    last position. `seq` is its number among all that the subscriber was ever told, from 1 and
    without holes; None where nobody is named or nothing is stored. (A tuple: a broker makes
    many, and a frozen dataclass takes three times as long.)
    """

    subscription_id: str
    subscriber: str | None
    event: Event
    at: Micros
    transition: Transition | None = None
    object: Value | None = None
    seq: int | None = None


class Reply(Sequence[Notification]):
    """The notifications of one call, in order, and what movers are to hear.

    `safe_regions` says where a subscriber may move silently from now on; `location_requests`
    names those who must report now, whatever region they hold. A reply equals another with
    the same contents, and a list or tuple of the same notifications.
    """

    __slots__ = ("_after", "_notifications", "location_requests", "safe_regions")

    def __init__(
        self,
        notifications: Iterable[Notification] = (),
        safe_regions: Mapping[str, SafeRegion] = _NOTHING,
        requests: Mapping[str, int] = _NOTHING,
    ) -> None:
        self._notifications = tuple(notifications)
        self.safe_regions: Mapping[str, SafeRegion] = _kept(safe_regions)
        self.location_requests: tuple[str, ...] = tuple(sorted(requests)) if requests else ()
        self._after: Mapping[str, int] = _kept(requests)

    def __len__(self) -> int:
        return len(self._notifications)

    @overload
    def __getitem__(self, at: int) -> Notification: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Notification, ...]: ...
    def __getitem__(self, at: int | slice) -> Notification | tuple[Notification, ...]:
        return self._notifications[at]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Reply):
            mine = (self._notifications, dict(self.safe_regions), dict(self._after))
            theirs = (other._notifications, dict(other.safe_regions), dict(other._after))
            return mine == theirs
        return isinstance(other, list | tuple) and self._notifications == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        parts = [repr(list(self._notifications))]
        if self.safe_regions:
            parts.append(f"safe_regions={dict(self.safe_regions)!r}")
        if self.location_requests:
            parts.append(f"location_requests={self.location_requests!r}")
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
