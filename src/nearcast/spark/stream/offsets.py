"""How far a stream has come: what Spark writes to its checkpoint before a batch runs.

An offset says how far events and changes were read, and where the batches ended whose events are
still remembered. Everything that a batch answers follows from two offsets and the logs, so there
are no files of our own that must not be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nearcast.errors import SparkError

__all__ = ["Mark", "Offset", "Remembered"]

#: Batches that are remembered at most, whatever their size: an offset stays below some 200 kB.
_MOST_BATCHES = 4096


class Mark(NamedTuple):
    """Where a batch ended."""

    events: Any
    changes: Any
    rows: int
    """The events in it."""
    clock: int | None
    """The time at which its late joiners were judged: microseconds, None before any event."""


class Remembered(NamedTuple):
    """A batch whose events are remembered: (start, stop] of the log of events."""

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
        mark = Mark(said["events"], said["changes"], said["rows"], said["clock"])
        past = tuple(Mark(*each) for each in said["past"])
        return cls(job, said["batch"], mark, past, said.get("run", ""))

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
        past = tuple(marks[max(first, len(marks) - _MOST_BATCHES) :]) if remember else ()
        return replace(self, batch=self.batch + 1, mark=mark, past=past)

    def remembered(self) -> list[Remembered]:
        """The batches before the one that ends here whose events are remembered, oldest first."""
        first = self.batch - len(self.past)
        return [
            Remembered(first + at, before.events, after.events, after.rows)
            for at, (before, after) in enumerate(zip(self.past, self.past[1:], strict=False), 1)
        ]

    def marks(self) -> list[tuple[int, Mark]]:
        """(number of the batch that ends there, the end), oldest first, this one last."""
        first = self.batch - len(self.past)
        return [*enumerate([*self.past, self.mark], first)]
