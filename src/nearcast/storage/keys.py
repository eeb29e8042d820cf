"""API keys: only their digests are kept."""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal, NamedTuple, get_args

from nearcast.clock import Micros
from nearcast.errors import UnknownIdError, ValidationError
from nearcast.model.events import check_id
from nearcast.storage.tables import Tables

__all__ = ["ROLES", "Key", "Keys", "Role", "digest_of", "name_of"]

Role = Literal["publish", "subscribe", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
_PREFIX = "nck_"
_ADD_TENANT = "INSERT INTO tenants (name) VALUES (?) ON CONFLICT DO NOTHING"
_ADD = """
    INSERT INTO keys SELECT number, ?, ?, ?, ? FROM tenants WHERE name = ?
"""
_FIND = """
    SELECT name, role, subscriber, made FROM keys JOIN tenants ON tenant = number WHERE digest = ?
"""
_ALL = """
    SELECT digest, name, role, subscriber, made FROM keys JOIN tenants ON tenant = number
    ORDER BY made, digest
"""


class Key(NamedTuple):
    """What a key allows."""

    tenant: str
    role: Role
    subscriber: str | None
    made: Micros
    name: str
    """What may be shown of it: enough to tell it from others, and of no use to anybody."""


class Keys:
    """The keys of a database. A key has 256 random bits, so a plain digest of it is safe."""

    def __init__(self, database: Tables) -> None:
        self._database = database

    def __len__(self) -> int:
        return int(self._database.value("SELECT count(*) FROM keys"))

    def create(
        self, role: Role, now: Micros, *, tenant: str = "", subscriber: str | None = None
    ) -> str:
        """A new key, committed; nobody can read it again."""
        key, _ = self.make(role, now, tenant=tenant, subscriber=subscriber)
        self._database.flush()
        return key

    def make(
        self, role: Role, now: Micros, *, tenant: str = "", subscriber: str | None = None
    ) -> tuple[str, Key]:
        """A new key, for the next commit, and what it allows."""
        if role not in ROLES:
            raise ValidationError("role", role, f"choose one of {', '.join(ROLES)}")
        if role == "subscribe":
            check_id(subscriber, "subscriber")
        elif subscriber is not None:
            raise ValidationError("subscriber", subscriber, "only role subscribe is bound to one")
        key = _PREFIX + secrets.token_urlsafe(32)
        self._database.stage(_ADD_TENANT, (tenant,))
        self._database.stage(_ADD, (digest_of(key), role, subscriber, now, tenant))
        return key, Key(tenant, role, subscriber, now, name_of(key))

    def find(self, key: str) -> Key | None:
        """What a key allows; None if it is not one of ours."""
        for tenant, role, subscriber, made in self._database.rows(_FIND, (digest_of(key),)):
            return Key(tenant, role, subscriber, made, name_of(key))
        return None

    def all(self) -> list[tuple[bytes, Key]]:
        """Every key behind its digest, in the order they were made."""
        return [
            (digest, Key(tenant, role, subscriber, made, _name(digest)))
            for digest, tenant, role, subscriber, made in self._database.rows(_ALL)
        ]

    def revoke(self, key: str) -> bytes:
        """A key, given by itself or its name, allows nothing any more; raises UnknownIdError.

        Returns its digest.
        """
        digest = self.end(key)
        self._database.flush()
        return digest

    def end(self, key: str) -> bytes:
        """The same, for the next commit."""
        for digest, known in self.all():
            if key == known.name or digest == digest_of(key):
                self._database.stage("DELETE FROM keys WHERE digest = ?", (digest,))
                return digest
        raise UnknownIdError("key", key[: len(_PREFIX) + 4], "it may be revoked already")


def digest_of(key: str) -> bytes:
    """What is kept of a key."""
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=32).digest()


def name_of(key: str) -> str:
    """What may be shown of a key."""
    return _name(digest_of(key))


def _name(digest: bytes) -> str:
    return digest[:6].hex()
