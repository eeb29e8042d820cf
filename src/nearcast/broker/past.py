"""What has expired lately: an event that comes once more is known for a repetition."""

from __future__ import annotations

from hashlib import blake2b

from nearcast.clock import Micros
from nearcast.model.events import Event

__all__ = ["REMEMBERED", "REMEMBERED_FOR", "Past", "content_of", "same"]

#: How long after its expiry an event is remembered, in microseconds: an hour.
REMEMBERED_FOR: Micros = 3_600_000_000
#: How many are remembered at most, the latest of them.
REMEMBERED = 100_000


def content_of(event: Event) -> bytes:
    """A digest of all that an event says beside its id and source; equal events have equal ones."""
    attributes = sorted(
        (name, float(value) if type(value) is int else value)
        for name, value in event.attributes.items()
    )
    times = event.start, event.end, event.expires
    said = repr((attributes, sorted(event.keywords), event.location, times))
    return blake2b(said.encode(), digest_size=16).digest()


def same(known: Event, event: Event) -> bool:
    """Whether two events under one id say the same; NaN is NaN here."""
    return type(known) is type(event) and content_of(known) == content_of(event)


class Past:
    """Ids and contents of expired events, for a time and up to a number. O(1) each way."""

    def __init__(self, known: dict[str, tuple[bytes, Micros]]) -> None:
        self._known = known
        """In the order of expiry: what it said, and until when that is remembered."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def keep(self, key: str, content: bytes, until: Micros) -> None:
        """An event has expired."""
        self._known.pop(key, None)
        self._known[key] = content, until
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def holds(self, event: Event, now: Micros) -> bool:
        """Whether an equal event has expired, and is remembered."""
        content, until = self._known.get(event.key, (b"", now))
        return now < until and content == content_of(event)

    def forget(self, now: Micros) -> None:
        """Time has come to `now`."""
        while self._known:
            first = next(iter(self._known))
            if now < self._known[first][1]:
                break
            del self._known[first]
