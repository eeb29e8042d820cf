"""A stream over one log that holds events and changes, by definition: entry by entry.

Each event is told of the subscriptions as they stand when it comes. A subscription that comes or
changes is told of earlier events: those of the newest batches that together hold at most
`remember`, and of its own batch, unless they have expired by the greatest `end` of all events
before it, or it was told of them before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nearcast.model.events import Event
from tests.naive_stream import Change, NaiveStream

__all__ = ["NaiveJoint"]


@dataclass
class NaiveJoint(NaiveStream):
    """Give it the entries of each batch."""

    newest: int | None = None

    def entries(self, entries: Sequence[Change | Event]) -> list[tuple[str, str, int]]:
        """(event, subscription, version), sorted."""
        answer: list[tuple[str, str, int]] = []
        mine: list[tuple[int, Event]] = []
        for entry in entries:
            if isinstance(entry, Event):
                mine.append((self.count, entry))
                for change in self.standing.values():
                    if self._wants(change, entry, entry.end):
                        answer.append((entry.id, change.id, self.version))
                        self.told.add((self.count, change.id))
                self.count += 1
                ends = [each for each in (self.newest, entry.end) if each is not None]
                self.newest = max(ends, default=None)
                continue
            self.version, self.standing[entry.id] = entry.seq, entry
            earlier = [*self._remembered(), *mine] if self.remember else []
            for number, event in earlier:
                over = event.expires is not None and self.newest is not None
                if over and event.expires <= self.newest:  # type: ignore[operator]
                    continue
                if self._wants(entry, event, self.newest) and (number, entry.id) not in self.told:
                    answer.append((event.id, entry.id, entry.seq))
                    self.told.add((number, entry.id))
        self.batches.append(mine)
        return sorted(answer)
