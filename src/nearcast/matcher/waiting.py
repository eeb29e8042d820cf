"""Events that are live before a matcher has entered them."""

from __future__ import annotations

from typing import Protocol

from nearcast.model.events import Event

__all__ = ["NOBODY", "Waiting"]


class Waiting(Protocol):
    """Events that somebody keeps until the matcher wants them."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def events(self) -> list[Event]:
        """All of them, in the order of arrival."""
        ...

    def heard(self) -> None:
        """The matcher has entered them all."""
        ...


class _Nobody:
    """No events, ever."""

    def __len__(self) -> int:
        return 0

    def events(self) -> list[Event]:
        return []

    def heard(self) -> None:
        pass


NOBODY: Waiting = _Nobody()
