"""Who asks: keys, the roles they stand for, and what is off where there are none.

A server without keys answers everybody, as an admin; it does so on a loopback address only,
and not for pages of other sites that a browser has open. Keys are known by their digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from nearcast.errors import UnknownIdError
from nearcast.server.problems import Problem
from nearcast.storage.keys import Key, Role, digest_of

__all__ = ["ANYBODY", "Keyring", "Principal", "is_loopback"]

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
    """The key's public name; None where there are no keys."""

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


#: Whoever asks a server without keys, or through the store's own socket.
ANYBODY = Principal("", "admin")


class Keyring:
    """The keys of a store by digest, in memory: who asks is found in a microsecond."""

    def __init__(self, keys: Iterable[tuple[bytes, Key]] = ()) -> None:
        self._known: dict[bytes, Principal] = {}
        for digest, key in keys:
            self.add(digest, key)

    def __len__(self) -> int:
        return len(self._known)

    def renew(self, keys: Iterable[tuple[bytes, Key]]) -> None:
        """These, and no others."""
        self._known = {}
        for digest, key in keys:
            self.add(digest, key)

    def add(self, digest: bytes, key: Key) -> None:
        """One more."""
        self._known[digest] = Principal(key.tenant, key.role, key.subscriber, key.name)

    def drop(self, digest: bytes) -> None:
        """One less."""
        self._known.pop(digest, None)

    def holder(self, key: str) -> Principal:
        """Who holds a key; 401 if nobody does."""
        found = self._known.get(digest_of(key))
        if found is None:
            raise Problem(
                401, "this key is not known here", remedy="check it, or have a new one made",
                headers=_CHALLENGE,
            )  # fmt: skip
        return found

    def asks(self, headers: Mapping[str, str]) -> Principal | None:
        """Who asks, by the headers of a request; None: somebody without a key, who needs one."""
        if not self._known:
            refuse_other_sites(headers)
            return ANYBODY
        said = headers.get("authorization")
        if said is None:
            return None
        scheme, _, key = said.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Problem(401, "the Authorization is not a Bearer", remedy=_REMEDY,
                          headers=_CHALLENGE)  # fmt: skip
        return self.holder(key.strip())


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
