"""Where what calls have come to leaves the broker: after its commit, never before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from nearcast.broker.draft import Draft
from nearcast.broker.memory import NoStore
from nearcast.broker.ports import Sink, State, Store
from nearcast.broker.replies import Notification, Reply
from nearcast.broker.standings import Standings
from nearcast.errors import NearcastError, StoppedError
from nearcast.matcher import Matcher

__all__ = ["Outlet"]

T = TypeVar("T")


class Outlet:
    """Stages what calls have changed, commits it, then lets notifications go.

    Every call commits by itself, or many do `together`. Numbers of notifications are given
    here, one sequence a subscriber. A commit that fails stops the broker: what is in memory
    and what is on disk may differ from then on, and only the disk counts.
    """

    def __init__(self, store: Store | None, sinks: Sequence[Sink]) -> None:
        self.remembers = store is not None
        self._store: Store = NoStore() if store is None else store
        self._sinks = tuple(sinks)
        self._numbers: dict[str, int] = {}
        self._waiting: list[Notification] = []
        """What sinks will hear after the commit."""
        self._together = False
        self._stopped: str | None = None

    def load(self) -> State:
        """What the store remembers."""
        state = self._store.load()
        self._numbers = state.numbers
        return state

    @property
    def store(self) -> Store:
        """The store, of a broker that has not stopped."""
        self.check()
        return self._store

    def draft(self, standings: Standings) -> Draft:
        """An empty one, for those who are told on terms, too."""
        return Draft(self.remembers, self._next, standings)

    def offset(self, draft: Draft) -> int:
        """The last entry of the log, that of a draft's changes among them, which it stages."""
        if draft.changes:
            self._store.stage(draft.changes)
            draft.changes = []
        return self._store.offset()

    def _next(self, subscriber: str | None) -> int | None:
        """The number of the next notification to somebody; None if it is to nobody."""
        if subscriber is None:
            return None
        number = self._numbers.get(subscriber, 0) + 1
        self._numbers[subscriber] = number
        return number

    def last(self, subscriber: str) -> int:
        """The number of the last notification to somebody; 0 if there was none."""
        return self._numbers.get(subscriber, 0)

    def check(self) -> None:
        """Refuse to go on if the broker has stopped."""
        if self._stopped is not None:
            raise StoppedError(self._stopped)

    def send(self, draft: Draft) -> Reply:
        """The answer of a call, once what it changed is on disk; its commit may be others', too."""
        self._store.stage(draft.changes)
        if self._sinks:
            self._waiting += draft.notes.made()
        if not self._together:
            self._release()
        return draft.reply()

    def together(self, calls: Iterable[Callable[[], T]]) -> list[T | NearcastError]:
        """Make calls, and commit what they change at once; then their answers.

        A call that is refused has its error for an answer, and the others are made all the same.
        """
        self.check()
        answers: list[T | NearcastError] = []
        self._together = True
        try:
            for call in calls:
                try:
                    answers.append(call())
                except NearcastError as error:
                    answers.append(error)
        except BaseException as error:
            # What was staged is of calls that nobody will have an answer of.
            self.stop(f"a call broke off ({type(error).__name__})")
            raise
        finally:
            self._together = False
        self._release()
        return answers

    def _release(self) -> None:
        try:
            self._store.flush()
        except BaseException as error:
            self.stop(f"its store failed ({error})")
            raise
        waiting, self._waiting = self._waiting, []
        for sink in self._sinks:
            for notification in waiting:
                sink.deliver(notification)

    def end(self, matcher: Matcher) -> None:
        """Stop as one who was asked to; what helps to begin again is kept."""
        if self._stopped is None:
            self._store.keep(matcher)
        self.stop("it was closed")

    def stop(self, why: str) -> None:
        """Answer no more; what is staged and not committed is forgotten."""
        if self._stopped is None:
            self._stopped = why
            self._store.close()
