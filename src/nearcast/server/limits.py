"""Bounds on what one request, one key and one address may ask for."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Any

from starlette.requests import Request

from nearcast.server.auth import Principal
from nearcast.server.problems import Problem, busy, too_large
from nearcast.server.settings import Settings

__all__ = ["Limits", "Seat"]

#: Wrong keys from one address, and the seconds after which they are forgiven.
_GUESSES, _FORGIVEN_S = 20, 60.0
_ADDRESSES = 10_000
#: Sockets whose other end has yet to say who it is; each has ten seconds.
_STRANGERS = 256


class Limits:
    """Counts, and refuses what is beyond. In the loop only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What a key has left of its requests, and when that was."""
        self._guesses: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.strangers = 0
        """Sockets of who has not shown a key yet: they take no place of those who have."""
        self.streams = 0
        self.streams_of: Counter[str] = Counter()
        """Those whose tenant is known."""
        self.refused: Callable[[str], None] = lambda _: None
        """Hears which tenant was refused something since that has too much."""

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

    def batch(self, count: int, what: str = "events") -> None:
        """How many events or things come at once."""
        if count > self._settings.max_batch:
            raise too_large(what, count, self._settings.max_batch, "rows", "max_batch")

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
        if self._settings.rate and who.key is not None:
            self._pay(who.key, self._settings.rate, "this key")
        if self._settings.tenant_rate:
            try:
                self._pay(f"\0{who.tenant}", self._settings.tenant_rate, "this tenant")
            except Problem:
                self.refused(who.tenant)
                raise

    def _pay(self, name: str, rate: float, what: str) -> None:
        now = monotonic()
        left, then = self._spent.pop(name, (rate * 2, now))
        left = min(rate * 2, left + (now - then) * rate) - 1
        if left < 0:
            self._spent[name] = left + 1, now
            raise busy(f"{what} has more than {rate:g} requests a second", -left / rate)
        self._spent[name] = left, now
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

    def tenant(self, who: Principal, what: str, count: int, more: int) -> None:
        """So many more `things` or `events` of a tenant, which has some already."""
        most: int = getattr(self._settings, f"tenant_{what}")
        if most and more and count + more > most:
            self.refused(who.tenant)
            raise Problem(
                429, f"this tenant may have {most:,} {what}, and has {count:,}", what, count,
                f"let some end, or have tenant_{what} raised", headers={"Retry-After": "60"},
            )  # fmt: skip

    def opened(self, tenant: str | None) -> Seat:
        """One stream or socket more; its tenant may be known later (`Seat.of`)."""
        seat = Seat(self)
        if tenant is not None:
            self.seated(seat, tenant)
        elif self.strangers >= _STRANGERS:
            raise busy(f"{self.strangers:,} sockets without a key are open", 5)
        else:
            self.strangers += 1
        return seat

    def seated(self, seat: Seat, tenant: str) -> None:
        """A stream is this tenant's."""
        if self.streams >= self._settings.max_streams:
            raise busy(f"{self.streams:,} streams are open", 5)
        most, mine = self._settings.tenant_streams, self.streams_of[tenant]
        if most and mine >= most:
            self.refused(tenant)
            raise busy(f"{mine:,} streams of this tenant are open", 5)
        self.streams += 1
        self.streams_of[tenant] += 1
        seat.tenant = tenant


class Seat:
    """An open stream's."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.tenant: str | None = None

    def of(self, tenant: str) -> None:
        """Whose it is turns out; 429 if that has too many."""
        if self.tenant is None:
            self._limits.seated(self, tenant)
            self._limits.strangers -= 1

    def leave(self) -> None:
        """It is closed."""
        if self.tenant is None:
            self._limits.strangers -= 1
            return
        self._limits.streams -= 1
        self._limits.streams_of[self.tenant] -= 1
