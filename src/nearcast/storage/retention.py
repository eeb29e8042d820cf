"""What a store throws away, and when: by age and by size, a little with every some commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearcast.broker.past import REMEMBERED
from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.errors import ValidationError
from nearcast.storage import statements as sql
from nearcast.storage.tables import Tables

__all__ = ["Retention", "Sweeper", "retained"]

_WEEK_S = 7 * 24 * 3600
_STEP = 1000  # new entries after which there is a step
_FORGOTTEN = "forgotten"
_LOOKED_AT = 4 * _STEP  # so that a step takes away what was added meanwhile, and more


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the log and unacknowledged notifications are kept.

    `age_s` is in seconds of the broker's time; `max_bytes` bounds the store: beyond it the oldest
    go whatever their age. What is live is kept, and so is what patterns need to go on. A
    notification that is gone leaves a gap that its subscriber is told of.
    """

    age_s: float = _WEEK_S
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.age_s >= 0:
            raise ValidationError("age_s", self.age_s, "give seconds, not negative")
        if self.max_bytes is not None and self.max_bytes <= 0:
            raise ValidationError("max_bytes", self.max_bytes, "give a positive number of bytes")


class Sweeper:
    """Takes away what is beyond retention, in steps over the log from its beginning.

    A step looks at a few thousand entries; what has to stay is looked at again in the next round.
    """

    def __init__(self, database: Tables, tenant: int, retention: Retention) -> None:
        self._database = database
        self._tenant = tenant
        self._retention = retention
        self._swept = 0
        """The entry that the round has come to."""
        self._next: int | None = None
        """The entry at which the next step is due."""
        self.forgotten: int = self._fact(_FORGOTTEN)
        """The number up to which changes that were replaced, and removals, may be gone."""
        self.needed: int = FOREVER
        """Patterns are given entries after this one again."""

    def _fact(self, name: str) -> int:
        query = "SELECT value FROM facts WHERE tenant = ? AND name = ?"
        return int(self._database.value(query, (self._tenant, name)) or 0)

    def sweep(self, now: Micros | None, facts: Mapping[str, Any]) -> None:
        """Stage a step if one is due. Called in front of every commit."""
        entry = facts.get("entry")
        if entry is None or now is None:
            return
        if self._next is None:
            self._next = entry
        if entry < self._next:
            return
        self._next = entry + _STEP
        self._step(now)

    def _step(self, now: Micros) -> None:
        tenant, stage = self._tenant, self._database.stage
        stage(sql.FORGET_PAST, (tenant, now))
        stage(sql.FORGET_MORE, (tenant, REMEMBERED))
        before = self._before(now)
        first = self._swept
        last = None
        for entry, at in self._database.rows(sql.SWEPT, (tenant, first, _LOOKED_AT)):
            if entry > self.needed or (at is not None and at >= before):
                break
            last = entry
        if last is None:
            self._swept = 0  # the round is over
            return
        self._swept = last
        stage(sql.FORGET_TOLD, (tenant, first, last, before))
        stage(sql.LET_GO, (tenant, first, last))
        stage(sql.FORGET_LOG, (tenant, first, last))
        forgotten = self._database.value(sql.FORGOTTEN, (tenant, last))
        if forgotten is not None:
            self.forgotten = max(self.forgotten, int(forgotten))
            stage(sql.FORGET_CHANGES, (tenant, last))
            stage(sql.SET_FACT, (tenant, _FORGOTTEN, self.forgotten))

    def _before(self, now: Micros) -> Micros:
        most = self._retention.max_bytes
        if most is not None and self._database.used > most:
            return FOREVER
        return max(NEVER, now - int(min(self._retention.age_s, 1e12) * 1e6))


def retained(database: Tables) -> dict[str, int]:
    """How much a store keeps: bytes, entries of logs from first to last, what waits for an ack.

    O(subscribers): rows are not counted one by one.
    """
    return {
        "store_bytes": database.used,
        "log_entries": int(database.value(sql.LOG_SPAN) or 0),
        "waiting_notifications": int(database.value(sql.WAITING) or 0),
    }
