"""Bounds on what one request, one key and one address may ask for."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import Any

from starlette.requests import Request

from nearcast.server.auth import Principal
from nearcast.server.problems import Problem, busy, too_large
from nearcast.server.settings import Settings

__all__ = ["Limits"]

#: Wrong keys from one address, and the seconds after which they are forgiven.
_GUESSES, _FORGIVEN_S = 20, 60.0
_ADDRESSES = 10_000


class Limits:
    """Counts, and refuses what is beyond. In the loop only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What a key has left of its requests, and when that was."""
        self._guesses: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.streams = 0

    async def body(self, request: Request) -> bytes:
        """A body that is not too large; 413 before it is read where its length is said."""
        most = self._settings.max_body
        said = request.headers.get("content-length", "")
        if said.isascii() and said.isdigit() and (len(said) > 15 or int(said) > most):
            raise too_large("body", int(said[:15]), most, "bytes", "max_body")
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large("body", size, most, "bytes", "max_body")
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def batch(self, count: int) -> None:
        """How many events come at once."""
        if count > self._settings.max_batch:
            raise too_large("events", count, self._settings.max_batch, "events", "max_batch")

    def filter(self, given: Any, field: str) -> None:
        """How long a filter or pattern is, wherever in a value it stands."""
        level = [given]
        size = 0
        while level:
            each = level.pop()
            if isinstance(each, dict):
                level += each.values()
            elif isinstance(each, list):
                level += each
            size += len(each) if isinstance(each, str) else 1
        if size > self._settings.max_filter:
            raise too_large(field, size, self._settings.max_filter, "characters", "max_filter")

    def things(self, count: int, who: Principal) -> None:
        """How much one subscriber has already."""
        most = self._settings.max_things
        if not who.admin and count >= most:
            raise Problem(
                429, f"{who.subscriber!r} has {count:,} subscriptions, fences and composites",
                "subscriber", who.subscriber, "delete some, or have max_things raised",
                headers={"Retry-After": "60"},
            )  # fmt: skip

    def spend(self, who: Principal) -> None:
        """One request more of a key."""
        rate = self._settings.rate
        if not rate or who.key is None:
            return
        now = monotonic()
        left, then = self._spent.pop(who.key, (rate * 2, now))
        left = min(rate * 2, left + (now - then) * rate) - 1
        if left < 0:
            self._spent[who.key] = left + 1, now
            raise busy(f"this key has more than {rate:g} requests a second", -left / rate)
        self._spent[who.key] = left, now
        while len(self._spent) > _ADDRESSES:
            self._spent.popitem(last=False)

    def guessed(self, address: str) -> None:
        """A wrong key came; refused without a word about it if too many did lately."""
        now = monotonic()
        count, since = self._guesses.pop(address, (0, now))
        if since + _FORGIVEN_S <= now:
            count, since = 0, now
        self._guesses[address] = min(count + 1, _GUESSES + 1), since
        while len(self._guesses) > _ADDRESSES:
            self._guesses.popitem(last=False)
        if count >= _GUESSES:
            raise busy(f"{_GUESSES} wrong keys came from this address", since + _FORGIVEN_S - now)

    def opened(self) -> None:
        """One stream or socket more."""
        if self.streams >= self._settings.max_streams:
            raise busy(f"{self.streams:,} streams are open", 5)
        self.streams += 1

    def closed(self) -> None:
        """One less."""
        self.streams -= 1
