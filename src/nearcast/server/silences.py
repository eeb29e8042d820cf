"""The lines of publishers that keep silent: who is to hear that its safe rectangle is void."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

__all__ = ["Line", "Lines"]

#: A tenant, and a publisher's name in that one's broker.
_Key = tuple[str, str]


@dataclass(eq=False, slots=True)
class Line:
    """A stream on which one publisher listens."""

    number: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    after: int = 0
    """The newest report whose rectangle is void."""
    ended: bool = False

    def end(self) -> None:
        """There will be no more of it."""
        self.ended = True
        self.woken.set()


class Lines:
    """One line for each publisher that listens. In the loop only."""

    def __init__(self) -> None:
        self._open: dict[_Key, Line] = {}
        self._numbers = count(1)
        self._ended = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, tenant: str, name: str) -> Line:
        """A publisher listens; if it did so elsewhere, that ends."""
        old = self._open.get((tenant, name))
        if old is not None:
            old.end()
        line = self._open[tenant, name] = Line(next(self._numbers))
        if self._ended:
            line.end()
        return line

    def close(self, tenant: str, name: str, line: Line) -> bool:
        """A publisher listens no longer; False: it does, on a newer line."""
        line.end()
        if self._open.get((tenant, name)) is not line:
            return False
        del self._open[tenant, name]
        return True

    def is_open(self, tenant: str, name: str, number: int | None) -> bool:
        """Whether a publisher listens on the line of this number."""
        line = self._open.get((tenant, name))
        return line is not None and line.number == number and not line.ended

    def void(self, tenant: str, requests: Mapping[str, int]) -> None:
        """These publishers hold nothing any more, up to the reports of these numbers."""
        for name, after in requests.items():
            line = self._open.get((tenant, name))
            if line is not None:
                line.after = max(line.after, after)
                line.woken.set()

    def leave(self, tenant: str) -> None:
        """A tenant's broker has forgotten what it granted: all its publishers begin again."""
        for (whose, _), line in self._open.items():
            if whose == tenant:
                line.end()

    def end(self) -> None:
        """The server stops."""
        self._ended = True
        for line in self._open.values():
            line.end()
