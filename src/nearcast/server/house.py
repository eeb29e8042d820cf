"""Where a server's things are: one store, its keys, and one broker for each tenant.

Every row of a store begins with a tenant, and a tenant's broker sees that tenant's rows only:
what is another's is not hidden from it, it is not there. A key belongs to one tenant, and the
requests it comes with go to that one's broker. The default tenant is called "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nearcast.broker.memory import MemoryStore
from nearcast.broker.service import Service
from nearcast.clock import system_now
from nearcast.errors import ValidationError
from nearcast.server.settings import Settings
from nearcast.storage.sqlite import Database, Keys, Retention, SqliteStore
from nearcast.storage.sqlite.retention import retained
from nearcast.storage.urls import parse_url

__all__ = ["House"]


@dataclass(eq=False)
class House:
    """A store that is open, and after `move_in` a broker for each tenant it knows."""

    settings: Settings
    database: Database | None
    clock: Callable[[], int] = system_now
    _brokers: dict[str, Service] = field(default_factory=dict)
    _memory: MemoryStore = field(default_factory=MemoryStore)

    @classmethod
    def open(cls, settings: Settings) -> House:
        """Take the store; StoreError if somebody else has it. Quick: nothing is loaded yet."""
        path = parse_url(settings.store).path
        return cls(settings, None if path is None else Database(path))

    @property
    def keys(self) -> Keys | None:
        """The keys; None where none can be."""
        return None if self.database is None else Keys(self.database)

    def move_in(self) -> None:
        """Load what there is. O(that)."""
        for name in {"", *self._known()}:
            self.broker(name)

    def _known(self) -> Iterator[str]:
        if self.database is not None:
            for (name,) in self.database.rows("SELECT name FROM tenants"):
                yield name

    def broker(self, tenant: str) -> Service:
        """The broker of a tenant, made when it is first asked for."""
        found = self._brokers.get(tenant)
        if found is None:
            found = self._brokers[tenant] = self._made(tenant)
        return found

    def brokers(self) -> dict[str, Service]:
        """All that there are, by tenant."""
        return self._brokers

    def begin_again(self, tenant: str) -> None:
        """Forget what is in memory of a tenant whose broker has stopped, and load what was
        committed. O(that)."""
        del self._brokers[tenant]
        self.broker(tenant)

    def _made(self, tenant: str) -> Service:
        settings = self.settings
        options: dict[str, Any] = {
            "space": settings.space,
            "safe_region": settings.safe_region,
            "lateness": settings.lateness_s or None,
            "clock": self.clock,
        }
        if self.database is None:
            if tenant:
                raise ValidationError("tenant", tenant, "a store in memory has one tenant")
            return Service(store=self._memory, **options)
        retention = Retention(settings.retention_s, settings.retention_bytes or None)
        store = SqliteStore(self.database, tenant, retention=retention, shared=True)
        store.agree("space", settings.space)
        return Service(store=store, **options)

    def kept(self) -> dict[str, int]:
        """How much of what there is, all tenants together."""
        brokers = self._brokers.values()
        found = {
            "things": sum(len(each) for each in brokers),
            "live_events": sum(each.event_count for each in brokers),
            "index_bytes": sum(each.reading.memory() for each in brokers),
            "tenants": len(brokers),
        }
        if self.database is not None:
            found |= retained(self.database)
        return found

    def close(self) -> None:
        """Keep what helps to begin again, and let go of the store."""
        for broker in self._brokers.values():
            broker.close()
        if self.database is not None:
            self.database.close()
