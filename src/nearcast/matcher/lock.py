"""Many readers or one writer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ReadWriteLock"]


class ReadWriteLock:
    """Readers share, a writer is alone; they take turns, so that neither starves.

    A waiting writer holds new readers back, and when it is done, the readers that wait by
    then go first. Costs about a microsecond to take. Not re-entrant.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._readers_waiting = 0
        self._turns = 0
        """Readers that go before the next writer."""
        self._writing = False
        self._writers_waiting = 0

    @contextmanager
    def read(self) -> Iterator[None]:
        """Hold off writers."""
        with self._changed:
            self._readers_waiting += 1
            try:
                while self._writing or (self._writers_waiting and not self._turns):
                    self._changed.wait()
            finally:
                self._readers_waiting -= 1
                self._turns = min(max(self._turns - 1, 0), self._readers_waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if not self._readers:
                    self._changed.notify_all()

    @contextmanager
    def write(self) -> Iterator[None]:
        """Hold off everybody."""
        with self._changed:
            self._writers_waiting += 1
            try:
                while self._writing or self._readers or self._turns:
                    self._changed.wait()
            except BaseException:  # an interrupt: readers must not wait for this writer
                self._changed.notify_all()
                raise
            finally:
                self._writers_waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._turns = self._readers_waiting
                self._changed.notify_all()
