"""A store in memory for a server: like any other, until the process ends."""

from __future__ import annotations

from collections.abc import Sequence

from nearcast.broker.memory import MemoryStore
from nearcast.broker.ports import Change, Detecting, Fenced, State, Subscribed, Told, Unsubscribed
from nearcast.storage.letters import Letters
from nearcast.storage.positions import Positions
from nearcast.storage.sinks import Sinks
from nearcast.storage.sqlite import Database

__all__ = ["FleetingStore"]


_KINDS = Subscribed, Fenced, Detecting, Unsubscribed


class FleetingStore(MemoryStore):
    """What a broker remembers, with sinks and dead letters: these in tables that no file has."""

    def __init__(self, most_letters: int = 100_000) -> None:
        super().__init__()
        self._database = Database(":memory:")
        self._most_letters = most_letters
        self._last: dict[str, int] = {}
        self.version = 0
        """Grows whenever what there is changes."""
        self._read()

    def _read(self) -> None:
        self.sinks = Sinks(self._database, 1, lambda name: self._last.get(name, 0))
        self.letters = Letters(self._database, 1, self._most_letters)
        self.positions = Positions(self._database, 1)

    def load(self) -> State:
        """A copy of everything remembered."""
        state = super().load()
        self._last = dict(state.numbers)
        self._read()
        return state

    def close(self) -> None:
        """Forget what was not flushed."""
        super().close()
        self._database.drop()

    def stage(self, changes: Sequence[Change]) -> None:
        """Take changes; what is told last, and what ends, is known at once."""
        super().stage(changes)
        for change in changes:
            if isinstance(change, _KINDS):
                self.version += 1
            if isinstance(change, Told):
                for told in change.notifications:
                    if told.subscriber is not None and told.seq is not None:
                        self._last[told.subscriber] = told.seq
            elif isinstance(change, Unsubscribed):
                self.sinks.ended(change.id)

    def flush(self) -> None:
        """Remember what is staged."""
        super().flush()
        self._database.flush()
