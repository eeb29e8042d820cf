"""Streams by definition: what each batch answers, with no index, no layers and no files kept.

A batch reads changes first, then events. Of the changes of an id the one with the greatest `seq`
counts; one that cannot be read does not. Each event is told of the subscriptions as they stand
then. A subscription that has come or changed with the batch is told of earlier events, too: those
of the newest batches that together hold at most `remember`, unless they have expired by the
greatest `end` of all earlier events, or it was told of them before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription
from tests import oracle


class Change(NamedTuple):
    """A row of the log; without a subscription it is a removal, `bad` cannot be read."""

    id: str
    seq: int
    subscription: Subscription | None = None
    bad: bool = False


@dataclass
class NaiveStream:
    """Give it the batches one after the other."""

    remember: int = 1_000_000
    space: str = "globe"
    standing: dict[str, Change] = field(default_factory=dict)
    batches: list[list[tuple[int, Event]]] = field(default_factory=list)
    told: set[tuple[int, str]] = field(default_factory=set)
    version: int = 0
    clock: int | None = None
    count: int = 0

    def batch(
        self, changes: Sequence[Change], events: Sequence[Event]
    ) -> list[tuple[str, str, int]]:
        """(event, subscription, version), sorted."""
        clock = max(
            (e.end for batch in self.batches for _, e in batch if e.end is not None), default=None
        )
        before = dict(self.standing)
        for change in sorted(changes, key=lambda c: c.seq):
            known = self.standing.get(change.id)
            if not change.bad and (known is None or known.seq < change.seq):
                self.standing[change.id] = change
        self.version = max([self.version, *(c.seq for c in changes)])
        fresh = [c for id, c in self.standing.items() if before.get(id) is not c]
        answer = []
        for change in fresh:
            for number, event in self._remembered():
                if event.expires is not None and clock is not None and event.expires <= clock:
                    continue
                if self._wants(change, event, clock) and (number, change.id) not in self.told:
                    answer.append((event.id, change.id, self.version))
                    self.told.add((number, change.id))
        mine = [*enumerate(events, self.count)]
        self.count += len(mine)
        for number, event in mine:
            for change in self.standing.values():
                if self._wants(change, event, event.end):
                    answer.append((event.id, change.id, self.version))
                    self.told.add((number, change.id))
        self.batches.append(mine)
        return sorted(answer)

    def _wants(self, change: Change, event: Event, now: int | None) -> bool:
        wanted = change.subscription
        if wanted is None:
            return False
        if wanted.expires is not None and now is not None and now >= wanted.expires:
            return False
        return oracle.wants(wanted, event, self.space)

    def _remembered(self) -> list[tuple[int, Event]]:
        kept: list[tuple[int, Event]] = []
        for batch in reversed(self.batches):
            if len(kept) + len(batch) > self.remember:
                break
            kept = batch + kept
        return kept if self.remember else []
