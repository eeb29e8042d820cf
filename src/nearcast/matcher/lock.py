"""Many readers or one writer, who may prepare in peace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ReadWriteLock"]


class ReadWriteLock:
    """Readers share, a writer is alone; they take turns, so that neither starves.

    A writer who has much to prepare does so within `change`, beside the readers, and is
    `alone` for the last step only; `write` is both at once. A writer that waits to be alone
    holds new readers back, and when it is done, the readers that wait by then go first. A
    free lock costs a reader half a microsecond. Not re-entrant.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._change = threading.Lock()
        """Held by the one writer that may prepare or be alone."""
        self._changed = threading.Condition(self._lock)
        self._share = _Share(self)
        self._readers = 0
        self._readers_waiting = 0
        self._turns = 0
        """Readers that go before the next writer."""
        self._writing = False
        self._writers_waiting = 0

    def read(self) -> _Share:
        """Hold off writers."""
        return self._share

    def _enter(self) -> None:
        with self._lock:
            if self._writing or self._writers_waiting or self._turns:
                self._wait_to_read()
            self._readers += 1

    def _wait_to_read(self) -> None:
        self._readers_waiting += 1
        try:
            while self._writing or (self._writers_waiting and not self._turns):
                self._changed.wait()
        except BaseException:  # an interrupt: a writer may wait for this reader's turn
            self._changed.notify_all()
            raise
        finally:
            self._readers_waiting -= 1
            self._turns = min(max(self._turns - 1, 0), self._readers_waiting)

    def _leave(self) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers:
                self._changed.notify_all()

    @contextmanager
    def write(self) -> Iterator[None]:
        """Hold off everybody."""
        with self._change, self.alone():
            yield

    def change(self) -> threading.Lock:
        """Hold off other writers."""
        return self._change

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold off readers too; within `change`."""
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


class _Share:
    """A reader's turn at a lock: without a generator, which would take as long again."""

    __slots__ = ("_of",)

    def __init__(self, of: ReadWriteLock) -> None:
        self._of = of

    def __enter__(self) -> None:
        self._of._enter()

    def __exit__(self, *_: object) -> None:
        self._of._leave()
