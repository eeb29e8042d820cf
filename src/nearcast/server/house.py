"""Where a server's things are: one store, its keys, and one broker for each tenant.

Every row of a store begins with a tenant, and a tenant's broker sees that tenant's rows only:
what is another's is not hidden from it, it is not there. A key belongs to one tenant, and the
requests it comes with go to that one's broker. The default tenant is called "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from nearcast.broker.service import Service
from nearcast.clock import system_now
from nearcast.errors import ValidationError
from nearcast.server.settings import Settings
from nearcast.server.standby import Shared
from nearcast.storage.fleeting import FleetingStore
from nearcast.storage.identity import identity_of
from nearcast.storage.keys import Keys
from nearcast.storage.letters import Letters
from nearcast.storage.positions import Positions
from nearcast.storage.retention import Retention, retained
from nearcast.storage.sinks import Sinks
from nearcast.storage.sqlite import Database
from nearcast.storage.store import TableStore
from nearcast.storage.tables import Tables
from nearcast.storage.urls import parse_url

__all__ = ["House"]


@dataclass(eq=False)
class House:
    """A store that is open, and after `move_in` a broker for each tenant it knows."""

    settings: Settings
    database: Tables | None
    """Where this server writes; None: nowhere but in memory, or nowhere yet."""
    shared: Shared | None = None
    """A store that other servers have, too: one of them writes."""
    clock: Callable[[], int] = system_now
    identity: str = field(default_factory=lambda: token_hex(8))
    """The store's own, for as long as there is one; known after `move_in`."""
    _brokers: dict[str, Service] = field(default_factory=dict)
    _stores: dict[str, TableStore | FleetingStore] = field(default_factory=dict)
    _counts: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)

    @classmethod
    def open(cls, settings: Settings) -> House:
        """Take the store; StoreError if somebody else has it. Quick: nothing is loaded yet."""
        wanted = parse_url(settings.store)
        if wanted.kind == "memory":
            return cls(settings, None)
        if wanted.path is not None:
            return cls(settings, Database(wanted.path))
        return cls(settings, None, Shared(wanted))

    @property
    def keys(self) -> Keys | None:
        """The keys; None where none can be."""
        if self.database is not None:
            return Keys(self.database)
        return None if self.shared is None else Keys(self.shared.guest)

    def take(self, served_at: str) -> bool:
        """Become the writer, if this server is not; False while another one is. `served_at` is
        where others may ask this one."""
        if self.shared is not None and self.database is None:
            self.database = self.shared.take(served_at)
            if self.database is None:
                return False
            self.shared.leave()
        return True

    def ask(self) -> None:
        """Have the next commit of any tenant say whether this server still writes."""
        if self.database is not None:
            self.database.ask()

    def move_in(self) -> None:
        """Load what there is. O(that)."""
        if self.database is not None:
            self.identity = identity_of(self.database)
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

    def sinks(self, tenant: str) -> Sinks:
        """Where a tenant's notifications are sent."""
        self.broker(tenant)
        return self._stores[tenant].sinks

    def letters(self, tenant: str) -> Letters:
        """Those of a tenant that could not be sent."""
        self.broker(tenant)
        return self._stores[tenant].letters

    def positions(self, tenant: str) -> Positions:
        """How far what a tenant gets from elsewhere was read."""
        self.broker(tenant)
        return self._stores[tenant].positions

    def dead_letters(self) -> dict[str, int]:
        """About how many dead letters each tenant has; nothing is read."""
        return {tenant: len(store.letters) for tenant, store in [*self._stores.items()]}

    def things(self, tenant: str, subscriber: str) -> int:
        """How many things a subscriber has; asked again only when something has changed."""
        version, counts = self._counts.get(tenant, (-1, {}))
        store = self._stores[tenant]
        if version != store.version:
            counts = {}
            self._counts[tenant] = store.version, counts
        if subscriber not in counts:
            counts[subscriber] = store.count(subscriber)
        return counts[subscriber]

    def begin_again(self, tenant: str) -> None:
        """Forget what is in memory of a tenant whose broker has stopped, and load what was
        committed. O(that)."""
        del self._brokers[tenant]
        self.broker(tenant)
        self.sinks(tenant).news()  # of what was committed everybody knows

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
            if tenant not in self._stores:
                self._stores[tenant] = FleetingStore(settings.sink_letters)
            return Service(store=self._stores[tenant], **options)
        retention = Retention(settings.retention_s, settings.retention_bytes or None)
        store = TableStore(
            self.database, tenant, retention=retention, shared=True,
            most_letters=settings.sink_letters,
        )  # fmt: skip
        store.agree("space", settings.space)
        self._stores[tenant] = store
        return Service(store=store, **options)

    def kept_of(self) -> dict[str, Mapping[str, int]]:
        """How many things and live events each tenant has. O(tenants)."""
        brokers = dict(self._brokers)
        return {
            "things": {name: len(each) for name, each in brokers.items()},
            "live_events": {name: each.event_count for name, each in brokers.items()},
        }

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
        if self.shared is not None:
            self.shared.leave()
