"""Many readers or one writer, who may prepare in peace and leave the rest to others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized

__all__ = ["ReadWriteLock"]


def _nothing() -> None:
    """There is never anything to settle."""


class ReadWriteLock:
    """Readers share, a writer is alone; they take turns, so that neither starves.

    A writer who has much to prepare does so within `change`, beside the readers, and is
    `alone` for the last step only; `write` is both at once. A writer that waits to be alone
    holds new readers back, and when it is done, the readers that wait by then go first. A
    free lock costs a reader half a microsecond. Not re-entrant.

    A writer whose change readers need not see at once does not wait at all: it writes down
    in `left` what is to be done, and whoever is alone next calls `settle`: a reader before
    it begins, another writer, or this one in `offer` if nobody is in its way. So readers
    and writers that come by turns do not wake each other, which would take longer than what
    they do. `settle` takes from `left` while a writer may add to it.
    """

    def __init__(self, settle: Callable[[], None] = _nothing, left: Sized = ()) -> None:
        self._lock = threading.Lock()
        self._change = threading.Lock()
        """Held by the one writer that may prepare or be alone."""
        self._changed = threading.Condition(self._lock)
        self._share = _Share(self)
        self._alone = _Alone(self)
        self._write = _Write(self)
        self._settle = settle
        self._left = left
        self._settled = 0
        """How often `settle` was called by a reader or writer that came to be alone."""
        self._readers = 0
        self._readers_waiting = 0
        self._turns = 0
        """Readers that go before the next writer."""
        self._writing = False
        self._writers_waiting = 0

    def read(self) -> _Share:
        """Hold off writers."""
        return self._share

    def write(self) -> _Write:
        """Hold off everybody."""
        return self._write

    def change(self) -> threading.Lock:
        """Hold off other writers."""
        return self._change

    def alone(self) -> _Alone:
        """Hold off readers too; within `change`."""
        return self._alone

    def offer(self) -> None:
        """Settle what is left if that can be done at once; within `change`."""
        if self.seize():
            self.let_go()

    def seize(self) -> bool:
        """Be alone, with all settled, if that can be done at once; until `let_go`, in `change`."""
        if not self._lock.acquire(blocking=False):
            return False
        if not self._readers:
            try:
                self._settle_now()
                return True
            except BaseException:
                self._lock.release()
                raise
        self._lock.release()
        return False

    def let_go(self) -> None:
        """After `seize`."""
        self._lock.release()

    def _settle_now(self) -> None:
        """Nobody reads or writes, and the lock is held."""
        if self._left:
            self._settle()
            self._settled += 1

    def _enter(self) -> None:
        with self._lock:
            if self._writing or self._writers_waiting or self._turns or self._left:
                self._wait_to_read()
            self._readers += 1

    def _wait_to_read(self) -> None:
        self._readers_waiting += 1
        came = self._settled
        try:
            # What is left since others settled came after this reader: it need not wait again.
            while (
                self._writing
                or (self._writers_waiting and not self._turns)
                or (self._readers and self._left and self._settled == came)
            ):
                self._changed.wait()
            if not self._readers:
                self._settle_now()
        except BaseException:  # an interrupt: a writer may wait for this reader's turn
            self._changed.notify_all()
            raise
        finally:
            self._readers_waiting -= 1
            self._turns = min(max(self._turns - 1, 0), self._readers_waiting)

    def _leave(self) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers and (self._readers_waiting or self._writers_waiting):
                self._changed.notify_all()

    def _enter_alone(self) -> None:
        with self._lock:
            if self._writing or self._readers or self._turns:
                self._wait_to_write()
            try:
                self._settle_now()
            except BaseException:  # readers may wait for this writer's turn
                self._changed.notify_all()
                raise
            self._writing = True

    def _wait_to_write(self) -> None:
        self._writers_waiting += 1
        try:
            while self._writing or self._readers or self._turns:
                self._changed.wait()
        except BaseException:  # an interrupt: readers must not wait for this writer
            self._changed.notify_all()
            raise
        finally:
            self._writers_waiting -= 1

    def _leave_alone(self) -> None:
        with self._lock:
            self._writing = False
            self._turns = self._readers_waiting
            self._changed.notify_all()


class _Turn:
    """A turn at a lock: without a generator, which would take as long again."""

    __slots__ = ("_of",)

    def __init__(self, of: ReadWriteLock) -> None:
        self._of = of


class _Share(_Turn):
    """A reader's."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._of._enter()

    def __exit__(self, *_: object) -> None:
        self._of._leave()


class _Alone(_Turn):
    """A writer's, who holds `change`."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._of._enter_alone()

    def __exit__(self, *_: object) -> None:
        self._of._leave_alone()


class _Write(_Turn):
    """A writer's, who does not."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._of._change.acquire()
        try:
            self._of._enter_alone()
        except BaseException:
            self._of._change.release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._of._leave_alone()
        finally:
            self._of._change.release()
