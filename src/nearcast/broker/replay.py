"""Patterns after a restart: what they were given since they were saved, given once more.

Detection follows from its inputs alone, so the same inputs lead to the same state. What was
detected then is in the log, under the names it had; nobody is told of it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from nearcast.broker.patterns import Patterns
from nearcast.broker.ports import Detecting, Input, Published, Reached, Unsubscribed
from nearcast.clock import Micros
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import StoreError
from nearcast.model.events import Event

__all__ = ["replay"]


def replay(patterns: Patterns, inputs: Sequence[Input], now: Micros | None) -> None:
    """Give `patterns` their inputs again, until time has come to `now`. O(inputs)."""
    run = _Replay(patterns, inputs)
    for at, what in inputs:
        if isinstance(what, Published) and isinstance(what.event, CompositeEvent):
            continue  # what came of other inputs
        if at is not None:
            run.move_to(at)
        if isinstance(what, Reached):
            run.move_to(what.now, closing=what.closing)
        elif isinstance(what, Published):
            assert at is not None
            run.take(what.event, at)
        elif isinstance(what, Detecting):
            if what.composite.id in patterns:
                patterns.remove(what.composite.id)
            patterns.add(what.composite, at)
        else:
            run.end(what)
    if now is not None:
        run.move_to(now)
    if run.made:
        raise StoreError(
            f"the log has {len(run.made)} detections that its events do not lead to, "
            f"{run.made[0].id!r} first: restore a backup"
        )


class _Replay:
    """The broker's walk through time, without anybody to tell."""

    def __init__(self, patterns: Patterns, inputs: Sequence[Input]) -> None:
        self._patterns = patterns
        self.made = deque(
            what.event
            for _, what in inputs
            if isinstance(what, Published) and isinstance(what.event, CompositeEvent)
        )
        """Detections of then, in their order."""
        self._next: dict[str, deque[str | None]] = {}
        """What became of each composite: ids of its detections, and None where it ended."""
        for _, what in inputs:
            if isinstance(what, Unsubscribed):
                self._next.setdefault(what.id, deque()).append(None)
            elif isinstance(what, Published) and isinstance(what.event, CompositeEvent):
                self._next.setdefault(what.event.composite_id, deque()).append(what.event.id)

    def end(self, what: Unsubscribed) -> None:
        """A composite is gone."""
        if (coming := self._next[what.id]) and coming[0] is None:
            coming.popleft()
        if what.id in self._patterns:
            self._patterns.remove(what.id)
            self._patterns.forget(what.id)

    def move_to(self, now: Micros, *, closing: bool = False) -> None:
        patterns, until = self._patterns, now - self._patterns.hold
        patterns.begin(now)
        while (moment := patterns.due(until, closing=closing)) is not None:
            self._compose(patterns.decide(moment), moment)

    def take(self, event: Event, at: Micros) -> None:
        end = event.end
        if end is None:
            end = at if event.start is None else max(at, event.start)
        start = end if event.start is None else event.start
        self._compose(self._patterns.take(event, start, end), end)

    def _compose(self, found: Sequence[CompositeEvent], moment: Micros) -> None:
        waiting = deque(found)
        while waiting:
            detected = waiting.popleft()
            coming = self._next.get(detected.composite_id)
            if coming and coming.popleft() is None:  # it had told enough, and was about to end
                coming.appendleft(None)
                continue
            if not self.made or self.made[0].composite_id != detected.composite_id:
                raise StoreError(
                    f"the log lacks a detection of {detected.composite_id!r} that its events "
                    "lead to: restore a backup"
                )
            event = self.made.popleft()
            self._patterns.recall(event)
            waiting += self._patterns.again(event, detected, moment)
