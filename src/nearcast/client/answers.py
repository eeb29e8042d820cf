"""What a server answers, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from nearcast.broker.replies import Notification
from nearcast.mobility.safe_region import SafeRegion

__all__ = ["Checked", "Page", "Placed", "Published", "Told"]


class Published(NamedTuple):
    """What came of publishing: on the server's disk by now."""

    accepted: int
    """How many events were new."""
    repeated: int
    """How many it knew already; nothing was told of those."""
    offset: int
    """Where the last of them is in the server's log."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What comes of a report: where to be silent, and what is in reach."""

    epoch: int
    safe_region: SafeRegion | None
    """None: report again at the next step."""
    notifications: tuple[Notification, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """What a server says of a filter or a pattern: how it reads it, or where it is wrong."""

    ok: bool
    normal: str | None = None
    detail: str | None = None
    line: int | None = None
    column: int | None = None
    length: int | None = None


class Told(Notification):
    """A notification, which can be acknowledged: `told.ack()`, to be awaited from an AsyncClient.

    `lost` is how many before it were kept for too long, and are gone: 0 but after a long absence.
    """

    lost: int
    _ack: Callable[[str, int], Any]

    @classmethod
    def of(cls, notification: Notification, ack: Callable[[str, int], Any], lost: int = 0) -> Told:
        """The same, to be acknowledged by a call of `ack`."""
        told = cls._make(notification)
        told.lost, told._ack = lost, ack
        return told

    def ack(self) -> Any:
        """Say that this and everything before it has come: the server need not keep it."""
        assert self.subscriber is not None
        assert self.seq is not None
        return self._ack(self.subscriber, self.seq)


class Page(NamedTuple):
    """Some notifications, the number after which to go on, and how many are missing before."""

    notifications: tuple[Notification, ...]
    next: int
    lost: int = 0

    def told(self, ack: Callable[[str, int], Any]) -> Iterator[Told]:
        """Its notifications, to be acknowledged by `ack`."""
        lost = self.lost
        for notification in self.notifications:
            yield Told.of(notification, ack, lost)
            lost = 0
