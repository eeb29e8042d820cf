"""How far a stream has come: what Spark writes to its checkpoint before a batch runs.

An offset says how far events and changes were read, and where the batches ended whose events are
still remembered. Everything that a batch answers follows from two offsets and the logs, so there
are no files of our own that must not be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from nearcast.errors import SparkError

__all__ = ["Mark", "Offset", "Remembered"]

#: Beyond so many batches neighbours are put together: an offset stays below some 200 kB.
_MOST_BATCHES = 4096
#: So many parts of what is remembered are forgotten one by one, whatever is put together.
_LEAST_PARTS = 64


class Mark(NamedTuple):
    """Where a batch ended, or some that were put together."""

    events: Any
    changes: Any
    rows: int
    """The events in it."""
    clock: int | None
    """The time at which its late joiners were judged: microseconds, None before any event."""
    batch: int = 0
    """Its number; of several the last."""


class Remembered(NamedTuple):
    """A batch whose events are remembered: (start, stop] of the log of events."""

    first: int
    """Its number, if it is not several that were put together; `batch` is the last of these."""
    batch: int
    start: Any
    stop: Any
    rows: int


@dataclass(frozen=True)
class Offset:
    """The end of a batch, and of those before it that are remembered."""

    job: str
    """What is read and how: a checkpoint of another job is refused."""
    batch: int
    mark: Mark
    past: tuple[Mark, ...] = ()
    """Earlier ends; the first is where the oldest remembered batch begins."""
    run: str = ""
    """Tells this checkpoint from others of the same job; empty before the first batch."""

    @classmethod
    def first(cls, job: str, events: Any, changes: Any) -> Offset:
        """Before the first batch."""
        return cls(job, 0, Mark(events, changes, 0, None))

    @classmethod
    def read(cls, said: dict[str, Any], job: str) -> Offset:
        """An offset from a checkpoint; SparkError if it is another job's."""
        if said.get("job") != job:
            raise SparkError(
                f"this checkpoint belongs to another job ({said.get('job', 'of another kind')}), "
                f"and this one is {job}; give each job a checkpoint of its own"
            )
        batch = said["batch"]
        mark = Mark(said["events"], said["changes"], said["rows"], said["clock"], batch)
        first = batch - len(said["past"])  # where marks have no number each is a batch
        past = tuple(Mark(*[*each, at][:5]) for at, each in enumerate(said["past"], first))
        return cls(job, batch, mark, past, said.get("run", ""))

    def said(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "events": self.mark.events, "changes": self.mark.changes, "rows": self.mark.rows,
            "clock": self.mark.clock, "batch": self.batch, "past": [[*each] for each in self.past],
            "job": self.job, "run": self.run,
        }  # fmt: skip

    def then(self, mark: Mark, remember: int) -> Offset:
        """The end of the next batch; of those before, the newest with `remember` events stay."""
        marks = [*self.past, self.mark]
        room, first = remember, len(marks) - 1
        for at in range(len(marks) - 1, 0, -1):
            room -= marks[at].rows
            if room < 0:
                break
            first = at - 1
        past = marks[first:] if remember else []
        if len(past) > _MOST_BATCHES:
            past = [past[0], *_together(past[1:], _MOST_BATCHES // 2, remember // _LEAST_PARTS)]
        number = self.batch + 1
        return replace(self, batch=number, mark=mark._replace(batch=number), past=tuple(past))

    def remembered(self) -> list[Remembered]:
        """The batches before the one that ends here whose events are remembered, oldest first."""
        return [
            Remembered(before.batch + 1, after.batch, before.events, after.events, after.rows)
            for before, after in pairwise(self.past)
        ]

    def marks(self) -> list[tuple[int, Mark]]:
        """(first number of the batch that ends there, the end), oldest first, this one last."""
        marks = [*self.past, self.mark]
        return [(marks[0].batch, marks[0])] + [(a.batch + 1, b) for a, b in pairwise(marks)]


def _together(marks: list[Mark], target: int, most: int) -> list[Mark]:
    """Neighbours put together until there are so many, none with more than `most` events.

    First those that saw the same version, which loses nothing. Then those of which the first had
    no events: of an id that changed in both, who begins anew knows the last change. Then any: the
    events of the first count as if they had seen the changes of the second.
    """
    rules: list[Callable[[Mark, Mark], bool]] = [
        lambda a, b: a.changes == b.changes,
        lambda a, _: a.rows == 0,
        lambda _a, _b: True,
    ]
    for rule in rules:
        before = 0
        while len(marks) > target and len(marks) != before:
            before = len(marks)
            marks = _joined(marks, len(marks) - target, most, rule)
    return marks


def _joined(
    marks: list[Mark], many: int, most: int, rule: Callable[[Mark, Mark], bool]
) -> list[Mark]:
    """At most so many pairs of neighbours joined, those with the fewest events first."""
    pairs = [
        (a.rows + b.rows, at)
        for at, (a, b) in enumerate(pairwise(marks))
        if a.rows + b.rows <= most and rule(a, b)
    ]
    chosen: set[int] = set()
    for _, at in sorted(pairs):
        if len(chosen) < many and at - 1 not in chosen and at + 1 not in chosen:
            chosen.add(at)
    made: list[Mark] = []
    for at, mark in enumerate(marks):
        if at - 1 in chosen:
            a = made.pop()
            mark = mark._replace(rows=a.rows + mark.rows, clock=a.clock)
        made.append(mark)
    return made
