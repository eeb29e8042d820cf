"""Who asks: keys, the roles they stand for, and what is off where there are none.

A server that begins without keys on a loopback address is open: it answers everybody, as an
admin, but not pages of other sites that a browser has open. The first key closes it for good,
whatever becomes of that key. Keys are known by their digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from nearcast.errors import UnknownIdError
from nearcast.server.problems import Problem
from nearcast.storage.keys import Key, Role, digest_of

__all__ = ["ANYBODY", "OWNER", "Keyring", "Principal", "Stay", "is_loopback"]

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="nearcast"'}
_REMEDY = "send the header Authorization: Bearer KEY; `nearcast keys create` makes one"


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who asks."""

    tenant: str
    role: Role
    subscriber: str | None = None
    """Whom a key of role subscribe is bound to."""
    key: str | None = None
    """The key's public name; None of who needs none."""
    owner: bool = False
    """Whether it came by the socket beside the store: whoever may open that owns the store."""

    @property
    def admin(self) -> bool:
        """Whether everything is allowed."""
        return self.role == "admin"

    def owns(self, subscriber: str | None) -> bool:
        """Whether what is a subscriber's is this one's business."""
        return self.admin or (subscriber is not None and subscriber == self.subscriber)

    def must_be(self, subscriber: str) -> None:
        """Refuse to speak for somebody else."""
        if not self.owns(subscriber):
            raise Problem(
                403, f"this key is bound to {self.subscriber!r}", "subscriber", subscriber,
                "ask for your own, or use an admin key",
            )  # fmt: skip

    def must_see(self, subscriber: str) -> None:
        """What is another subscriber's looks as if it were not there."""
        if not self.owns(subscriber):
            raise UnknownIdError("subscriber", subscriber, "check the id")


#: Whoever asks a server that is open.
ANYBODY = Principal("", "admin")
#: Whoever asks through the store's own socket, of any server.
OWNER = Principal("", "admin", owner=True)


class Keyring:
    """The keys of a store by digest, in memory: who asks is found in a microsecond.

    In the loop only. `open`: anybody may ask, until the first key is seen. Whoever stays longer
    than one answer says so (`staying`), and is shown out when its key goes.
    """

    def __init__(self, keys: Iterable[tuple[bytes, Key]] = (), *, open: bool = False) -> None:
        self.open = open
        self._known: dict[bytes, Principal] = {}
        self._lent: dict[bytes, Principal] = {}
        """Keys of this process alone, which no store knows."""
        self._names: set[str | None] = set()
        self._stays: dict[str | None, set[Stay]] = {}
        self.renew(keys)

    def __len__(self) -> int:
        return len(self._known)

    def renew(self, keys: Iterable[tuple[bytes, Key]]) -> None:
        """These, and no others; those that are lent stay."""
        before = self._names
        self._known = {digest: _principal(key) for digest, key in keys}
        self._names = {each.key for each in (*self._known.values(), *self._lent.values())}
        for name in before - self._names:
            self._show_out(name)
        if self._known:
            self.close()

    def add(self, digest: bytes, key: Key) -> None:
        """One more."""
        self._known[digest] = _principal(key)
        self._names.add(key.name)
        self.close()

    def lend(self, digest: bytes, key: Key) -> None:
        """One that is in memory only: it closes nothing, and no change of the others ends it."""
        self._lent[digest] = _principal(key)
        self._names.add(key.name)

    def drop(self, digest: bytes) -> None:
        """One less."""
        found = self._known.pop(digest, None)
        if found is not None:
            self._names.discard(found.key)
            self._show_out(found.key)

    def close(self) -> None:
        """Be open to nobody without a key any more, even when the last one is revoked."""
        if self.open:
            self.open = False
            self._show_out(None)

    def holder(self, key: str) -> Principal:
        """Who holds a key; 401 if nobody does."""
        digest = digest_of(key)
        found = self._known.get(digest) or self._lent.get(digest)
        if found is None:
            raise _unknown()
        return found

    def holds(self, who: Principal) -> bool:
        """Whether somebody who was let in would be let in now."""
        return who.owner or (self.open if who.key is None else who.key in self._names)

    def check(self, who: Principal) -> None:
        """401 for somebody whose key has gone meanwhile."""
        if not self.holds(who):
            raise _unknown()

    def staying(self, who: Principal, end: Callable[[], None]) -> Stay:
        """Somebody stays, as long as this context lasts; `end` is called when its key goes."""
        return Stay(self, who, end)

    def enter(self, stay: Stay) -> None:
        """It begins; it ends at once if the key has gone."""
        if stay.who.owner:
            return
        if not self.holds(stay.who):
            stay.end()
            return
        self._stays.setdefault(stay.who.key, set()).add(stay)

    def leave(self, stay: Stay) -> None:
        """It is over."""
        stays = self._stays.get(stay.who.key)
        if stays is not None:
            stays.discard(stay)
            if not stays:
                del self._stays[stay.who.key]

    def _show_out(self, name: str | None) -> None:
        for stay in self._stays.pop(name, ()):
            stay.end()

    def asks(self, headers: Mapping[str, str]) -> Principal | None:
        """Who asks, by the headers of a request; None: somebody without a key, who needs one."""
        if self.open:
            refuse_other_sites(headers)
            return self._borrower(headers) or ANYBODY
        said = headers.get("authorization")
        if said is None:
            return None
        scheme, _, key = said.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Problem(401, "the Authorization is not a Bearer", remedy=_REMEDY,
                          headers=_CHALLENGE)  # fmt: skip
        return self.holder(key.strip())

    def _borrower(self, headers: Mapping[str, str]) -> Principal | None:
        """Who has a key of this process: it is needed for nothing yet, and will be."""
        if not self._lent:
            return None
        key = headers.get("authorization", "").partition(" ")[2].strip()
        return self._lent.get(digest_of(key))


class Stay:
    """A connection that is open, as a context."""

    __slots__ = ("_keyring", "end", "who")

    def __init__(self, keyring: Keyring, who: Principal, end: Callable[[], None]) -> None:
        self._keyring = keyring
        self.who = who
        self.end = end

    def __enter__(self) -> None:
        self._keyring.enter(self)

    def __exit__(self, *_: object) -> None:
        self._keyring.leave(self)


def _principal(key: Key) -> Principal:
    return Principal(key.tenant, key.role, key.subscriber, key.name)


def _unknown() -> Problem:
    return Problem(401, "this key is not known here", remedy="check it, or have a new one made",
                   headers=_CHALLENGE)  # fmt: skip


def no_key() -> Problem:
    """401 for somebody who has none."""
    return Problem(401, "this server asks for a key", remedy=_REMEDY, headers=_CHALLENGE)


def refuse_other_sites(headers: Mapping[str, str]) -> None:
    """Without keys, a page of another site must not reach us through somebody's browser."""
    host = headers.get("host", "")
    if host and not is_loopback(_name(host)):
        raise Problem(
            403, "without keys this server answers to its loopback name only", "host", host,
            "ask for http://127.0.0.1:PORT, or make a key",
        )  # fmt: skip
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Problem(
            403, "without keys this server does not answer pages of other sites", "origin", origin,
            "make a key, or ask from the server's own page",
        )  # fmt: skip


def _name(host: str) -> str:
    """The name in front of a port."""
    return urlsplit(f"//{host}").hostname or ""


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether an address or name leads nowhere but here."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
